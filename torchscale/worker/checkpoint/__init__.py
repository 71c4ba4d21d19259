"""Saving and loading the state of training, timed."""
