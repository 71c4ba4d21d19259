"""Recordings of nsys and torch.profiler: made, read, analyzed, replayed with changes."""
