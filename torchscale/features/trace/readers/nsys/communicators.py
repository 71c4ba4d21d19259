"""NCCL's communicators over all processes of a recording: who is in each, so that operations become
collectives of groups of ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchscale.catalog.communication import op_of
from torchscale.features.trace.readers.columns import CollectiveRow, make_collectives
from torchscale.features.trace.readers.nsys.nccl import NcclCall, like_the_others
from torchscale.features.trace.readers.soundness import whole_number
from torchscale.features.trace.span import (
    GROUPED_SEND_RECV,
    SEND_RECV,
    UNRECORDED_LAUNCH,
    RankTrace,
)


@dataclass(frozen=True)
class NcclSpan:
    """A kernel of NCCL, or the copies that it launched in the place of one; times in nanoseconds.

    Attributes:
        start, end: When it ran.
        name: Name of the kernel; of copies, the operation.
        stream: It ran on.
        link: Correlates it with its launch.
        step: The step that launched it; -1 where none did.
        call: What was called there; ``None`` where NCCL's ranges do not tell.
        is_launched: Whether the launch was recorded.
    """

    start: int
    end: int
    name: str
    stream: int
    link: int
    step: int
    call: NcclCall | None
    is_launched: bool


@dataclass(frozen=True)
class ExportedRank:
    """A rank as its export tells of it.

    Attributes:
        trace: All but the collectives of NCCL.
        communication: Collectives of NCCL.
        lacks_payloads: Whether NCCL attached values to its ranges that were not exported.
    """

    trace: RankTrace
    communication: tuple[NcclSpan, ...] = ()
    lacks_payloads: bool = False


class Communicators:
    """Which ranks use each communicator."""

    def __init__(self, processes: Sequence[ExportedRank]) -> None:
        members: dict[int, set[int]] = defaultdict(set)
        for process in processes:
            for span in process.communication:
                if span.call is not None and span.call.communicator is not None:
                    members[span.call.communicator].add(process.trace.rank)
        self._members = {communicator: sorted(ranks) for communicator, ranks in members.items()}
        self._processes = processes

    @property
    def notes(self) -> list[str]:
        """What a reader of the figures should know."""
        sources = dict.fromkeys(
            process.trace.source for process in self._processes if process.lacks_payloads
        )
        if not sources:
            return []
        return [
            f"{', '.join(sources)}: exported without what NCCL says of its operations, so that "
            "sizes and process groups are not known; export the .nsys-rep with --include-blobs=true"
        ]

    def trace(self, process: ExportedRank) -> RankTrace:
        """The rank with its collectives."""
        if not process.communication:
            return process.trace
        others = [span.call for span in process.communication if op_of(span.name) == SEND_RECV]
        stand_in = like_the_others(others)
        knows_groups = any(
            one.call is not None and one.call.communicator is not None
            for one in process.communication
        )
        rows = [
            self._row(span, stand_in, knows_groups=knows_groups) for span in process.communication
        ]
        return replace(process.trace, collectives=make_collectives(rows))

    def _row(self, span: NcclSpan, stand_in: str | None, *, knows_groups: bool) -> CollectiveRow:
        call = span.call
        if call is None:
            op = op_of(span.name)
            if op == SEND_RECV and stand_in is not None:
                op = stand_in
            group = ""
            if knows_groups and not span.is_launched:
                group = UNRECORDED_LAUNCH
            call = NcclCall(op)
        else:
            group = ""
            if call.communicator is not None:
                group = f"communicator {call.communicator & _MASK:016x}"
        return CollectiveRow(
            span.start,
            span.end,
            call.op,
            group,
            self._payload(call),
            -1,
            span.stream,
            self._global_rank(call),
            call.direction,
            step=span.step,
            queue=span.stream,
            link=span.link,
        )

    def _payload(self, call: NcclCall) -> int:
        """Bytes as nccl-tests counts them."""
        if call.message_bytes < 0:
            return -1
        if not call.is_part:
            return whole_number(call.message_bytes)
        if call.communicator is None:
            return -1
        return whole_number(call.message_bytes * len(self._members[call.communicator]))

    def _global_rank(self, call: NcclCall) -> int:
        """Global rank of the partner, -1 where it is not known: torch numbers the ranks of a group
        in their global order."""
        if (
            call.peer < 0
            or call.communicator is None
            or call.op not in (SEND_RECV, GROUPED_SEND_RECV)
        ):
            return -1
        members = self._members[call.communicator]
        if call.peer < len(members):
            return members[call.peer]
        return -1


_MASK = (1 << 64) - 1
