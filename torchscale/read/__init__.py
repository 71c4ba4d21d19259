"""What commands that only read results do, without a terminal: reports, comparisons, history,
predictions, exports."""
