"""Work of a device in a recording: kernels and copies in blocks, and what the gaps between them
are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.stats.intervals import IntervalSet
from torchscale.features.trace.analysis.windows import RankWindow
from torchscale.features.trace.span import SpanKind

WAITED_NS = 3_000
"""From one kernel to the next a device takes one to two microseconds: a collective that ends later
than this within a gap was waited for."""
ROUNDING_NS = 1_000
"""What follows something may be recorded as if it began so much before the other ended: times are
converted from the device's clock."""
_LAUNCH_NS = 5_000
"""From the call that launches a kernel to its start on an idle device, where no launch shows it."""

Times = NDArray[np.int64]


class DeviceWork:
    """The work of one rank's device within its window.

    Attributes:
        start, end: Of each kernel and copy, by start.
        called: When the host called what launched it; -1 where that was not recorded.
        host_known: Whether it can be told when the host would have launched.
        blocks: Work without gaps.
        calls: Places of the collectives that start in the window.
        calls_of: Place of a collective → when the host called what launched it.
        by_end: Places of the collectives by when they ended.
        before: When the gap before each block began.
        waits: Whether the gap before a block is a wait for a collective.
        late: Whether it is one for a late launch.
        delay: From a late launch to the start of its work.
        gap_of: Start of a block → its number.
    """

    def __init__(self, rank: RankWindow) -> None:
        self._rank = rank
        spans, collectives = rank.trace.spans, rank.trace.collectives
        work = (
            spans.of(SpanKind.COMPUTE, SpanKind.COPY)
            & (spans.end > rank.start)
            & (spans.start < rank.end)
        )
        order = np.flatnonzero(work)[np.argsort(spans.start[work], kind="stable")]
        self.start, self.end = (
            spans.start[order],
            np.maximum(spans.end[order], spans.start[order]),
        )
        self.called = self._launched(spans.link[order])
        self.host_known = bool(spans.of(SpanKind.HOST_SYNC).any()) and bool(
            (self.called >= 0).any()
        )
        self.blocks = IntervalSet(self.start, self.end)
        inside = (collectives.start >= rank.start) & (collectives.start < rank.end)
        self.calls = np.flatnonzero(inside)
        self.calls_of = dict(
            zip(
                self.calls.tolist(),
                self._launched(collectives.link[self.calls]).tolist(),
                strict=True,
            )
        )
        self.by_end = self.calls[np.argsort(collectives.end[self.calls], kind="stable")]
        self._classify()

    def _launched(self, links: Times) -> Times:
        """When the host called what launched the work with these correlation ids; -1 where that was
        not recorded."""
        spans = self._rank.trace.spans
        launches = spans.of(SpanKind.LAUNCH) & (spans.link != 0)
        if not launches.any() or not len(links):
            return np.full(len(links), -1, dtype=np.int64)
        known, first = np.unique(spans.link[launches], return_index=True)
        place = np.minimum(np.searchsorted(known, links), len(known) - 1)
        called = spans.start[launches][first][place]
        return np.where((known[place] == links) & (links != 0), called, -1)

    def _classify(self) -> None:
        """What the gaps before blocks of kernels are: waits for collectives, late launches, or the
        device's own."""
        begins, ends = self.blocks.start, self.blocks.end
        before = np.minimum(begins, np.concatenate([[self._rank.start], ends])[: len(begins)])
        first = np.searchsorted(self.start, begins)
        called = self.called[first] if len(first) else self.called[:0]
        over = np.sort(self._rank.trace.collectives.end[self.calls])
        place = np.searchsorted(over, begins + ROUNDING_NS, side="right") - 1
        last_end = over[np.maximum(place, 0)] if len(over) else np.full(len(begins), -1)
        late = (called >= 0) & (called > before)
        self.waits = last_end > before + WAITED_NS
        if self.host_known:
            self.waits &= ~(called > last_end)
        self.late = late & ~self.waits & self.host_known
        own = begins - before - sum(self.idle(before, begins))
        own[self.waits | self.late] = 0
        self.before = before
        self._own_gaps = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(own)])
        delays = (begins - called)[self.late]
        self.delay = int(np.median(delays)) if len(delays) else _LAUNCH_NS
        self.gap_of = {int(begin): number for number, begin in enumerate(begins)}

    def idle(self, begin: Times, end: Times) -> tuple[Times, Times]:
        """Idle time for want of data, and for want of launches, where the device's line is replayed
        alone."""
        data, host = self._rank.input_wait, self._rank.host_bound
        none = np.zeros(len(begin), dtype=np.int64)
        if self.host_known:
            return none, none
        if host is None:
            return data.within(begin, end), none
        return data.within(begin, end), host.minus(data).within(begin, end)

    def amount(self, times: Times) -> Times:
        """Work of the device until each time, with its own short gaps."""
        zero = np.zeros(len(times), dtype=np.int64)
        blocks = np.searchsorted(self.blocks.start, times, side="right")
        return np.asarray(self.blocks.within(zero, times) + self._own_gaps[blocks])
