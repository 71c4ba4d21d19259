"""Where ``submit`` can send a benchmark: one module for each scheduler, behind one interface."""
