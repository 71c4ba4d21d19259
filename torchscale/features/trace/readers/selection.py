"""Some of the ranks of a recording: those that a user names, or a sample in which process groups
and nodes keep members."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from torchscale.errors import TraceError, UsageError
from torchscale.features.trace.readers.files import ARCHIVE_SUFFIXES, names_ranks, read_header
from torchscale.features.trace.readers.kineto.forms import Header
from torchscale.features.trace.readers.kineto.reader import rank_in_name

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
_COMPARED = 2
"""Members that a group needs, so that they can be compared."""
_MAX_SHOWN = 16


@dataclass(frozen=True)
class RankRanges:
    """Ranks as a user names them: ``0-7,512``."""

    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def parse(cls, text: str) -> RankRanges:
        """Ranks from text.

        Raises:
            UsageError: it names none.
        """
        ranges = []
        for part in text.replace(" ", "").split(","):
            match = _RANGE.fullmatch(part)
            if match is None or int(match[2] or match[1]) < int(match[1]):
                raise UsageError(
                    f"--ranks {text}: {part!r} is neither a rank nor a range of ranks",
                    hint="write ranks and ranges, separated by commas: 0-7,512",
                )
            ranges.append((int(match[1]), int(match[2] or match[1])))
        return cls(tuple(ranges))

    def __contains__(self, rank: int) -> bool:
        return any(first <= rank <= last for first, last in self.ranges)

    def __str__(self) -> str:
        return ",".join(str(one) if one == last else f"{one}-{last}" for one, last in self.ranges)


class Stratum(NamedTuple):
    """Ranks of which a sample keeps some: two of a process group, which are compared with each
    other, one of a node."""

    members: frozenset[int]
    needed: int


def groups_and_nodes(
    groups: Iterable[frozenset[int]], nodes: Iterable[frozenset[int]]
) -> list[Stratum]:
    """Process groups and nodes."""
    return [
        *(Stratum(members, _COMPARED) for members in groups),
        *(Stratum(members, 1) for members in nodes),
    ]


@dataclass(frozen=True)
class RankSelection:
    """Ranks that were chosen.

    Attributes:
        ranks: In ascending order.
        absent: How many others were recorded.
        note: What is to be said of the choice; empty for nothing.
    """

    ranks: tuple[int, ...] = ()
    absent: int = 0
    note: str = ""


def choose_ranks(
    recorded: Sequence[int],
    strata: Sequence[Stratum],
    ranks: RankRanges | None,
    sample: int | None,
) -> RankSelection:
    """Some of the recorded ranks.

    Args:
        recorded: All.
        strata: Process groups and nodes.
        ranks: Those that are wanted; ``None`` for all.
        sample: How many of them; ``None`` for all.

    Raises:
        TraceError: none of them is wanted.
    """
    wanted = [rank for rank in sorted(recorded) if ranks is None or rank in ranks]
    if not wanted:
        raise TraceError(
            f"none of the {len(recorded):,} recorded ranks is among --ranks {ranks}",
            hint=f"recorded are ranks {_listed(sorted(recorded))}",
        )
    chosen = wanted
    told = [f"{len(wanted):,} of {len(recorded):,} recorded ranks were chosen by --ranks {ranks}"]
    if ranks is None:
        told = []
    if sample is not None and sample < len(wanted):
        inside = _within(strata, frozenset(wanted))
        chosen = sample_ranks(wanted, inside, sample)
        told.append(f"a sample of {len(chosen):,} of {len(wanted):,} ranks")
        for needed, what in ((_COMPARED, "process groups keep two members"), (1, "nodes keep one")):
            counted = [
                len(members.intersection(chosen)) >= needed
                for members, wants in inside
                if wants == needed
            ]
            if counted:
                told.append(f"{sum(counted):,} of {len(counted):,} {what}")
    return RankSelection(tuple(chosen), len(recorded) - len(chosen), "; ".join(told))


def _within(strata: Iterable[Stratum], ranks: frozenset[int]) -> list[Stratum]:
    """What of each is among the ranks, where that is enough of them, but not all."""
    within = {Stratum(members & ranks, needed) for members, needed in strata}
    return sorted(
        (one for one in within if one.needed <= len(one.members) < len(ranks)),
        key=lambda one: (sorted(one.members), one.needed),
    )


def sample_ranks(ranks: Sequence[int], strata: Sequence[Stratum], count: int) -> list[int]:
    """So many of the ranks, in ascending order: each time the one that most process groups and
    nodes lack, then those that lie farthest from the chosen ones. Equal input gives equal ranks."""
    of_rank: dict[int, list[int]] = defaultdict(list)
    for number, (members, _) in enumerate(strata):
        for rank in members:
            of_rank[rank].append(number)
    # A group gains more by its second member, without which nothing is compared in it, than
    # another by its first.
    gain = [[1] if needed == 1 else [1, 2] for _, needed in strata]
    chosen: list[int] = []
    left = list(ranks)
    while left and len(chosen) < count:
        gains = [sum(gain[number][0] for number in of_rank[rank] if gain[number]) for rank in left]
        best = max(gains)
        candidates = [rank for rank, gained in zip(left, gains, strict=True) if gained == best]
        rank = candidates[0]
        if chosen and not best:
            rank = max(candidates, key=lambda one: min(abs(one - other) for other in chosen))
        chosen.append(rank)
        left.remove(rank)
        for number in of_rank[rank]:
            del gain[number][:1]
    return sorted(chosen)


def described_ranks(paths: Sequence[Path]) -> tuple[dict[int, Path], list[Stratum]]:
    """The file of each rank, of traces of torch.profiler with one rank each, and process groups and
    nodes; only the beginning of each file is read.

    Raises:
        TraceError: a file does not begin with its rank, or two are of one rank.
    """
    by_rank: dict[int, Path] = {}
    groups: set[frozenset[int]] = set()
    hosts: dict[str, set[int]] = defaultdict(set)
    for path in paths:
        rank, header = _described(path)
        if rank in by_rank:
            raise TraceError(
                f"rank {rank} is there more than once: {by_rank[rank].name}, {path.name}",
                hint="name the recordings of one run, one a rank",
            )
        by_rank[rank] = path
        if header.host is not None:
            hosts[header.host].add(rank)
        if header.distributed is not None:
            groups.update(header.distributed.groups)
    return by_rank, groups_and_nodes(groups, map(frozenset, hosts.values()))


def _described(path: Path) -> tuple[int, Header]:
    """The rank and the header of a file.

    Raises:
        TraceError: its beginning does not tell the rank.
    """
    if path.name.endswith(ARCHIVE_SUFFIXES):
        raise TraceError(
            f"{path}: of an archive all ranks are read",
            hint="unpack it, or leave out --ranks and --sample",
        )
    if names_ranks(path):
        raise TraceError(
            f"{path}: it holds several ranks, and all of them are read",
            hint="leave out --ranks and --sample",
        )
    header = read_header(path)
    rank = None
    if header is not None and header.distributed is not None:
        rank = header.distributed.rank
    if rank is None:
        rank = rank_in_name(path.name)
    if header is None or rank is None:
        raise TraceError(
            f"{path}: its beginning does not say of which rank it is",
            hint="leave out --ranks and --sample, or name the files of these ranks",
        )
    return rank, header


def _listed(ranks: Iterable[int]) -> str:
    numbers = list(ranks)
    shown = ", ".join(map(str, numbers[:_MAX_SHOWN]))
    if len(numbers) > _MAX_SHOWN:
        return f"{shown} and {len(numbers) - _MAX_SHOWN:,} more"
    return shown
