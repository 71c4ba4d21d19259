"""The same collective on every rank: when each arrived and when it was done. Definitions in
``docs/method.md``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from torchscale.errors import TraceError
from torchscale.schema.profiles.span import (
    GROUPED_SEND_RECV,
    SEND_RECV,
    UNRECORDED_LAUNCH,
    RankTrace,
    Trace,
)
from torchscale.util.units import format_percent

_BETWEEN = " between "
_ROOTED = {"broadcast", "reduce", SEND_RECV, GROUPED_SEND_RECV, "gather", "scatter"}
"""Collectives that do not end at the same moment on every rank, so that their ends do not show a
clock's offset."""
SAME_HOST_SPREAD_NS = 100_000
_BETWEEN_HOSTS_SPREAD_NS = 5_000_000
"""Ranks' ends of a symmetric collective may lie this far apart (docs/diagnosis.md): what is left of
the clocks between hosts after the offset is removed is that of NTP, some milliseconds; one host has
one clock."""
_RELATIVE_SPREAD = 0.10
"""Share of the collective's duration: a spread below it cannot change a wait by more than a
tenth."""
_SAME_COLLECTIVE_NS = 500_000
"""Ends of one collective lie within tens of microseconds on the GPUs of a host; those of unrelated
ones lie a part of a step apart, which is milliseconds."""
_LEFT_OUT_SHARE = 0.10
"""More steps or collectives than this left out, and the rest may not stand for all."""
_MAX_PAIRED = 40_000_000
"""Collectives times ranks, of which a table is made: some 60 bytes each, 2.4 GB."""

Key = tuple[str, str, int, int, int]
"""Group, operation, payload, step and number: what is equal on all ranks of a collective. The group
of sends and receives ends in :data:`_BETWEEN`, and in their two ranks where these are known.
Without sequence numbers the number counts within the step; the step is -1 where recordings do not
tell, and with sequence numbers."""


@dataclass(frozen=True)
class Paired:
    """Collectives that were found on all ranks of their group.

    Columns have a row a collective; of 2-dimensional ones, a column a rank. Times of ranks that
    take no part are 0.

    Attributes:
        start, end: Nanoseconds, clock offsets removed.
        takes_part: Which ranks.
        op, group, payload_bytes: What it was.
        index: The collective's position among each rank's collectives; -1 where a rank takes no
            part.
    """

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    takes_part: NDArray[np.bool_]
    op: tuple[str, ...]
    group: tuple[str, ...]
    payload_bytes: NDArray[np.int64]
    index: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.op)

    @property
    def latest(self) -> NDArray[np.int64]:
        """A(k): the latest start in the group."""
        return np.asarray(np.where(self.takes_part, self.start, np.iinfo(np.int64).min).max(axis=1))

    @cached_property
    def last(self) -> NDArray[np.int64]:
        """Column of the rank that arrived last."""
        column = np.where(self.takes_part, self.start, np.iinfo(np.int64).min).argmax(axis=1)
        return np.asarray(column, dtype=np.int64)

    def only(self, chosen: NDArray[np.int64]) -> Paired:
        """The rows with these numbers, in this order."""
        return Paired(
            self.start[chosen],
            self.end[chosen],
            self.takes_part[chosen],
            tuple(self.op[row] for row in chosen),
            tuple(self.group[row] for row in chosen),
            self.payload_bytes[chosen],
            self.index[chosen],
        )


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
    numbered = [_numbered_groups(rank) for rank in ranks]
    keys = [_keys(rank, groups) for rank, groups in zip(ranks, numbered, strict=True)]
    problems = _untold_groups(ranks)
    notes: list[str] = []
    by_group: dict[str, dict[int, set[Key]]] = defaultdict(lambda: defaultdict(set))
    for column, of_rank in enumerate(keys):
        for key in of_rank:
            by_group[key[0]][column].add(key)
    rows: list[tuple[Key, list[int]]] = []
    for group, columns in _groups(by_group, stages):
        if len(columns) < 2:
            continue
        mine = [by_group[group][column] for column in columns]
        of_two = _BETWEEN in group
        if _tells_steps(mine) and not (of_two and len(columns) > 2):
            mine, left_out, steps = _equal_steps(mine)
            _tell_left_out(left_out, steps, problems, notes)
        if of_two:
            comparable = _messages_match(numbered[columns[0]], group, mine, stages)
        else:
            comparable = _is_equal(mine) or group in numbered[columns[0]]
            if not comparable:
                problems.append(_unequal(group, [ranks[column] for column in columns], mine))
        if comparable:
            rows += [(key, columns) for key in set.intersection(*mine)]
    return Pairing(_table(ranks, keys, rows), tuple(problems), tuple(notes))


def _tells_steps(mine: Sequence[set[Key]]) -> bool:
    return any(key[3] >= 0 for ours in mine for key in ours)


def _is_equal(mine: Sequence[set[Key]]) -> bool:
    """Whether all ranks recorded equally many."""
    return all(len(ours) == len(mine[0]) for ours in mine)


