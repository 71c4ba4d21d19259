"""Results of many runs over time: their file, trends and changes of level, baselines from it, the
page and tables."""
