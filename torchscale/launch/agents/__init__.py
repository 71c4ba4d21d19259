"""Launches on CPUs whose torchrun agents are forked by a process that has imported torch."""
