"""Collectives cells."""
