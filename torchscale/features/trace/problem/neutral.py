"""Neutral text in place of what may be private: names of kernels, operators, hosts, paths, ranges of
the user, hashes. What the reader itself looks for stays, since else it would not fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from torchscale.features.trace.problem.pieces import Json, Pieces, parsed, written
from torchscale.features.trace.problem.reduction import PieceTrials, smallest

_KEYS = frozenset(
    (
        *("ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "id", "bp", "s", "traceEvents"),
        *("schemaVersion", "deviceProperties", "distributedInfo", "displayTimeUnit", "traceName"),
        *("baseTimeNanoseconds", "host_name", "backend", "rank", "world_size", "pg_config"),
        *("pg_count", "nccl_version", "pg_name", "pg_desc", "backend_config", "pg_size", "ranks"),
        *("External id", "Ev Idx", "correlation", "device", "stream", "context", "dtype", "bytes"),
        *("In msg nelems", "Out msg nelems", "Group size", "Process Group Name", "Seq", "grid"),
        *("Process Group Ranks", "Process Group Description", "Collective name", "Src Rank"),
        *("Dst Rank", "Total Allocated", "Total Reserved", "Device Type", "Device Id", "block"),
        *("Concrete Inputs", "Input Dims", "Input Strides", "Input type", "Addr", "Bytes", "kind"),
        *("Sequence number", "Fwd thread id", "kernel_file", "shared memory", "labels"),
        *("sort_index", "cbid", "queued", "size", "torchscale", "threads", "cpus"),
    )
)
"""Keys that torch.profiler writes in every recording."""
_VALUES = frozenset(
    (
        *("X", "M", "i", "I", "B", "E", "C", "b", "e", "n", "s", "t", "f", "ms", "ns"),
        *("kernel", "cpu_op", "user_annotation", "gpu_user_annotation", "gpu_memcpy"),
        *("gpu_memset", "cuda_runtime", "cuda_driver", "ac2g", "fwdbwd", "python_function"),
        *("cpu_instant_event", "Trace", "Operator", "Kernel", "Memcpy", "Memset", "Runtime"),
        *("hip_runtime", "xpu_runtime", "privateuse1_runtime", "mtia_ccp_events"),
        *("overhead", "nccl", "gloo", "mpi", "ucc", "rccl", "xccl", "hccl", "process_name"),
        *("process_labels", "process_sort_index", "thread_name", "thread_sort_index"),
    )
)
"""Phases and categories of events, and backends."""
_CATEGORY = re.compile(r"[A-Za-z][A-Za-z_ ]{0,39}")
_STEP = re.compile(r"ProfilerStep#\d{1,9}")
_LITERALS = frozenset(("true", "false", "null", "NaN", "Infinity"))
_PART = re.compile(
    r'"(?P<string>[^"\\]*(?:\\.[^"\\]*)*)"?(?P<colon>\s*:)?'
    r"|(?<![\w.])(?P<number>-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?=\s*[,\]}])"
    r"|(?P<word>\w+)",
    re.DOTALL,
)
_CHARACTER = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)|.", re.DOTALL)
_ESCAPES = tuple('"\\/bfnrtu')
_MOST_MASKED = 1 << 20
"""Bytes: it takes seconds, and nobody looks at more before sending it."""
_LONE_BYTES = ("\udc80", "\udcff")
"""What bytes become that are no text."""


class NotNeutralError(Exception):
    """Without text that may be private it does not fail."""


def categories(pieces: Pieces) -> frozenset[str]:
    """The categories of events, which profilers write and programs do not."""
    found = [value.get("cat") for value in _values(pieces) if isinstance(value, dict)]
    return frozenset(
        text for text in found if isinstance(text, str) and _CATEGORY.fullmatch(text) is not None
    )


def neutralize(search: PieceTrials, public: frozenset[str] = frozenset()) -> None:
    """Replace all text of ``search.best`` that may be private; ``public`` texts stay too.

    Raises:
        NotNeutralError: without it, it does not fail.
        SpentError: there was no time for it.
    """
    if _has_fragments(search.best):
        if len(search.best.text()) > _MOST_MASKED:
            raise NotNeutralError
        _must_fail(search, _masked(search.best, fragments_alone=True))
    if search.fails(_renamed(search.best, {})):
        _rename(search, public)
    else:  # written anew, it does not fail: two keys of one name, say
        _must_fail(search, _masked(search.best, fragments_alone=False))


def _must_fail(search: PieceTrials, candidate: Pieces) -> None:
    if not search.fails(candidate):
        raise NotNeutralError


def _rename(search: PieceTrials, public: frozenset[str]) -> None:
    """Give all texts neutral names; of a text that it takes to fail leave what it takes."""
    origin = search.best
    found = dict.fromkeys(_texts(origin))
    texts = [text for text in found if text not in public and not _is_public(text)]
    names = _neutral_names(texts)

    def fails_with(kept: list[str]) -> bool:
        return search.fails(_renamed(origin, {**names, **dict(zip(kept, kept, strict=True))}))

    needed = smallest(texts, fails_with)
    names |= dict(zip(needed, needed, strict=True))

    def fails_as(new: str, text: str) -> bool:
        return search.fails(_renamed(origin, {**names, text: new}))

    for text in needed:
        names[text] = _least(text, partial(fails_as, text=text))


def _neutral_names(texts: Sequence[str]) -> dict[str, str]:
    """A neutral text for each, all different; a number as text stays one."""
    names: dict[str, str] = {}
    for number, text in enumerate(texts, 1):
        masked = _masked_characters(text)
        is_number = masked.strip("-+.1") == "" and masked not in names.values()
        names[text] = masked if is_number else f"name{number}"
    return names


def _least(text: str, fails: Callable[[str], bool]) -> str:
    """What it takes of a text to fail: few characters, and those alike."""
    masked = _masked_characters(text)
    if fails(masked):
        text = masked
    characters = smallest(text, lambda kept: fails("".join(kept)))
    for place, character in enumerate(characters):
        others = [*characters[:place], "x", *characters[place + 1 :]]
        if character not in ("x", "1") and fails("".join(others)):
            characters = others
    return "".join(characters)


def _is_public(text: str) -> bool:
    return text in _KEYS or text in _VALUES or _STEP.fullmatch(text) is not None


def _values(pieces: Pieces) -> Iterator[Json]:
    yield pieces.header()
    yield from map(parsed, pieces.events)


def _texts(pieces: Pieces) -> Iterator[str]:
    """All texts and keys in what is JSON."""
    waiting = list(_values(pieces))
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting += [*value, *value.values()]
        elif isinstance(value, list):
            waiting += value


def _renamed(pieces: Pieces, names: Mapping[str, str]) -> Pieces:
    """The pieces with other texts, as far as they are JSON."""
    header = pieces.header()
    if header is not None:
        new = {names.get(key, key): _with_names(value, names) for key, value in header.items()}
        pieces = pieces.with_header(new)
    events = []
    for event in pieces.events:
        value = parsed(event)
        events.append(event if value is None else written(_with_names(value, names)))
    return pieces.with_events(events)


def _with_names(value: Json, names: Mapping[str, str]) -> Json:
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, dict):
        return {names.get(key, key): _with_names(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_names(item, names) for item in value]
    return value


def _has_fragments(pieces: Pieces) -> bool:
    return pieces.header() is None or None in map(parsed, pieces.events)


def _masked(pieces: Pieces, *, fragments_alone: bool) -> Pieces:
    """The pieces with text masked: that which is no JSON, or all of it."""
    before, after = pieces.before, pieces.after
    if not fragments_alone or pieces.header() is None:
        before, after = mask(before), mask(after)
    events = [
        event if fragments_alone and parsed(event) is not None else mask(event)
        for event in pieces.events
    ]
    return Pieces(before, tuple(events), after)


def mask(text: bytes) -> bytes:
    """Text with the signs and numbers of JSON, known keys and bytes that are no text; all else is
    ``x`` and ``1``."""
    shown = _PART.sub(_masked_part, text.decode("utf-8", "surrogateescape"))
    hidden = "".join(_masked_characters(char) if ord(char) > 127 else char for char in shown)
    return hidden.encode("utf-8", "surrogateescape")


def _masked_part(match: re.Match[str]) -> str:
    whole, string = match[0], match["string"]
    if match["number"] is not None or whole in _LITERALS:
        return whole
    if string is None:
        return _masked_characters(whole)
    if _is_public(string):
        return whole
    return f'"{_CHARACTER.sub(_masked_character, string)}{whole[1 + len(string) :]}'


def _masked_character(match: re.Match[str]) -> str:
    """Of a string as JSON writes it: an escape stays one, and what is none stays none."""
    text = match[0]
    if not text.startswith("\\"):
        return _masked_characters(text)
    if text[1:2] not in _ESCAPES:
        return "\\x"
    if len(text) > 2 and text[2] not in "dD":  # half of a pair, which may be what is wrong
        return "\\u0078"
    return text


def _masked_characters(text: str) -> str:
    return "".join(map(_neutral_character, text))


def _neutral_character(char: str) -> str:
    if char.isdigit():
        return "1"
    if char.isascii() and not char.isalpha():
        return char
    if _LONE_BYTES[0] <= char <= _LONE_BYTES[1]:
        return char
    return "x"
