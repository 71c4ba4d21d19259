"""Checks of a node, alone or with others, and acceptance."""
