"""What to buy and how to set it: predictions at other counts, and the fastest setting."""
