"""What a watched job leaves on disk."""
