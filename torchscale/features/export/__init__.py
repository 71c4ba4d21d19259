"""A run in other programs' formats."""
