"""Launches over several nodes: the channel between them, and what each side does."""
