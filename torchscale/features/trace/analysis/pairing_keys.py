"""What is equal on all ranks of a collective, as rows of whole numbers.

A key has six fields: the label (its group, or the two ranks of a message), whether it has a
sequence number, and then

- with one: which of several kernels of that number it is, 0, -1 and the number;
- without: operation, payload, step (-1 where the recording does not tell) and how many of the same
  operation, payload and step the rank had before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from torchscale.features.trace.analysis.paired import Places
from torchscale.features.trace.span import (
    GROUPED_SEND_RECV,
    UNRECORDED_LAUNCH,
    CollectiveSpans,
    RankTrace,
)

BETWEEN = " between "
"""Ends the text of labels of messages whose ranks are not known."""
_NOBODY = -1


class Label(NamedTuple):
    """Whose collectives can be paired with each other.

    Attributes:
        text: The group's name; of messages it ends in :data:`BETWEEN`, and in their two ranks
            where these are known.
        is_of_two: Whether they are messages.
        stage: Which stage's the ranks are, of groups without a name; -1 where stages do not matter.
    """

    text: str
    is_of_two: bool
    stage: int = -1

    @property
    def group(self) -> str | None:
        """The group; ``None`` for messages between two known ranks."""
        if not self.is_of_two:
            return self.text
        if self.text.endswith(BETWEEN):
            return self.text.removesuffix(BETWEEN)
        return None


class Labels:
    """Labels and operations of all ranks, numbered."""

    def __init__(self, stages: Sequence[Sequence[int]] | None, ranks: int) -> None:
        self.names: list[Label] = []
        self.ops: dict[str, int] = {}
        self._numbers: dict[Label, int] = {}
        self._stage_of = np.full(ranks, -1)
        for number, stage in enumerate(stages or ()):
            self._stage_of[list(stage)] = number

    def of_group(self, group: str, column: int) -> int:
        """The label of a group's collectives on a rank."""
        if group:
            return self._number(Label(group, BETWEEN in group))
        return self._number(Label("", False, int(self._stage_of[column])))

    def of_message(self, group: str, source: int, target: int) -> int:
        """The label of messages between two ranks; below 0 where they are not known."""
        ranks = f"{source} {target}" if source >= 0 else ""
        return self._number(Label(f"{group}{BETWEEN}{ranks}", True))

    def _number(self, label: Label) -> int:
        number = self._numbers.setdefault(label, len(self.names))
        if number == len(self.names):
            self.names.append(label)
        return number


def number_of(numbers: dict[str, int], name: str) -> int:
    """The number of a name; those that are new get the next."""
    return numbers.setdefault(name, len(numbers))


def rank_keys(
    rank: RankTrace, column: int, numbered: frozenset[str], labels: Labels
) -> tuple[Places, NDArray[np.int64]]:
    """The collectives of a rank that can be paired: their places, and their keys, a row each;
    ``numbered`` are its groups with sequence numbers."""
    collectives = rank.collectives
    places = np.flatnonzero(
        ~collectives.are(GROUPED_SEND_RECV) & ~_of_group(collectives, UNRECORDED_LAUNCH)
    )
    if not len(places):
        return places, np.zeros((0, 6), dtype=np.int64)
    label, is_open = _labels(rank, column, places, labels)
    has_numbers = np.array([name in numbered for name in collectives.groups], dtype=bool)
    # Sends and receives are numbered apart, each rank's on its own: between two known ranks
    # their order is sure.
    by_number = has_numbers[collectives.group[places]] & is_open
    op_numbers = np.array([number_of(labels.ops, op) for op in collectives.ops], dtype=np.int64)
    table = np.zeros((len(places), 6), dtype=np.int64)
    table[:, 0], table[:, 1] = label, by_number
    ops = op_numbers[collectives.op[places]]
    table[:, 2] = np.where(by_number, collectives.sequence[places], ops)
    table[:, 3] = np.where(by_number, 0, collectives.payload_bytes[places])
    table[:, 4] = np.where(by_number, -1, collectives.step[places])
    table[:, 5] = _counted(table[:, :5])
    table[by_number, 2], table[by_number, 5] = table[by_number, 5], table[by_number, 2]
    return places, table


def numbered_groups(rank: RankTrace) -> frozenset[str]:
    """Groups all of whose collectives have a sequence number."""
    collectives = rank.collectives
    lacking = set(np.unique(collectives.group[collectives.sequence < 0]).tolist())
    names = enumerate(collectives.groups)
    return frozenset(name for number, name in names if number not in lacking)


def _of_group(collectives: CollectiveSpans, name: str) -> NDArray[np.bool_]:
    if name not in collectives.groups:
        return np.zeros(len(collectives), dtype=bool)
    return np.asarray(collectives.group == collectives.groups.index(name))


def _labels(
    rank: RankTrace, column: int, places: Places, labels: Labels
) -> tuple[Places, NDArray[np.bool_]]:
    """The label of each place, and whether it does not name two ranks."""
    collectives = rank.collectives
    group = collectives.group[places]
    of_group = np.zeros(len(collectives.groups), dtype=np.int64)
    messages = collectives.point_to_point[places]
    for number in np.unique(group[~messages]).tolist():
        of_group[number] = labels.of_group(collectives.groups[number], column)
    label = of_group[group]
    is_open = np.ones(len(places), dtype=bool)
    if not messages.any():
        return label, is_open
    source, target = _ends(rank, places[messages])
    is_open[messages] = source < 0
    described = np.stack([group[messages].astype(np.int64), source, target], axis=1)
    kinds, which = np.unique(described, axis=0, return_inverse=True)
    numbers = [
        labels.of_message(collectives.groups[of], one, other) for of, one, other in kinds.tolist()
    ]
    label[messages] = np.array(numbers, dtype=np.int64)[np.ravel(which)]
    return label, is_open


def _ends(rank: RankTrace, places: Places) -> tuple[Places, Places]:
    """The two ranks of messages, the sender first where the direction is known, else the lower;
    -1 where they are not known."""
    collectives = rank.collectives
    peer = collectives.peer[places].astype(np.int64)
    direction = collectives.direction[places]
    mine = np.full(len(places), rank.rank, dtype=np.int64)
    source = np.where(direction > 0, mine, peer)
    target = np.where(direction > 0, peer, mine)
    untold = direction == 0
    source[untold] = np.minimum(mine, peer)[untold]
    target[untold] = np.maximum(mine, peer)[untold]
    if collectives.peers_within_group:
        unknown = np.ones(len(places), dtype=bool)
    else:
        unknown = peer < 0
    source[unknown], target[unknown] = _NOBODY, _NOBODY
    return source, target


def _counted(fields: NDArray[np.int64]) -> Places:
    """How many rows before each are equal to it."""
    order = np.lexsort(fields.T)
    ordered = fields[order]
    begins = np.ones(len(fields), dtype=bool)
    begins[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    first = np.flatnonzero(begins)
    within = np.arange(len(fields)) - np.repeat(first, np.diff(np.append(first, len(fields))))
    counts = np.empty(len(fields), dtype=np.int64)
    counts[order] = within
    return counts
