"""The command ``bisect``."""
