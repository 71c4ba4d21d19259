"""Commands that are launched by turns and compared."""
