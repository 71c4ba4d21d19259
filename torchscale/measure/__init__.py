"""What commands that start processes do, without a terminal: benchmark, machine cells, profiles,
checks of a node."""
