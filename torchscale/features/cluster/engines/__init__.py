"""Sweeps and checks over nodes that an engine has: it starts an agent on each."""
