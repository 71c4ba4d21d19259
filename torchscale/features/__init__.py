"""What the core can do without: each folder is a feature, reached through its commands and ``door.py``."""
