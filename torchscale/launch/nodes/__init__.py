"""Launches over several nodes: the cluster at hand, the channel between its nodes, and what each side does."""
