"""Where the work of a device was launched, and what belongs to it: steps and calls of NCCL."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from torchscale.features.trace.readers.nsys import nccl
from torchscale.features.trace.readers.nsys.communicators import NcclSpan
from torchscale.features.trace.span import SpanKind, Spans, Steps


class Launches:
    """Where the work of a device was launched, by the correlation of launch and work."""

    def __init__(self, calls: Spans, steps: Steps) -> None:
        self._steps = steps
        launches = calls.of(SpanKind.LAUNCH) & (calls.link != 0)
        self._links, first = np.unique(calls.link[launches], return_index=True)
        self._called = calls.start[launches][first]
        self._threads = calls.lane[launches][first]

    def _places(self, links: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The launch of each, and whether it was recorded."""
        if not len(self._links):
            return np.zeros(len(links), dtype=np.int64), np.zeros(len(links), dtype=bool)
        places = np.minimum(np.searchsorted(self._links, links), len(self._links) - 1)
        return places, self._links[places] == links

    def steps_of(self, links: NDArray[np.int64]) -> list[int]:
        """Numbers of the steps whose range holds the launches: the device may run a kernel long
        after the host's range has ended. -1 where no range does, or the launch was not recorded."""
        numbers = np.full(len(links), -1, dtype=np.int64)
        places, recorded = self._places(links)
        numbers[recorded] = steps_at(self._called[places[recorded]], self._steps)
        return [int(number) for number in numbers]

    def calls_of(
        self, links_and_names: NDArray[np.int64], nccl_calls: nccl.NcclCalls, names: dict[int, str]
    ) -> list[nccl.NcclCall | None]:
        """NCCL's call around each launch; ``None`` outside of NCCL, or where the launch was not
        recorded."""
        places, recorded = self._places(links_and_names[:, 0])
        return [
            nccl_calls.around(
                int(self._threads[place]), int(self._called[place]), names.get(int(name), "")
            )
            if is_recorded
            else None
            for place, is_recorded, name in zip(
                places, recorded, links_and_names[:, 1], strict=True
            )
        ]

    def are_recorded(self, links: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each launch was recorded."""
        return self._places(links)[1]


def steps_at(moments: NDArray[np.int64], steps: Steps) -> NDArray[np.int64]:
    """Numbers of the steps that these moments lie in; -1 for none."""
    numbers = np.full(len(moments), -1, dtype=np.int64)
    if len(steps):
        place = np.maximum(np.searchsorted(steps.start, moments, side="right") - 1, 0)
        inside = (moments >= steps.start[place]) & (moments < steps.end[place])
        numbers[inside] = steps.number[place[inside]]
    return numbers


def copy_collectives(
    copies: list[Spans],
    launches: Launches,
    nccl_calls: nccl.NcclCalls,
    kernels: Sequence[NcclSpan],
) -> tuple[list[Spans], list[NcclSpan]]:
    """Copies that NCCL launched in the place of a kernel, as one collective a call, and the other
    copies. From 2.28 on it uses the copy engines where buffers are registered."""
    by_kernel = {kernel.call.number for kernel in kernels if kernel.call is not None}
    rest: list[Spans] = []
    found: dict[int, NcclSpan] = {}
    for part in copies:
        no_names = np.stack([part.link, np.zeros(len(part), dtype=np.int64)], axis=1)
        calls = launches.calls_of(no_names, nccl_calls, {})
        steps = launches.steps_of(part.link)
        is_collective = np.zeros(len(part), dtype=bool)
        for place, (call, step) in enumerate(zip(calls, steps, strict=True)):
            if call is None or call.number in by_kernel:
                continue
            is_collective[place] = True
            start, end = int(part.start[place]), int(part.end[place])
            known = found.get(call.number)
            if known is not None:
                start, end = min(start, known.start), max(end, known.end)
            lane, link = int(part.lane[place]), int(part.link[place])
            found[call.number] = NcclSpan(
                start, end, call.op, lane, link, step, call, is_launched=True
            )
        rest.append(part.only(~is_collective))
    return rest, list(found.values())
