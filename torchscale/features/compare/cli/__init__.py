"""The commands ``compare`` and ``history``."""
