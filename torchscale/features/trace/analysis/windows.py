"""One rank of a recording within the window that is analyzed, as unions of what it did."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.stats.intervals import IntervalSet, contains_any, outermost, union
from torchscale.config.choices import WindowChoice
from torchscale.errors import TraceError, UsageError
from torchscale.features.trace.span import RankTrace, SpanKind, Steps, Trace
from torchscale.schema.profiles.analysis import WindowKind

_STEP_RANGE = re.compile(r"(\d{0,15}):(\d{0,15})", re.ASCII)
NS = 1e-9
"""Seconds in a nanosecond."""
_MIN_HOST_GAP_NS = 500_000
"""On CPU: Python takes microseconds to some tens of them from one operator to the next; half a
millisecond is work of another kind (docs/diagnosis.md)."""


@dataclass
class RankWindow:
    """One rank's unions within its window.

    Attributes:
        trace: All that was recorded of it.
        start, end: The window, on the rank's own clock.
        steps: Steps in the window.
        compute: Kernels, or on CPU operators without communication in them.
        communication: Collectives, and copies from device to device in a job of several ranks.
        copies: Other copies by the device.
        waiting_for_data: Under the data loader's annotation.
        chosen: Which spans are compute.
    """

    trace: RankTrace
    start: int
    end: int
    steps: Steps
    compute: IntervalSet
    communication: IntervalSet
    copies: IntervalSet
    waiting_for_data: IntervalSet
    chosen: NDArray[np.bool_]

    @property
    def length(self) -> int:
        """Length of the window in nanoseconds."""
        return self.end - self.start

    @cached_property
    def exposed(self) -> IntervalSet:
        """Communication that no compute hides."""
        return self.communication.minus(self.compute)

    @cached_property
    def exposed_copies(self) -> IntervalSet:
        """Copies and fills that neither compute nor communication hides."""
        return self.copies.minus(union([self.compute, self.communication]))

    @cached_property
    def gaps(self) -> IntervalSet:
        """Idle: neither compute nor communication nor copies."""
        whole = IntervalSet(np.array([self.start]), np.array([self.end]))
        return whole.minus(union([self.compute, self.communication, self.copies]))

    @cached_property
    def input_wait(self) -> IntervalSet:
        """Time waiting for input. On CPU it is the whole call of the loader; on a device, the part
        of it that leaves the device idle."""
        if not self.trace.on_device:
            return self.waiting_for_data
        return self.waiting_for_data.minus(union([self.compute, self.communication, self.copies]))

    @cached_property
    def host_bound(self) -> IntervalSet | None:
        """Gaps before device work whose launch call began after the gap did. On CPU, where the host
        is the device, gaps longer than Python takes from one operator to the next; ``None`` where
        launches were not recorded."""
        gaps = self.gaps
        if not self.trace.on_device:
            long = gaps.end - gaps.start >= _MIN_HOST_GAP_NS
            return IntervalSet(gaps.start[long], gaps.end[long])
        return _launched_late(self.trace, gaps)


@dataclass(frozen=True)
class StepRange:
    """Numbers of steps, the first and the last included; ``None`` for no bound."""

    first: int | None
    last: int | None

    @classmethod
    def parse(cls, text: str) -> StepRange:
        """Steps from ``A:B``, ``A:`` or ``:B``.

        Raises:
            UsageError: it is none of these, or names no step.
        """
        match = _STEP_RANGE.fullmatch(text.strip())
        if match is not None:
            first, last = (int(digits) if digits else None for digits in match.groups())
            if first is None or last is None or first <= last:
                return cls(first, last)
        raise UsageError(
            f"--steps {text}: not a range of steps", hint="write the first and the last: 100:150"
        )

    def __contains__(self, number: int) -> bool:
        after = self.first is None or number >= self.first
        return after and (self.last is None or number <= self.last)

    def __str__(self) -> str:
        ends = ("" if end is None else str(end) for end in (self.first, self.last))
        return ":".join(ends)


def choose_window(
    trace: Trace, choice: WindowChoice, wanted: StepRange | None = None
) -> tuple[WindowKind, list[int], bool]:
    """The window's kind, the numbers of its steps, and whether the first recorded step was left
    out.

    Raises:
        TraceError: it has no step that all ranks share although steps are asked for, or none of
            those that are ``wanted``.
    """
    recorded = [{int(number) for number in rank.steps.number} for rank in trace.ranks]
    common = sorted(set.intersection(*recorded)) if recorded else []
    if wanted is not None:
        return _wanted_window(common, choice, wanted)
    if choice is WindowChoice.STEPS and not common:
        raise TraceError(
            "the recording has no step that all ranks share", hint="use --window device"
        )
    if choice is WindowChoice.DEVICE or not common:
        return WindowKind.DEVICE_SPAN, [], False
    if len(common) > 1:
        return WindowKind.STEPS, common[1:], True
    return WindowKind.STEPS, common, False


def _wanted_window(
    common: list[int], choice: WindowChoice, wanted: StepRange
) -> tuple[WindowKind, list[int], bool]:
    chosen = [number for number in common if number in wanted]
    if choice is WindowChoice.DEVICE:
        raise TraceError(
            f"--steps {wanted} asks for steps, --window device for all that was recorded",
            hint="leave one of them out",
        )
    if not chosen:
        which = f"those that all ranks share are {common[0]} to {common[-1]}" if common else "none"
        raise TraceError(
            f"--steps {wanted}: no such step was recorded by all ranks",
            hint=f"recorded steps: {which}",
        )
    # The first that was recorded carries the skew of the profiler's start.
    if chosen[0] == common[0] and len(chosen) > 1:
        return WindowKind.STEPS, chosen[1:], True
    return WindowKind.STEPS, chosen, chosen[0] != common[0]


def rank_windows(trace: Trace, kind: WindowKind, numbers: list[int]) -> list[RankWindow]:
    """Every rank within its window; ``numbers`` are the steps of it."""
    several = job_size(trace) > 1
    return [rank_window(rank, kind, numbers, is_one_of_several=several) for rank in trace.ranks]


def job_size(trace: Trace) -> int:
    """How many ranks the job has, as far as the recording tells."""
    return max([len(trace.ranks), *(rank.world_size or 1 for rank in trace.ranks)])


def rank_window(
    trace: RankTrace, kind: WindowKind, numbers: list[int], *, is_one_of_several: bool = False
) -> RankWindow:
    """A rank within its window; ``numbers`` are the steps of it. A rank that is one of several has
    one device, so that copies between devices are communication by its copy engines, which wait
    for nobody."""
    spans = trace.spans
    chosen = spans.of(SpanKind.COMPUTE) if trace.on_device else _host_work(trace)
    copies = spans.of(SpanKind.COPY)
    work = chosen | copies
    to_others = spans.between_devices & is_one_of_several
    in_window = np.isin(trace.steps.number, numbers)
    steps = Steps(
        trace.steps.start[in_window], trace.steps.end[in_window], trace.steps.number[in_window]
    )
    if kind is WindowKind.STEPS:
        start, end = int(steps.start.min()), int(steps.end.max())
    else:
        start = int(np.concatenate([spans.start[work], trace.collectives.start]).min())
        end = int(np.concatenate([spans.end[work], trace.collectives.end]).max())
    inputs = spans.of(SpanKind.INPUT)

    def cover(which: NDArray[np.bool_]) -> IntervalSet:
        return IntervalSet(spans.start[which], spans.end[which]).clipped(start, end)

    return RankWindow(
        trace=trace,
        start=start,
        end=end,
        steps=steps,
        compute=cover(chosen),
        communication=IntervalSet(
            np.concatenate([trace.collectives.start, spans.start[to_others]]),
            np.concatenate([trace.collectives.end, spans.end[to_others]]),
        ).clipped(start, end),
        copies=cover(copies & ~to_others),
        waiting_for_data=cover(inputs),
        chosen=chosen & (spans.end > start) & (spans.start < end),
    )


def step_periods(ranks: list[RankWindow]) -> NDArray[np.int64]:
    """Nanoseconds from the start of each step to the start of the next (the last: to the end of the
    window), one row per rank."""
    rows = []
    for rank in ranks:
        edges = np.append(rank.steps.start, rank.end)
        rows.append(np.diff(edges))
    return np.array(rows)


def _host_work(trace: RankTrace) -> NDArray[np.bool_]:
    """The operators that compute: all that hand nothing to the network, the outermost of them. An
    operator's time is not that of the operators it calls (a convolution asks for memory, then
    works), so the innermost would miss most."""
    spans, collectives = trace.spans, trace.collectives
    chosen = np.zeros(len(spans), dtype=bool)
    operators = np.flatnonzero(spans.of(SpanKind.OPERATOR, SpanKind.READBACK))
    start, end, lane = spans.start[operators], spans.end[operators], spans.lane[operators]
    quiet = operators[~contains_any(start, end, lane, collectives.start, collectives.lane)]
    chosen[quiet[outermost(spans.start[quiet], spans.end[quiet], spans.lane[quiet])]] = True
    return chosen


def _launched_late(trace: RankTrace, gaps: IntervalSet) -> IntervalSet | None:
    spans = trace.spans
    launches = spans.of(SpanKind.LAUNCH) & (spans.link != 0)
    work = (spans.of(SpanKind.COMPUTE, SpanKind.COPY)) & (spans.link != 0)
    if not launches.any():
        return None
    links, first = np.unique(spans.link[launches], return_index=True)
    called = spans.start[launches][first]
    starts, their_links = spans.start[work], spans.link[work]
    order = np.argsort(starts)
    starts, their_links = starts[order], their_links[order]
    place = np.minimum(np.searchsorted(starts, gaps.end), max(0, len(starts) - 1))
    if not len(starts):
        return None
    follows = starts[place] == gaps.end
    where = np.minimum(np.searchsorted(links, their_links[place]), len(links) - 1)
    has_launch = links[where] == their_links[place]
    late = follows & has_launch & (called[where] > gaps.start)
    return IntervalSet(gaps.start[late], gaps.end[late])
