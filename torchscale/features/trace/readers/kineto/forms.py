"""What the events and the header of a trace look like, and how they are decoded.

Text that is a number is the number: ROCm writes bytes so, Ascend times. Any other field of another
type than torch writes is unknown for its event alone, and counted; only times, and what says which
rank it is, have to be right.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import msgspec

from torchscale.schema.profiles.recording import CPU_INFO_KEY
from torchscale.util.lenient import read_fields


class EventArgs(msgspec.Struct, gc=False):
    """The arguments of an event that are used; the others are skipped over."""

    correlation: int = 0
    external: int = msgspec.field(name="External id", default=0)
    device: int = -1
    task_type: str = msgspec.field(name="Task Type", default="")
    dtype: str = ""
    in_elements: int = msgspec.field(name="In msg nelems", default=-1)
    out_elements: int = msgspec.field(name="Out msg nelems", default=-1)
    group: str = msgspec.field(name="Process Group Name", default="")
    sequence: int = msgspec.field(name="Seq", default=-1)
    collective: str = msgspec.field(name="Collective name", default="")
    size: int = msgspec.field(name="bytes", default=-1)
    allocated: int = msgspec.field(name="Total Allocated", default=-1)
    device_type: int = msgspec.field(name="Device Type", default=-1)
    group_ranks: msgspec.Raw = msgspec.field(
        name="Process Group Ranks", default_factory=msgspec.Raw
    )
    source: msgspec.Raw = msgspec.field(name="Src Rank", default_factory=msgspec.Raw)
    target: msgspec.Raw = msgspec.field(name="Dst Rank", default_factory=msgspec.Raw)
    values: msgspec.Raw = msgspec.field(name="Concrete Inputs", default_factory=msgspec.Raw)
    shapes: msgspec.Raw = msgspec.field(name="Input Dims", default_factory=msgspec.Raw)
    types: msgspec.Raw = msgspec.field(name="Input type", default_factory=msgspec.Raw)


NO_ARGS = EventArgs()
"""Arguments of an event without arguments."""


class Event(msgspec.Struct, gc=False):
    """An event of the trace."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = 0.0
    dur: float = 0.0
    args: EventArgs | None = None


