"""The same collective on every rank: when each arrived and when it was done. Definitions in
``docs/method.md``.

What is equal on all ranks of a collective are its group, operation, payload, step and number
(:func:`~torchscale.features.trace.analysis.pairing_keys.rank_keys`). The keys of all ranks are sorted once;
collectives of one key then lie side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from torchscale.errors import TraceError
from torchscale.features.trace.analysis.paired import Paired, Places, ranges
from torchscale.features.trace.analysis.pairing_keys import (
    Label,
    Labels,
    number_of,
    numbered_groups,
    rank_keys,
)
from torchscale.features.trace.span import GROUPED_SEND_RECV, RankTrace, Trace

_LEFT_OUT_SHARE = 0.10
"""More steps than this left out, and the rest may not stand for all."""
_MAX_PAIRED = 40_000_000
"""Collectives of all ranks: each takes some 150 bytes while keys are sorted, 6 GB."""
_MAX_COUNTED = 16
"""Ranks whose collectives are counted in a message."""


@dataclass(frozen=True)
class Pairing:
    """What was paired, why the rest was not, and what of it is of no consequence."""

    paired: Paired
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()


def pair(trace: Trace, stages: Sequence[Sequence[int]] | None = None) -> Pairing:
    """Pair by communicator and sequence number where the recording has them, else by operation,
    size and order within the step that launched them, or within the recording where that is not
    known.

    Sends and receives concern two ranks and not a group, so that their numbers differ between the
    ranks of a group: they are paired between two ranks that are known, or the only ones. Without
    partners they are paired over all ranks of the group if all called equally often and no stages
    of a pipeline are known.

    Args:
        trace: All ranks.
        stages: Columns of the ranks of each stage of a pipeline: they are the groups of collectives
            that name none.

    Raises:
        TraceError: there are more collectives of more ranks than fit in memory.
    """
    ranks = trace.ranks
    count = sum(len(rank.collectives) for rank in ranks)
    if count > _MAX_PAIRED:
        raise TraceError(
            f"the recordings hold {count:,} collectives of {len(ranks):,} ranks, more than can be "
            f"compared at once ({_MAX_PAIRED:,})",
            hint="record fewer steps, or analyze some of the ranks",
        )
    labels = Labels(stages, len(ranks))
    numbered = [numbered_groups(rank) for rank in ranks]
    keys = _sorted_keys(
        [
            rank_keys(rank, column, names, labels)
            for column, (rank, names) in enumerate(zip(ranks, numbered, strict=True))
        ]
    )
    told = _Told(_untold_groups(ranks), [], is_staged=stages is not None)
    chosen = [_comparable(keys, group, ranks, numbered, told) for group in _groups(keys, labels)]
    rows = np.concatenate([*chosen, np.zeros(0, dtype=np.int64)])
    return Pairing(_table(ranks, keys, rows), tuple(told.problems), tuple(told.notes))


@dataclass
class _Told:
    """What is told of the groups; ``is_staged`` says whether stages of a pipeline are known."""

    problems: list[str]
    notes: list[str]
    is_staged: bool


@dataclass(frozen=True)
class _Keys:
    """Collectives of all ranks by their keys.

    Attributes:
        column, place: Of each collective, in the order of keys and, for one key, of columns.
        first: Where the collectives of each key begin, and where the last end.
        label, step: Label and step of each key; the step is -1 where recordings do not tell, and
            with sequence numbers.
        seen: The first collective of all that has each key, by rank and place.
    """

    column: NDArray[np.int32]
    place: NDArray[np.int32]
    first: Places
    label: Places
    step: Places
    seen: Places


class _Group(NamedTuple):
    """Keys of one label: from one number to another."""

    label: Label
    begin: int
    end: int


def _sorted_keys(of_ranks: Sequence[tuple[Places, NDArray[np.int64]]]) -> _Keys:
    """All collectives sorted by label and the rest of their key, then by column."""
    place = np.concatenate([places for places, _ in of_ranks]).astype(np.int32)
    sizes = [len(places) for places, _ in of_ranks]
    column = np.repeat(np.arange(len(of_ranks), dtype=np.int32), sizes)
    table = np.concatenate([fields for _, fields in of_ranks])
    # A stable sort: those of one key stay in the order of their ranks.
    order = np.lexsort(table.T[::-1])
    table = table[order]
    begins = np.ones(len(table), dtype=bool)
    begins[1:] = (table[1:] != table[:-1]).any(axis=1)
    first = np.flatnonzero(begins)
    return _Keys(
        column=column[order],
        place=place[order],
        first=np.append(first, len(table)),
        label=table[first, 0],
        step=table[first, _STEP_FIELD],
        seen=order[first],
    )


_STEP_FIELD = 4
"""Column of the step in the keys of a rank."""


def _groups(keys: _Keys, labels: Labels) -> list[_Group]:
    """Groups in the order in which ranks have them first, those of stages together."""
    if not len(keys.label):
        return []
    begins = np.flatnonzero(np.diff(keys.label, prepend=-1))
    ends = np.append(begins[1:], len(keys.label))
    names = [labels.names[number] for number in keys.label[begins].tolist()]
    groups = list(map(_Group, names, begins.tolist(), ends.tolist()))
    seen = dict(zip(groups, np.minimum.reduceat(keys.seen, begins).tolist(), strict=True))
    of_stages = min((seen[group] for group in groups if group.label.stage >= 0), default=0)
    for group in groups:
        if group.label.stage >= 0:
            seen[group] = of_stages
    return sorted(groups, key=lambda group: (seen[group], group.label.stage))


def _comparable(
    keys: _Keys,
    group: _Group,
    ranks: Sequence[RankTrace],
    numbered: Sequence[frozenset[str]],
    told: _Told,
) -> Places:
    """The keys of a group that all of its ranks have, if they can be compared."""
    label, numbers = group.label, np.arange(group.begin, group.end)
    columns, counts = np.unique(
        keys.column[keys.first[group.begin] : keys.first[group.end]], return_counts=True
    )
    if len(columns) < 2:
        return numbers[:0]
    common = np.diff(keys.first[group.begin : group.end + 1]) == len(columns)
    steps = keys.step[group.begin : group.end]
    are_equal = bool((counts == counts[0]).all())
    if (steps >= 0).any() and not (label.is_of_two and len(columns) > 2):
        common, left_out, of = _equal_steps(common, steps)
        _tell_left_out(left_out, of, told)
        are_equal = True
    has_numbers = label.group in numbered[int(columns[0])]
    if label.is_of_two and len(columns) > 2:
        # If all call equally often, it may be an all-to-all, whose kernels have this name.
        comparable = are_equal and not told.is_staged
    else:
        comparable = are_equal or has_numbers
    if not comparable and not label.is_of_two:
        counted = zip(columns.tolist(), counts.tolist(), strict=True)
        told.problems.append(
            _unequal(label.text, [(ranks[column].rank, count) for column, count in counted])
        )
    return np.asarray(numbers[common & comparable])


def _equal_steps(common: NDArray[np.bool_], steps: Places) -> tuple[NDArray[np.bool_], int, int]:
    """Which keys are of steps in which every rank recorded the same collectives, how many steps are
    left out, and of how many. A kernel that one rank's profiler missed then costs its step and not
    the recording.

    Args:
        common: Whether all ranks have each key.
        steps: Step of each; below 0 for none.
    """
    within = steps >= 0
    unequal = np.unique(steps[within & ~common])
    kept = within & common & ~np.isin(steps, unequal)
    beyond = ~within
    if common[beyond].all():
        kept |= beyond
    return kept, len(unequal), len(np.unique(steps[within]))


def _tell_left_out(left_out: int, steps: int, told: _Told) -> None:
    """Say how many steps are left out, as a problem where they are many."""
    if not left_out:
        return
    text = f"{left_out} of {steps} steps in which ranks recorded different collectives are left out"
    if left_out > _LEFT_OUT_SHARE * steps:
        told.problems.append(text)
    else:
        told.notes.append(text)


def _unequal(group: str, counts: Sequence[tuple[int, int]]) -> str:
    """Why the collectives of a group cannot be compared."""
    counted = [f"rank {rank}: {count}" for rank, count in counts[:_MAX_COUNTED]]
    if len(counts) > _MAX_COUNTED:
        least, most = min(count for _, count in counts), max(count for _, count in counts)
        counted.append(f"{len(counts) - _MAX_COUNTED:,} more; {least:,} to {most:,} in all")
    name = "the ranks"
    if group:
        name = f"group {group!r}"
    return (
        f"{name} recorded different numbers of collectives ({', '.join(counted)}); they "
        "cannot be compared"
    )


def _untold_groups(ranks: Sequence[RankTrace]) -> list[str]:
    """Groups of sends and receives whose partners are not known are compared with nothing."""
    count = sum(int(rank.collectives.are(GROUPED_SEND_RECV).sum()) for rank in ranks)
    if not count:
        return []
    return [
        f"{count} groups of sends and receives could be all-to-alls or messages of a pipeline and "
        "are not compared; "
        "record torch's ranges too (torch.autograd.profiler.emit_nvtx), or export with "
        "--include-blobs=true"
    ]


def _table(ranks: Sequence[RankTrace], keys: _Keys, rows: Places) -> Paired:
    """The collectives of these keys, by their first start."""
    begin, end = keys.first[rows], keys.first[rows + 1]
    members = ranges(begin, end)
    column, place = keys.column[members], keys.place[members]
    first = np.concatenate([[0], np.cumsum(end - begin)]).astype(np.int64)
    start, done = np.empty(len(members), np.int64), np.empty(len(members), np.int64)
    payload = np.empty(len(members), dtype=np.int64)
    op, group = np.empty(len(members), np.int32), np.empty(len(members), np.int32)
    ops: dict[str, int] = {}
    groups: dict[str, int] = {}
    for number, mine in _by_column(column, len(ranks)):
        collectives, places = ranks[number].collectives, place[mine]
        start[mine], done[mine] = collectives.start[places], collectives.end[places]
        payload[mine] = collectives.payload_bytes[places]
        op[mine] = _numbers(ops, collectives.ops)[collectives.op[places]]
        group[mine] = _numbers(groups, collectives.groups)[collectives.group[places]]
    heads = first[:-1]
    paired = Paired(
        first=first,
        column=column,
        place=place,
        start=start,
        end=done,
        op=op[heads],
        group=group[heads],
        payload_bytes=payload[heads],
        ops=tuple(ops),
        groups=tuple(groups),
    )
    return paired.only(np.argsort(paired.earliest, kind="stable"))


def _by_column(column: NDArray[np.int32], ranks: int) -> Iterator[tuple[int, Places]]:
    """Members of each rank that has some."""
    order = np.argsort(column, kind="stable")
    bounds = np.searchsorted(column[order], np.arange(ranks + 1))
    for number in range(ranks):
        if bounds[number] < bounds[number + 1]:
            yield number, order[bounds[number] : bounds[number + 1]]


def _numbers(known: dict[str, int], names: Sequence[str]) -> NDArray[np.int32]:
    return np.array([number_of(known, name) for name in names], dtype=np.int32)
