"""Jobs of the user's own, diagnosed while they run."""
