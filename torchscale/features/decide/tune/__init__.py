"""The fastest setting of a config: what to measure next, what the launches say, the winning
config."""
