"""A run's figures for other programs' formats: one module a format, behind one interface."""
