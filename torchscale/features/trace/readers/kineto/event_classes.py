"""What an event of a trace is: a class of spans, one that is kept by itself, or of no use."""

from __future__ import annotations

from typing import NamedTuple

from torchscale.catalog.communication import communicates, is_communication_operator
from torchscale.features.trace.readers.columns import NameTable
from torchscale.features.trace.readers.kineto import categories
from torchscale.features.trace.readers.kineto.kept import GLOO_PREFIX, STEP, Kept, KeptEvents
from torchscale.features.trace.readers.kineto.processes import device_of, label_of
from torchscale.features.trace.span import SpanCopyKind, SpanKind

_READBACKS = {"aten::_local_scalar_dense"}
_COPIES = {
    "Memcpy HtoD (Pageable": SpanCopyKind.HOST_TO_DEVICE_PAGEABLE,
    "Memcpy HtoD": SpanCopyKind.HOST_TO_DEVICE,
    "Memcpy DtoH (Device -> Pageable": SpanCopyKind.DEVICE_TO_HOST_PAGEABLE,
    "Memcpy DtoH": SpanCopyKind.DEVICE_TO_HOST,
    "Memcpy DtoD": SpanCopyKind.WITHIN_DEVICE,
    "Memcpy PtoP": SpanCopyKind.BETWEEN_DEVICES,
    "Memset": SpanCopyKind.FILL,
    "CopyHostToDevice": SpanCopyKind.HOST_TO_DEVICE_UNKNOWN,
    "CopyDeviceToHost": SpanCopyKind.DEVICE_TO_HOST_UNKNOWN,
    "CopyDeviceToDevice": SpanCopyKind.WITHIN_DEVICE,
    "CopyPeerToPeer": SpanCopyKind.BETWEEN_DEVICES,
}
"""The first prefix that fits decides: the longer one stands before the shorter."""
_MEMORY = "[memory]"


class SpanClass(NamedTuple):
    """What the spans of one category, name and process have in common: kind, index of the name,
    kind of copy, device, place of the process."""

    kind: SpanKind
    name: int
    detail: SpanCopyKind
    device: int
    process: int


EventClass = SpanClass | Kept | None
"""A class of spans, events that are kept one by one, or events of no use."""
_UNUSED = -1
"""Code of events of no use."""
FIRST_KEPT = 1 << 30
"""Codes from here on are of events that are kept one by one, below of classes of spans."""


class EventClasses:
    """The classes of the events of a trace, each with a code of its own.

    Attributes:
        names: Names of spans.
        processes: Label of a rank in the file → what is kept of it.
        spans: Classes of spans, by code.
        kept: Events that are kept one by one, by code above :data:`FIRST_KEPT`.
        hosts: Codes of the host's spans → the rank and the process.
        unread: Code → category of events that may matter and are not read.
        communicating: Names of operators that communicate.
        is_old: Whether a category has a name that old versions gave it.
        has_launches: Whether the host handed work to a device.
    """

    def __init__(self) -> None:
        self.names = NameTable()
        self.processes: dict[str, KeptEvents] = {}
        self.spans: list[SpanClass] = []
        self.kept: list[tuple[Kept, KeptEvents]] = []
        self.hosts: dict[int, tuple[KeptEvents, int | str]] = {}
        self.unread: dict[int, str] = {}
        self.communicating: set[int] = set()
        self.is_old = False
        self.has_launches = False

    def code_of(
        self, phase: str, category: str, name: str, pid: int | str, shapes: str = ""
    ) -> int:
        """The code of the class that events of this phase, category, name, process and shapes are
        of."""
        if phase == "i" and name == _MEMORY:
            process = self._process_of(pid)
            event_class: EventClass = Kept.MEMORY
        elif phase == "X":
            if category in categories.OLD:
                self.is_old = True
            process = self._process_of(pid)
            event_class = self._classify(category, name, shapes, pid)
        else:
            return _UNUSED
        if event_class is None and phase == "X" and categories.is_unread(category):
            return self._unread_code(category)
        if event_class is None:
            return _UNUSED
        if isinstance(event_class, Kept):
            self.kept.append((event_class, process))
            return FIRST_KEPT + len(self.kept) - 1
        self.spans.append(event_class)
        if event_class.device == categories.HOST:
            self.hosts[len(self.spans) - 1] = process, pid
        return len(self.spans) - 1

    def _unread_code(self, category: str) -> int:
        for code, known in self.unread.items():
            if known == category:
                return code
        code = _UNUSED - 1 - len(self.unread)
        self.unread[code] = category
        return code

    def _process_of(self, pid: int | str) -> KeptEvents:
        """The rank that a process is of: the one of the file, unless that puts names of ranks
        before the numbers of processes."""
        label = label_of(pid)
        return self.processes.setdefault(label, KeptEvents(label))

    def _classify(self, category: str, name: str, shapes: str, pid: int | str) -> EventClass:
        process = self._process_of(pid)
        old, category = category in categories.OLD, categories.OLD.get(category, category)
        if categories.is_copy(category, name):
            process.on_device = True
            detail = next(
                (kind for prefix, kind in _COPIES.items() if name.startswith(prefix)),
                SpanCopyKind.OTHER,
            )
            return self._span(SpanKind.COPY, name, pid, detail, device_of(pid))
        if category in categories.KERNELS:
            process.on_device = True
            if communicates(name):
                return Kept.COMMUNICATION_KERNEL
            return self._span(SpanKind.COMPUTE, name, pid, device=device_of(pid))
        if categories.is_driver(category):
            return self._classify_driver_call(name, pid)
        if category == "cpu_op":
            annotation = self._classify_annotation(name, pid) if old else None
            return annotation or self._classify_operator(name, shapes, pid)
        if category == "user_annotation":
            return self._classify_annotation(name, pid)
        if not category:
            return Kept.UNTITLED
        return None

    def _classify_operator(self, name: str, shapes: str, pid: int | str) -> EventClass:
        if name.startswith("c10d::"):
            return Kept.GLOO_CALL
        kind = SpanKind.OPERATOR
        if name in _READBACKS:
            kind = SpanKind.READBACK
        found = self._span(kind, f"{name} {shapes}".rstrip(), pid)
        if is_communication_operator(name):
            self.communicating.add(found.name)
        return found

    def _classify_driver_call(self, name: str, pid: int | str) -> EventClass:
        if categories.is_host_wait(name):
            return self._span(SpanKind.HOST_SYNC, name, pid)
        if categories.is_launch(name):
            self.has_launches = True
            return self._span(SpanKind.LAUNCH, name, pid)
        return None

    def _classify_annotation(self, name: str, pid: int | str) -> EventClass:
        if name.startswith(GLOO_PREFIX):
            return Kept.GLOO_COMPLETION
        if STEP.match(name):
            return Kept.STEP
        if name.startswith("enumerate(DataLoader)") or name == "torchscale.data_wait":
            return self._span(SpanKind.INPUT, name, pid)
        if name == "torchscale.gc":
            return self._span(SpanKind.PAUSE, name, pid)
        return None

    def _span(
        self,
        kind: SpanKind,
        name: str,
        pid: int | str,
        detail: SpanCopyKind = SpanCopyKind.OTHER,
        device: int = categories.HOST,
    ) -> SpanClass:
        place = list(self.processes).index(label_of(pid))
        return SpanClass(kind, self.names.number(name), detail, device, place)
