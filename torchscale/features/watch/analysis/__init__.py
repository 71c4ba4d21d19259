"""Jobs that run: moments and collectives of each rank → steps, who waits for whom, findings."""
