"""The command ``submit``."""
