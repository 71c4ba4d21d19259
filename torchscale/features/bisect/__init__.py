"""Which change made it slower: environments between a good and a bad one, measured by turns until
one answer is left."""
