"""What the core can do without: each folder is a feature, behind its commands and ``door.py``."""
