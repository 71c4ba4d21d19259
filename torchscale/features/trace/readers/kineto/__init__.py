"""Traces of ``torch.profiler`` (Kineto): Chrome trace JSON, read in pieces.

A million events are ordinary. The file is decoded a piece at a time into the few fields that are
used, and only columns of numbers are kept.
"""
