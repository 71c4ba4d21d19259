"""More than this machine: several nodes, and jobs of schedulers."""
