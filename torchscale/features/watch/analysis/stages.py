"""The stages of a pipeline, from which ranks send to which."""

from __future__ import annotations

from collections.abc import Mapping


def stages_of(peers: Mapping[int, frozenset[int]]) -> tuple[tuple[int, ...], ...] | None:
    """Rows of the ranks of each stage, in the order of the pipeline.

    Ranks that exchange messages form chains, one for each copy of the model; ranks at the same
    place of their chains hold the same stage. A chain begins at the end with the lowest row.

    Args:
        peers: Row → rows that it sends to or receives from.

    Returns:
        ``None`` where there are no messages, or they form no chains of one length.
    """
    left = {row for row, of_row in peers.items() if of_row}
    chains: list[list[int]] = []
    while left:
        ends = [row for row in left if len(peers[row]) == 1]
        if not ends:
            return None
        chain = _chain(min(ends), peers)
        if not set(chain) <= left or len(set(chain)) < len(chain):
            return None
        chains.append(chain)
        left -= set(chain)
    if not chains or len({len(chain) for chain in chains}) > 1:
        return None
    return tuple(zip(*chains, strict=True))


def _chain(start: int, peers: Mapping[int, frozenset[int]]) -> list[int]:
    """From one end to the other; it ends early where it branches."""
    chain = [start]
    before = -1
    while True:
        following = [row for row in peers[chain[-1]] if row != before]
        if len(following) != 1 or len(chain) > len(peers):
            return chain
        before = chain[-1]
        chain.append(following[0])
