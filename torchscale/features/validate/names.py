"""Files that a validation leaves: their names, and how large they may be."""

from __future__ import annotations

ACCEPTANCE = "acceptance.json"
"""What was measured, in the folder of an acceptance: a baseline for later ones."""
VALIDATION = "validation.json"
"""The whole answer, in the folder of an acceptance and in a bundle."""
FLEET = "fleet.json"
"""The answer over several nodes, in node 0's folder of its acceptance."""
MOST_BYTES = 64 << 20
"""Of one node: an acceptance of a thousand rounds of sixteen GPUs has less."""
MOST_FLEET_BYTES = 1 << 30
"""Of all: about 0.7 MB a node of eight GPUs with twenty rounds and a baseline, and 1,024 nodes."""
