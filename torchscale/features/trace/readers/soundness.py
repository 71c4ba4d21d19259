"""Whether what was read can be a recording: a damaged file must not become a figure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from torchscale.errors import TraceError
from torchscale.features.trace.span import RankTrace, Spans, Steps

MAX_NS = 1 << 61
"""Largest time, in nanoseconds, in a recording: the year 2043. Sums of a time and a length stay
below 2**63."""
_LONGEST_NS = 30 * 86_400 * 10**9
"""30 days: no profiler records for so long."""
_MAX_RANKS = 10**9
"""More ranks than any machine has."""
_FEW = 0.01
"""Share of spans with impossible times that are left out, with a note; with more the recording is
refused. Profilers write such a span now and then, when they convert the device's clock."""
_MOST_OVERLAP = 1.5
"""Steps follow each other: together they are as long as the time that they cover, or shorter."""
_HINT = "record it again, or leave this file out"


def sound(trace: RankTrace, unnamed: int) -> tuple[RankTrace, tuple[str, ...]]:
    """A rank's trace without spans that cannot be, and notes on what was left out or not
    understood.

    Args:
        trace: The trace as it was read; the ends of spans may lie before their starts.
        unnamed: The rank of a trace that names none.

    Raises:
        TraceError: its rank or number of ranks cannot be, too many times cannot be, or its steps
            overlap.
    """
    _check_rank(trace, unnamed)
    spans, notes = _sound_spans(trace)
    _check_times(trace.source, "collective", trace.collectives.start, trace.collectives.end, spans)
    _check_times(trace.source, "step", trace.steps.start, trace.steps.end, spans)
    _check_steps(trace.source, trace.steps)
    return replace(trace, spans=spans), (*trace.notes, *notes)


def bounded_ns(value: float) -> int:
    """Microseconds as nanoseconds, cut to what :func:`sound` refuses anyway."""
    limit = MAX_NS / 1000
    return round(min(max(value, -limit), limit) * 1000)


def whole_number(value: int, missing: int = -1) -> int:
    """``value`` if it fits 62 bits and sign, else ``missing``."""
    if -MAX_NS < value < MAX_NS:
        return value
    return missing


def _check_rank(trace: RankTrace, unnamed: int) -> None:
    rank, size = trace.rank, trace.world_size
    if size is not None and not 1 <= size <= _MAX_RANKS:
        raise TraceError(
            f"{trace.source}: it says that {_shown(size)} ranks ran; expected 1 or more", hint=_HINT
        )
    bound, of = _MAX_RANKS, ""
    if size is not None:
        bound, of = size, f" of {size:,} ranks (0 to {size - 1:,})"
    if rank != unnamed and not 0 <= rank < bound:
        raise TraceError(
            f"{trace.source}: it says that it was recorded by rank {_shown(rank)}{of}", hint=_HINT
        )


def _sound_spans(trace: RankTrace) -> tuple[Spans, tuple[str, ...]]:
    spans = trace.spans
    if not len(spans):
        return spans, ()
    possible = _possible(spans.start, spans.end) & (spans.end >= spans.start)
    if possible.any():
        middle = int(np.median(spans.start[possible]))
        possible &= (np.abs(spans.start - middle) < _LONGEST_NS) & (
            np.abs(spans.end - middle) < _LONGEST_NS
        )
    wrong = len(spans) - int(possible.sum())
    if not wrong:
        return spans, ()
    what = (
        f"{wrong:,} of {len(spans):,} spans end before they start, or at a time that no recording "
        "has"
    )
    if wrong > max(1, _FEW * len(spans)):
        raise TraceError(f"{trace.source}: {what}; the file is damaged", hint=_HINT)
    return spans.only(possible), (f"{trace.source}: {what}; left out",)


def _check_times(
    source: str, what: str, start: NDArray[np.int64], end: NDArray[np.int64], spans: Spans
) -> None:
    """Collectives and steps are counted and paired: none can be left out."""
    if not len(start):
        return
    possible = _possible(start, end) & (end >= start)
    middle = int(np.median(spans.start if len(spans) else start))
    possible &= (np.abs(start - middle) < _LONGEST_NS) & (np.abs(end - middle) < _LONGEST_NS)
    if not possible.all():
        first = int(np.flatnonzero(~possible)[0])
        raise TraceError(
            f"{source}: {what} {first + 1} of {len(start):,} ends before it starts, or at a time "
            "that no recording has"
            "; the file is damaged",
            hint=_HINT,
        )


def _check_steps(source: str, steps: Steps) -> None:
    if len(steps) < 2:
        return
    together, covered = (
        int((steps.end - steps.start).sum()),
        int(steps.end.max() - steps.start.min()),
    )
    if together > _MOST_OVERLAP * covered:
        raise TraceError(
            f"{source}: its {len(steps)} steps overlap: {together / 1e9:.4g} s of steps in "
            f"{covered / 1e9:.4g} s",
            hint=_HINT,
        )


def _possible(start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.bool_]:
    return (start > -MAX_NS) & (start < MAX_NS) & (end > -MAX_NS) & (end < MAX_NS)


def _shown(number: int) -> str:
    """A number of any size: Python refuses to print those of more than 4,300 digits."""
    if abs(number) < 10**15:
        return f"{number:,}"
    if number > 0:
        return "over 10^15"
    return "below -10^15"
