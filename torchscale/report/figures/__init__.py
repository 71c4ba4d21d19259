"""Figures of cells with their intervals, for other programs' formats."""
