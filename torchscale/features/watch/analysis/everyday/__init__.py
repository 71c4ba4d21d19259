"""Everyday causes of lost time in a watched job, each by its name, its ranks, its lines and its
period."""
