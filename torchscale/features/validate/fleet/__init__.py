"""Several nodes beside each other: what differs, which node or link is slow."""
