"""Whether a node, or a fleet of them, is fit: checks, burn-in, acceptance."""
