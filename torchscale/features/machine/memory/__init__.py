"""Memory cells."""