class DistributedInfo(msgspec.Struct):
    """What the process group said of itself."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    group_list: msgspec.Raw = msgspec.field(name="pg_config", default_factory=msgspec.Raw)

    @property
    def groups(self) -> list[frozenset[int]]:
        """Ranks of the process groups that it lists; none where it lists none in a known form."""
        if not bytes(self.group_list):
            return []
        try:
            groups = _decode_groups(self.group_list)
        except msgspec.DecodeError:
            return []
        return [frozenset(group.ranks) for group in groups]


class _Group(msgspec.Struct):
    """A process group; others of its fields are skipped over."""

    ranks: list[int] = []


class CpuInfo(msgspec.Struct):
    """What torchscale adds about the CPUs of the process."""

    threads: int
    cpus: list[int]


class Header(msgspec.Struct):
    """What the trace says of its process."""

    base_nanoseconds: int = msgspec.field(name="baseTimeNanoseconds", default=0)
    distributed: DistributedInfo | None = msgspec.field(name="distributedInfo", default=None)
    host: str | None = msgspec.field(name="host_name", default=None)
    cpu_info: CpuInfo | None = msgspec.field(name=CPU_INFO_KEY, default=None)


_decode_events = msgspec.json.Decoder(list[Event], strict=False).decode
_decode_each = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_event = msgspec.json.Decoder(Event, strict=False).decode
_decode_header = msgspec.json.Decoder(Header, strict=False).decode
_decode_groups = msgspec.json.Decoder(list[_Group], strict=False).decode
_decode_any = msgspec.json.Decoder().decode
_NOT_NUMBERS = re.compile(rb"(:\s*)-?(?:nan|inf(?:inity)?)(?=\s*[,}])", re.IGNORECASE)
"""What C and Python write where a number is none, which is not JSON."""
_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_TIMES = ("ts", "dur")
_TEXTS = ("ph", "cat", "name")
_STRICT = ("rank", "world_size")
_MAX_SHOWN = 40


def decode_events(text: bytes, unread: Counter[str]) -> list[Event] | None:
    """The events of a text between the brackets of a list; ``None`` where it is no JSON.

    Args:
        text: Events with commas between them.
        unread: Counts the fields of another type than torch writes. Times that are no numbers
            become not-a-number, which is refused where the event is of use.
    """
    text = b"[" + text + b"]"
    try:
        return _decode_events(text)
    except msgspec.ValidationError:
        events = _try_mended(text, unread)
    except _NO_JSON:
        events = None
    if events is None:
        mended, count = _NOT_NUMBERS.subn(rb"\1null", text)
        if count:
            events = _try_mended(mended, unread)
    return events


def decode_header(text: bytes, unread: Counter[str]) -> Header:
    """The header in a JSON object.

    Raises:
        ValueError: it is none, or the time that all others are relative to, the rank or the number
            of ranks is no number.
    """
    try:
        return _decode_header(text)
    except msgspec.ValidationError:
        content = _decode_any(text)
        if not isinstance(content, dict):
            raise
        return _mended_header(content, unread)


def _try_mended(text: bytes, unread: Counter[str]) -> list[Event] | None:
    """The events, each by itself; ``None`` where the text is no JSON, and nothing is counted."""
    counted = Counter[str]()
    try:
        events = _mended_events(text, counted)
    except _NO_JSON:
        return None
    unread.update(counted)
    return events


def _mended_events(text: bytes, unread: Counter[str]) -> list[Event]:
    events = []
    for raw in _decode_each(text):
        try:
            event = _decode_event(raw)
        except msgspec.ValidationError:
            event = _mended_event(_decode_any(raw), unread)
        events.append(event)
    return events


def _mended_event(content: object, unread: Counter[str]) -> Event:
    """An event of the fields that can be read."""
    if not isinstance(content, dict):
        unread["event"] += 1
        return Event()
    event = Event()
    for name in _TEXTS:
        value = content.get(name, "")
        if isinstance(value, (dict, list)) or value is None:
            unread[name] += 1
            value = ""
        setattr(event, name, str(value))
    for name in _TIMES:
        if name in content:
            setattr(event, name, _time(content[name]))
    for name in ("pid", "tid"):
        value = content.get(name, 0)
        setattr(event, name, value if isinstance(value, int) else str(value))
    args = content.get("args")
    if isinstance(args, dict):
        event.args = read_fields(EventArgs, args, unread, within="args.")
    elif args is not None:
        unread["args"] += 1
    return event


def _time(value: object) -> float:
    try:
        time: float = msgspec.convert(value, float, strict=False)
    except msgspec.ValidationError:
        return float("nan")
    return time


def _mended_header(content: dict[Any, Any], unread: Counter[str]) -> Header:
    header = Header()
    base = content.get("baseTimeNanoseconds")
    if base is not None:
        header.base_nanoseconds = _strict_number(base, "baseTimeNanoseconds")
    header.distributed = _mended_info(content.get("distributedInfo"), unread)
    for name, field, wanted in (
        ("host_name", "host", str),
        (CPU_INFO_KEY, "cpu_info", CpuInfo),
    ):
        try:
            if content.get(name) is not None:
                setattr(header, field, msgspec.convert(content[name], wanted, strict=False))
        except msgspec.ValidationError:
            unread[name] += 1
    return header


def _mended_info(content: object, unread: Counter[str]) -> DistributedInfo | None:
    if content is None:
        return None
    if not isinstance(content, dict):
        unread["distributedInfo"] += 1
        return None
    info = DistributedInfo()
    for name in _STRICT:
        if content.get(name) is not None:
            setattr(info, name, _strict_number(content[name], f"distributedInfo.{name}"))
    backend = content.get("backend")
    if isinstance(backend, str):
        info.backend = backend
    elif backend is not None:
        unread["distributedInfo.backend"] += 1
    if "pg_config" in content:
        info.group_list = msgspec.Raw(msgspec.json.encode(content["pg_config"]))
    return info


def _strict_number(value: object, name: str) -> int:
    try:
        number: int = msgspec.convert(value, int, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"{name} is {str(value)[:_MAX_SHOWN]!r}, expected a number") from error
    return number
