"""The command ``measure``."""
