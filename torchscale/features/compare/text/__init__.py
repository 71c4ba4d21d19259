"""Phrases of comparisons."""
