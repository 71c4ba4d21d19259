"""Phrases of validation."""