def _tell_left_out(left_out: int, steps: int, problems: list[str], notes: list[str]) -> None:
    """Say how many steps are left out, as a problem where they are many."""
    if not left_out:
        return
    told = f"{left_out} of {steps} steps in which ranks recorded different collectives are left out"
    if left_out > _LEFT_OUT_SHARE * steps:
        problems.append(told)
    else:
        notes.append(told)


def _messages_match(
    numbered: frozenset[str],
    group: str,
    mine: Sequence[set[Key]],
    stages: Sequence[Sequence[int]] | None,
) -> bool:
    """Whether the sends and receives of these ranks can be paired by number or order. Of more than
    two ranks that all call equally often, it may be an all-to-all, whose kernels have this name."""
    if len(mine) > 2 and stages is not None:
        return False
    if _is_equal(mine):
        return True
    has_numbers = group.endswith(_BETWEEN) and group.removesuffix(_BETWEEN) in numbered
    return len(mine) == 2 and has_numbers


def _unequal(group: str, ranks: Sequence[RankTrace], mine: Sequence[set[Key]]) -> str:
    """Why the collectives of a group cannot be compared."""
    counted = [f"rank {rank.rank}: {len(ours)}" for rank, ours in zip(ranks, mine, strict=True)]
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


def _equal_steps(mine: list[set[Key]]) -> tuple[list[set[Key]], int, int]:
    """Keys of the steps in which every rank recorded the same collectives, how many steps are left
    out, and of how many. A kernel that one rank's profiler missed then costs its step and not the
    recording."""
    steps = {key[3] for ours in mine for key in ours if key[3] >= 0}
    common = set.intersection(*mine)
    unequal = {key[3] for ours in mine for key in ours - common if key[3] >= 0}
    kept = {key for key in common if key[3] >= 0 and key[3] not in unequal}
    beyond = [{key for key in ours if key[3] < 0} for ours in mine]
    if all(other == beyond[0] for other in beyond):
        kept |= beyond[0]
    return [kept] * len(mine), len(unequal), len(steps)


def ending_together(trace: Trace, paired: Paired) -> tuple[Paired, tuple[str, ...]]:
    """Leave out the collectives that order alone paired and whose ends show that they are not one.
    Also returns why that is a problem, if it is. An export may lack which process group a kernel is
    of: with several groups, kernels of different ones are paired."""
    # One export has one clock; between exports, ends lie apart as clocks do.
    if trace.recorder != "nsys" or len({rank.host for rank in trace.ranks}) > 1 or not len(paired):
        return paired, ()
    unnamed = np.array([not group for group in paired.group], dtype=bool)
    highest = np.iinfo(np.int64).max
    last = np.where(paired.takes_part, paired.end, -highest).max(axis=1)
    spread = last - np.where(paired.takes_part, paired.end, highest).min(axis=1)
    duration = np.where(paired.takes_part, paired.end - paired.start, 0).max(axis=1)
    symmetric = unnamed & np.array([op not in _ROOTED for op in paired.op], dtype=bool)
    apart = symmetric & (spread > _SAME_COLLECTIVE_NS) & (spread > _RELATIVE_SPREAD * duration)
    count, of = int(apart.sum()), int(symmetric.sum())
    if not count:
        return paired, ()
    problem = f"{count} of {of} collectives do not end together on the ranks and are left out"
    hint = (
        "the recording does not say which process group a kernel is of; torch.profiler does (--tool "
        "kineto)"
    )
    kept = paired.only(np.flatnonzero(~apart))
    if count > _LEFT_OUT_SHARE * of:
        return kept, (f"{problem}; {hint}",)
    return kept, ()


def _groups(
    by_group: Mapping[str, Mapping[int, set[Key]]], stages: Sequence[Sequence[int]] | None
) -> Iterator[tuple[str, list[int]]]:
    """Groups, each with the columns of its ranks."""
    for group, members in by_group.items():
        if group or stages is None:
            yield group, list(members)
        else:
            yield from (("", [column for column in stage if column in members]) for stage in stages)


def clock_offsets(trace: Trace, paired: Paired) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """What to subtract from each rank's clock, and why waits are not to be trusted, if they are
    not.

    Ranks of one host share a clock. Between hosts: the median over blocking, unrooted collectives
    of a rank's end minus that of the group's lowest rank.
    """
    hosts = [rank.host for rank in trace.ranks]
    if len(set(hosts)) == 1 and hosts[0] is not None and not trace.ranks[0].on_device:
        # One clock by construction; and a collective on CPU ends when each rank's thread gets to
        # run.
        return np.zeros(len(hosts), dtype=np.int64), ()
    several = len({host for host in hosts if host is not None}) > 1
    offsets = np.zeros(len(hosts), dtype=np.int64)
    symmetric = np.array(
        [op not in _ROOTED for op in paired.op], dtype=bool
    ) & paired.takes_part.all(axis=1)
    if several and not symmetric.any():
        return offsets, ("no collective that shows the clocks of several hosts",)
    if not symmetric.any():
        return offsets, ()
    chosen = paired.only(np.flatnonzero(symmetric))
    limit = SAME_HOST_SPREAD_NS
    if several:
        limit = _BETWEEN_HOSTS_SPREAD_NS
        offsets = _host_offsets(hosts, chosen)
    ends = chosen.end - offsets
    spread = float(np.median(ends.max(axis=1) - ends.min(axis=1)))
    duration = float(np.median((chosen.end - chosen.start).max(axis=1)))
    if spread > limit and spread > _RELATIVE_SPREAD * duration:
        return offsets, (
            f"the ranks' clocks do not agree: collectives end {spread / 1e6:.2f} ms apart "
            f"(median), {format_percent(spread / max(duration, 1.0), 0)} of their duration",
        )
    return offsets, ()


