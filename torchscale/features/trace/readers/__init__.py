"""Recordings of nsys and torch.profiler become one list of spans, so that a stall has one
definition."""
