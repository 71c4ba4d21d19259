"""The commands ``watch`` and ``autopsy``."""
