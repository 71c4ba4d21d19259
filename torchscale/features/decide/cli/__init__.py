"""The commands ``predict`` and ``tune``."""