def _host_offsets(hosts: Sequence[str | None], chosen: Paired) -> NDArray[np.int64]:
    """How far the clock of each rank's host is ahead of the first rank's, in nanoseconds, by
    rank."""
    offsets = np.zeros(len(hosts), dtype=np.int64)
    for column, host in enumerate(hosts):
        if host != hosts[0]:
            offsets[column] = int(np.median(chosen.end[:, column] - chosen.end[:, 0]))
    for host in set(hosts):  # one clock a host
        same = [column for column, name in enumerate(hosts) if name == host]
        offsets[same] = int(np.median(offsets[same]))
    return offsets


def _numbered_groups(rank: RankTrace) -> frozenset[str]:
    """Groups all of whose collectives have a sequence number."""
    collectives = rank.collectives
    lacking = set(collectives.group[collectives.sequence < 0].tolist())
    names = enumerate(collectives.groups)
    return frozenset(name for number, name in names if number not in lacking)


def _keys(rank: RankTrace, numbered: frozenset[str]) -> dict[Key, int]:
    """Place of each among the rank's collectives; ``numbered`` are its groups with sequence
    numbers."""
    collectives = rank.collectives
    places: dict[Key, int] = {}
    seen: dict[tuple[str, str, int, int], int] = defaultdict(int)
    for place in range(len(collectives)):
        group, op = (
            collectives.groups[collectives.group[place]],
            collectives.ops[collectives.op[place]],
        )
        if group == UNRECORDED_LAUNCH or op == GROUPED_SEND_RECV:
            continue
        size = int(collectives.payload_bytes[place])
        label, numbered_op = group, ""
        if op == SEND_RECV:
            label, numbered_op = _between(rank, group, place), op
        # Sends and receives are numbered apart, each rank's on its own: between two known ranks
        # their order is sure.
        if group in numbered and (op != SEND_RECV or label.endswith(_BETWEEN)):
            number = int(collectives.sequence[place])
            again = seen[label, numbered_op, -1, number]  # one number, several kernels
            seen[label, numbered_op, -1, number] += 1
            key = (label, f"{numbered_op}+{again}", -1, -1, number)
        else:
            step = int(collectives.step[place])
            key = (label, op, size, step, seen[label, op, size, step])
            seen[label, op, size, step] += 1
        places[key] = place
    return places


def _between(rank: RankTrace, group: str, place: int) -> str:
    """The two ranks of a send or a receive, and its way where it is known."""
    collectives = rank.collectives
    peer, direction = int(collectives.peer[place]), int(collectives.direction[place])
    if peer < 0 or collectives.peers_within_group:
        return group + _BETWEEN
    if not direction:
        return f"{group}{_BETWEEN}{min(rank.rank, peer)} {max(rank.rank, peer)}"
    if direction > 0:
        return f"{group}{_BETWEEN}{rank.rank} {peer}"
    return f"{group}{_BETWEEN}{peer} {rank.rank}"


def _table(
    ranks: tuple[RankTrace, ...],
    keys: list[dict[Key, int]],
    rows: list[tuple[Key, list[int]]],
) -> Paired:
    shape = (len(rows), len(ranks))
    if shape[0] * shape[1] > _MAX_PAIRED:
        raise TraceError(
            f"the recordings hold {shape[0]:,} collectives among {shape[1]:,} ranks, more than can "
            f"be compared at once ({_MAX_PAIRED // shape[1]:,} among so many)",
            hint="record fewer steps, or analyze some of the ranks",
        )
    index = np.full(shape, -1, dtype=np.int64)
    start, end = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for row, (key, columns) in enumerate(rows):
        for column in columns:
            index[row, column] = keys[column][key]
    for column, rank in enumerate(ranks):
        present = index[:, column] >= 0
        start[present, column] = rank.collectives.start[index[present, column]]
        end[present, column] = rank.collectives.end[index[present, column]]
    first = [(columns[0], keys[columns[0]][key]) for key, columns in rows]
    described = [(ranks[column].collectives, place) for column, place in first]
    paired = Paired(
        start,
        end,
        index >= 0,
        tuple(collectives.ops[collectives.op[place]] for collectives, place in described),
        tuple(collectives.groups[collectives.group[place]] for collectives, place in described),
        np.array(
            [collectives.payload_bytes[place] for collectives, place in described], dtype=np.int64
        ),
        index,
    )
    if not rows:
        return paired
    return paired.only(
        np.argsort(np.where(index >= 0, start, np.iinfo(np.int64).max).min(axis=1), kind="stable")
    )
