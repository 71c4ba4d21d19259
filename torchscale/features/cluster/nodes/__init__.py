"""Launches over several nodes: the channel between them, what each side does, and which node or
link is slow."""
