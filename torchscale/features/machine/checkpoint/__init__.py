"""Checkpoint cells."""
