"""Hardware cells."""
