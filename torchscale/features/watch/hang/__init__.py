"""Why ranks wait for each other: evidence of a running job or of dumps, and what it proves."""
