"""Results beside each other: two runs, recordings, or many runs over time."""
