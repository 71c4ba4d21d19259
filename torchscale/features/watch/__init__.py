"""Programs of the user's own, watched; and why a job makes no progress."""
