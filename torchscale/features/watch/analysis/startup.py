"""How a job starts: where the time of each rank goes until its first step has ended, and what takes
too much of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from torchscale.analysis.stats.intervals import IntervalSet, union
from torchscale.features.watch.analysis.everyday.lines import place_of
from torchscale.features.watch.analysis.evidence import StartSamples
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.schema.watch.rank import RankStartup
from torchscale.schema.watch.start import PARTS, RankStart
from torchscale.util.units import format_seconds
from torchscale.util.words import capped

LEAST_LATE = 5.0
"""Seconds by which a rank is later than the others: the cache of files and the order in which ranks
come to a disk make some seconds of difference by chance."""
_LEAST_SEEN = 3.0
"""Seconds where a line of the program was seen for most of it, which takes the others next to
nothing, in a job that is short so far."""
_SEEN_TIMES, _SEEN_SHARE = 4.0, 0.05
"""How often the others' time its part is then, and of the job so far."""
_LATE_TIMES = 2.0
"""How often the others' time its part is: less is the spread of a disk that all ranks read at
once."""
_ALSO_LATE = 0.5
"""Of the longest delay, from which on another rank is late with it."""
_AWAITED = 0.5
"""Of the delay, that the others must have waited longer: they wait at once or do work of their own
meanwhile, and then the delay costs nothing."""
_SURELY_AWAITED = 0.8
LONG_START = 60.0
"""Seconds of a start that is worth a word: torch, a process group and a model of moderate size take
less."""
_MOST = 0.5
"""Of a start that one part takes on all ranks."""
_MOST_NAMED = 8
"""Ranks in a sentence."""
_WAITING = ("group", "first_step")
"""Parts in which a rank waits for others."""
_LEAST_SAMPLES = 10
"""Of a part, for its line to be told: half a second."""
_NS = 1e-9


@dataclass(frozen=True)
class StartPoints:
    """When a rank came to which point of its start; nanoseconds since the epoch.

    Attributes:
        began: Its process.
        first_end: Its first step had ended.
        startup: Points that it noted.
        first_call: Its first collective; ``None`` without.
        loads, compiles: When each load of a checkpoint, and each compilation, began and ended.
        samples: Where it was seen; ``None`` where nothing looked.
    """

    began: int
    first_end: int
    startup: RankStartup
    first_call: int | None = None
    loads: tuple[tuple[int, int], ...] = ()
    compiles: tuple[tuple[int, int], ...] = ()
    samples: StartSamples | None = None


def rank_start(rank: int, points: StartPoints) -> RankStart:
    """Seconds of each part. A point that was not seen leaves its part to the one after it."""
    noted, end = points.startup, points.first_end
    group, grouped = noted.group_ns, noted.grouped_ns
    if group is None or grouped is None or group >= end:
        group = grouped = None
    first_call = points.first_call
    if grouped is None or first_call is None or first_call >= end:
        first_call = None  # no collective of the start
    ends = {
        "imports": noted.imported_ns,
        "before_group": group,
        "group": grouped,
        "before_collective": first_call,
        "first_step": end,
    }
    loads, compiles = _spans(points.loads), _spans(points.compiles)
    loads = loads.clipped(points.began, end)
    compiles = compiles.clipped(points.began, end).minus(loads)
    named = union([loads, compiles])
    at = points.began
    spans = {"loading": loads, "compiling": compiles}
    for name, point in ends.items():
        until = at if point is None else min(max(at, point), max(at, end))
        spans[name] = _spans([(at, until)]).minus(named)
        at = until
    parts = {name: span.length * _NS for name, span in spans.items()}
    seen = {name: _place(points.samples, spans[name]) for name in PARTS if name not in _WAITING}
    places = {name: place for name, place in seen.items() if place}
    return RankStart(rank=rank, places=places, **parts)


def _place(samples: StartSamples | None, span: IntervalSet) -> str:
    """The line that most samples are at; empty where none has most."""
    lines = [] if samples is None else samples.within(span)
    if len(lines) < _LEAST_SAMPLES:
        return ""
    line, count = Counter(lines).most_common(1)[0]
    return place_of(line) if count > _MOST * len(lines) else ""


def _spans(pairs: Sequence[tuple[int, int]]) -> IntervalSet:
    times = np.array(pairs, np.int64).reshape(-1, 2)
    return IntervalSet(times[:, 0], times[:, 1])


def differs(starts: Sequence[RankStart]) -> bool:
    """Whether ranks take different times for a part of their start."""
    parts = [[one.part(name) for one in starts] for name in PARTS] if starts else []
    return any(max(seconds) - min(seconds) > LEAST_LATE for seconds in parts)


def slow_start(starts: Sequence[RankStart], seconds: float = math.inf) -> Finding | None:
    """A rank that the others wait for as the job starts, else a part that takes most of a long
    start on all ranks; ``None`` where neither is.

    Args:
        starts: Of all ranks.
        seconds: Of the job's steps so far.
    """
    if not starts:
        return None
    return _late_rank(starts, seconds) or _long_part(starts)


