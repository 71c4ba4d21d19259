"""NCCL in an export: its kernels, with what NCCL's and torch's NVTX ranges around their launch tell
of them.

A kernel's name tells one operation of many: NCCL runs all-to-all, gather and scatter as grouped
sends and receives, in kernels that are called ``SendRecv``. What was called is told by NCCL's own
ranges (``ncclGroupStart``, ``ncclSend`` …), with communicator, bytes and partner as their payload,
and by torch's (``nccl:all_to_all``), where they were recorded.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from torchscale.catalog.communication import is_known_op, op_of
from torchscale.features.trace.readers.columns import direction_of
from torchscale.features.trace.readers.nsys.nvtx import NvtxRange
from torchscale.features.trace.span import GROUPED_SEND_RECV, SEND_RECV

RANGES = ("nccl%",)
"""Texts of the ranges that are looked at, as patterns of SQL."""
ALL_TO_ALL = "all_to_all"
_API = re.compile(r"nccl([A-Z]\w*)")
_TORCH = re.compile(r"nccl[\w-]*:")
"""``nccl2:`` where torch uses its newer backend."""
_PEER = re.compile(r"nccl[\w-]*:(?:send \d+->|recv \d+<-)(\d{1,6})\b")
"""torch counts the ranks of the group here."""
_COMMUNICATOR, _PEER_RANK = "NCCL communicator ID", "Peer rank"
_SIZES = ("Message size [bytes]", "Bytes")
_CALLED_WITH_PARTS = ("all_gather", "reduce_scatter", ALL_TO_ALL, "gather", "scatter")
_BEGIN, _END = "GroupStart", "GroupEnd"
_MAX_NESTED = 8
"""Groups within groups: torch nests two. Each is gone through for itself, so that the calls within
deeper ones are not known."""
_NEIGHBOURS = 8
"""Ranges that can begin between the one around a launch and the launch: NCCL's nest two deep."""


@dataclass(frozen=True)
class NcclCall:
    """What is known of the operation that launched a kernel.

    Attributes:
        op: ``all_reduce`` …
        communicator: Id of the communicator, equal on all of its ranks; ``None`` where the
            recording lacks it.
        message_bytes: -1 where the recording lacks it.
        is_part: Whether they are one rank's part of the buffer, as NCCL is called with for
            all-gather, reduce-scatter and others; else they are the buffer.
        peer: Rank within the communicator that a send or receive concerns, -1 where it is not
            known.
        direction: 1 for a send, -1 for a receive, 0 for both, others and where it is not known.
        number: Number of the range around the launch, within the process.
    """

    op: str
    communicator: int | None = None
    message_bytes: int = -1
    is_part: bool = False
    peer: int = -1
    direction: int = 0
    number: int = -1


class _Operation(NamedTuple):
    """A call within a group, or alone."""

    name: str
    communicator: int | None
    size: int
    peer: int


class NcclCalls:
    """NCCL's calls of a process, by the thread that made them."""

    def __init__(self, ranges: Sequence[NvtxRange]) -> None:
        self._api: dict[int, _Ordered] = defaultdict(_Ordered)
        self._torch: dict[int, _Ordered] = defaultdict(_Ordered)
        for item in sorted(ranges, key=lambda item: (item.start, -item.end)):
            if _TORCH.match(item.text):
                self._torch[item.thread].add(item)
            elif _API.match(item.text):
                self._api[item.thread].add(item)
        threads = dict.fromkeys((*self._api, *self._torch))
        self._numbers = {thread: number << 32 for number, thread in enumerate(threads)}
        self._calls: dict[tuple[int, int, str | None], NcclCall | None] = {}

    def __bool__(self) -> bool:
        return bool(self._api or self._torch)

    def around(self, thread: int, moment: int, kernel: str) -> NcclCall | None:
        """What was called where a thread launched a kernel; ``None`` outside of NCCL.

        Args:
            thread: globalTid.
            moment: The launch, in nanoseconds of the export.
            kernel: Name of the kernel; empty for a copy, which names no operation.
        """
        call = self._api_call(thread, moment, kernel)
        place = None
        if thread in self._torch:
            place = self._torch[thread].around(moment)
        if place is None:
            return call
        text = self._torch[thread].ranges[place].text
        name = _TORCH.sub("", text, count=1).partition(",")[0]
        if not is_known_op(name):  # `coalesced`: NCCL's own ranges tell what
            return call
        op = op_of(name)
        call = replace(call or NcclCall(op, number=-2 - place - self._numbers[thread]), op=op)
        if op != SEND_RECV:
            return replace(call, peer=-1, direction=0)
        peer = _PEER.match(text)
        if peer is None:
            return replace(call, direction=call.direction or direction_of(name))
        return replace(call, peer=int(peer[1]), direction=direction_of(name))

    def _api_call(self, thread: int, moment: int, kernel: str) -> NcclCall | None:
        if thread not in self._api:
            return None
        ordered = self._api[thread]
        place = ordered.around(moment)
        if place is None:
            return None
        # A group of many calls can launch many kernels.
        wanted = op_of(kernel) if kernel else None
        key = thread, place, wanted
        if key not in self._calls:
            self._calls[key] = self._call_at(thread, place, wanted)
        return self._calls[key]

    def _call_at(self, thread: int, place: int, wanted: str | None) -> NcclCall | None:
        """What the range at ``place`` calls; of a group, what is called as the kernel is."""
        ordered = self._api[thread]
        name = _name(ordered.ranges[place])
        operations = (
            ordered.group_before(place) if name == _END else [_operation(ordered.ranges[place])]
        )
        number = self._numbers[thread] + place
        if name != _END and not is_known_op(name):
            return None  # ncclCommInitRank and the like
        chosen = [one for one in operations if wanted in (None, op_of(one.name))]
        messages = [one for one in chosen if op_of(one.name) == SEND_RECV]
        if messages:
            return replace(_message_call(messages), number=number)
        if not chosen:
            # From 2.28 on NCCL has all-to-all, gather and scatter as calls; their kernels are
            # SendRecv all the same.
            chosen = [
                one for one in operations if wanted == SEND_RECV and op_of(one.name) != SEND_RECV
            ]
        if not chosen:
            return NcclCall(wanted or SEND_RECV, number=number)
        sizes = {one.size for one in chosen}
        # Of several operations in one group, which kernel ran which is known only where they are
        # alike.
        size = -1
        if len(sizes) == 1:
            size = sizes.pop()
        op = op_of(chosen[0].name)
        return NcclCall(op, _common(chosen), size, is_part=op in _CALLED_WITH_PARTS, number=number)


