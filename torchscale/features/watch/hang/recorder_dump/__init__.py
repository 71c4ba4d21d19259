"""Dumps of torch's flight recorders, as they are written: nothing here says what they mean."""
