"""SQLite exports of Nsight Systems.

Tables are created lazily and their columns drift with the version: an absent table is "not
measured". The tables that hold the recorded environment (tokens included) are never read;
:mod:`~torchscale.features.trace.readers.nsys.strip` removes them from a copy.
"""
