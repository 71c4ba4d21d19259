"""Who came last to each collective, and the steps that follow from it."""
