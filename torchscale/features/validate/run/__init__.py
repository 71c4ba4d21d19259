"""Checks of a node by itself, and acceptance."""