def _late_rank(starts: Sequence[RankStart], seconds: float) -> Finding | None:
    if len(starts) < 2:
        return None
    delays = [
        (late.part(name) - _of_others(starts, late, name), name, late)
        for name in PARTS
        if name not in _WAITING
        for late in starts
    ]
    delay, name, last = max(delays, key=lambda found: found[0])
    usual = last.part(name) - delay
    place = last.places.get(name, "")
    is_seen = bool(place) and delay > _SEEN_SHARE * seconds
    if delay < (_LEAST_SEEN if is_seen else LEAST_LATE):
        return None
    if last.part(name) < (_LATE_TIMES if delay >= LEAST_LATE else _SEEN_TIMES) * usual:
        return None
    late = [one for one in starts if one.part(name) - usual >= _ALSO_LATE * delay]
    in_time = [one for one in starts if one not in late]
    waited = median(map(_waiting, in_time)) - median(map(_waiting, late))
    if waited < _AWAITED * delay:
        return None
    who = f"rank {last.rank}"
    if len(late) > 1:
        ranks = [str(one.rank) for one in late]
        who = f"ranks {', '.join(capped(ranks, _MOST_NAMED))}"
    return Finding(
        kind=FindingKind.SLOW_START,
        rank=last.rank if len(late) == 1 else None,
        cost_percent=0.0,
        cost_seconds=0.0,
        confidence=Confidence.HIGH if waited >= _SURELY_AWAITED * delay else Confidence.MEDIUM,
        summary=f"as the job starts, once, the other ranks wait "
        f"{format_seconds(min(waited, delay), 2)} for {who}: {PARTS[name]} takes "
        f"{format_seconds(last.part(name), 2)} there and {format_seconds(usual, 2)} on the others",
        evidence=(
            f"the others wait {format_seconds(waited, 2)} longer in the process group and the "
            "first step",
        ),
        advice=f"look at {place} first; {_ADVICE_FOR_ONE[name]}"
        if place
        else _ADVICE_FOR_ONE[name],
    )


def _of_others(starts: Sequence[RankStart], late: RankStart, name: str) -> float:
    return float(median(one.part(name) for one in starts if one is not late))


def _waiting(start: RankStart) -> float:
    return sum(start.part(name) for name in _WAITING)


def _long_part(starts: Sequence[RankStart]) -> Finding | None:
    if min(one.total for one in starts) < LONG_START:
        return None
    shares = {name: min(one.part(name) / one.total for one in starts) for name in PARTS}
    name = max(shares, key=lambda part: shares[part])
    if shares[name] < _MOST:
        return None
    seconds, total = (
        float(median(one.part(name) for one in starts)),
        float(median(one.total for one in starts)),
    )
    return Finding(
        kind=FindingKind.SLOW_START,
        cost_percent=0.0,
        cost_seconds=0.0,
        confidence=Confidence.HIGH,
        summary=f"the start takes {format_seconds(total, 2)} on all ranks, once, and "
        f"{format_seconds(seconds, 2)} of it is one part: {PARTS[name]}",
        evidence=(f"{PARTS[name]} is at least {shares[name]:.0%} of the start of each rank",),
        advice=_ADVICE_FOR_ALL[name],
    )


_ADVICE_FOR_ONE = {
    "imports": "compare where this rank's Python environment lies with the others': a network file "
    "system or a cold cache makes imports slow",
    "before_group": "look at what this rank alone does before init_process_group, such as "
    "preparing a data set, and do it on all ranks or before the job",
    "before_collective": "look at what this rank alone does after init_process_group, such as "
    "preparing a data set or building the model, and do it on all ranks or before the job",
    "loading": "load the checkpoint on all ranks at once or from a local copy; compare the disk of "
    "this rank with the others'",
    "compiling": "have all ranks share a compile cache (TORCHINDUCTOR_CACHE_DIR), and compare this "
    "rank's graph breaks and shapes with the others'",
}
_ADVICE_FOR_ALL = {
    "imports": "put the Python environment on a local disk, or into the image of the container",
    "before_group": "look at what the program does before init_process_group: prepare data sets "
    "once, before the job",
    "group": "look at the rendezvous: the name and port of the first host, its firewall, and the "
    "interface that the backend picks",
    "before_collective": "look at what the program does between init_process_group and its first "
    "collective: prepare data sets once, before the job, and build the model on its device",
    "loading": "load checkpoints in parallel (torch.distributed.checkpoint), with mmap=True, or "
    "from a local copy",
    "compiling": "keep the compile cache between runs (TORCHINDUCTOR_CACHE_DIR on a disk that "
    "stays), or compile repeated blocks alone",
    "first_step": "look at what comes with the first step: the first batch of the data loader, and "
    "the set-up of collectives and kernels",
}
