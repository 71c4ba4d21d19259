"""Subprocesses, whole process trees, their names and ends."""