class _Ordered:
    """Ranges of one thread by their start."""

    def __init__(self) -> None:
        self.ranges: list[NvtxRange] = []
        self._starts: list[int] = []

    def add(self, item: NvtxRange) -> None:
        """The next one."""
        self.ranges.append(item)
        self._starts.append(item.start)

    @cached_property
    def _begins(self) -> dict[int, int]:
        """End of a group → its begin, by their places."""
        begins: dict[int, int] = {}
        open_groups: list[int] = []
        for place, item in enumerate(self.ranges):
            name = _name(item)
            if name == _BEGIN:
                open_groups.append(place)
            elif name == _END and open_groups:
                begin = open_groups.pop()
                if len(open_groups) < _MAX_NESTED:
                    begins[place] = begin
        return begins

    def group_before(self, end: int) -> list[_Operation]:
        """The calls of the group that the range at ``end`` closes, the last first; none where its
        begin was not recorded, and others may be missing too."""
        places = range(end - 1, self._begins.get(end, end), -1)
        inside = (self.ranges[place] for place in places)
        return [_operation(item) for item in inside if is_known_op(_name(item))]

    def around(self, moment: int) -> int | None:
        """Place of the innermost range that ``moment`` lies in."""
        last = bisect_right(self._starts, moment) - 1
        for place in range(last, max(-1, last - _NEIGHBOURS), -1):
            if self.ranges[place].end >= moment:
                return place
        return None


def _name(item: NvtxRange) -> str:
    match = _API.match(item.text)
    if match is None:
        return ""
    return match[1]


def _operation(item: NvtxRange) -> _Operation:
    sizes = [item.payload[name] for name in _SIZES if name in item.payload]
    return _Operation(
        _name(item),
        item.payload.get(_COMMUNICATOR),
        sizes[0] if sizes else -1,
        item.payload.get(_PEER_RANK, -1),
    )


def _common(operations: Sequence[_Operation]) -> int | None:
    """The communicator of all of them."""
    communicators = {one.communicator for one in operations}
    if len(communicators) == 1:
        return communicators.pop()
    return None


def _message_call(messages: Sequence[_Operation]) -> NcclCall:
    """Sends and receives of one group. They are an all-to-all where a rank sends to every rank of
    the communicator and to itself, which the stages of a pipeline never do."""
    sends = [one for one in messages if one.name.startswith("Send")]
    receives = [one for one in messages if not one.name.startswith("Send")]
    communicator = _common(messages)
    sizes = [one.size for one in sends or receives]
    size = sum(sizes)
    if -1 in sizes:
        size = -1
    if len(sends) > 1 and len(sends) == len(receives):
        peers = [sorted(one.peer for one in side) for side in (sends, receives)]
        if peers[0] == peers[1] == list(range(len(sends))):
            return NcclCall(ALL_TO_ALL, communicator, size)
        if peers[0][0] < 0:
            return NcclCall(GROUPED_SEND_RECV, communicator, size)
    if len({one.peer for one in messages}) > 1:
        return NcclCall(SEND_RECV, communicator, size)
    direction = (not receives) - (not sends)
    return NcclCall(SEND_RECV, communicator, size, peer=messages[0].peer, direction=direction)


def like_the_others(calls: Sequence[NcclCall | None]) -> str | None:
    """The operation of the ``SendRecv`` kernels of a process whose launch was not recorded: that of
    the others, where they all are of one; else ``None``."""
    ops = Counter(call.op for call in calls if call is not None)
    if len(ops) == 1:
        return next(iter(ops))
    return None
