"""What ``measure`` adds to training: collectives, peak rates, memory and checkpoints as cells."""
