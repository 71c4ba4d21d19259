"""Environments of packages, built below a cache directory."""
