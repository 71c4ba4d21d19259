"""How the ranks of a watched job end, and which end was the first."""
