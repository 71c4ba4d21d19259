"""Reads what torch's flight recorder of this process holds, each collective once.

The recorder is a ring that always is read as a whole: 4 µs for an entry, and 1 µs to unpack it. It
is read when it is nearly full of new entries, so that each is read little more than once.
"""

from __future__ import annotations

import gc
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, thread_time
from typing import Any

import torch

from .beats import beat
from .marks import DRAIN, DRAIN_END, Marks

DEFAULT_ENTRIES = 2_000
"""Of torch, where nothing else is asked for."""
RING_ENTRIES = 512
"""Collectives that the recorder keeps, unless the job's environment says how many. Reading them
takes 4 ms."""
_SIZE_VARIABLES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
"""Of this torch, and of those before 2.9."""
_MOST_KEYS = 1_000
"""Different collectives that are told apart by their exact size; where sequences of any length make
more, sizes are rounded up to powers of two."""
_RENAMED_IN = (2, 9)
"""From this version of torch on a warning is printed where the earlier name is set; before, the later
name is not known, and up to 2.7 no ring is kept unless asked for."""
_FULL_SHARE = 0.85
"""New entries at which the ring is read between steps. The rest is for the next step, whose
collectives are not counted before it has ended."""
_URGENT_SHARE = 0.95
"""The same within a step, by another thread."""
_LONGEST_SECONDS, _MOST_SECONDS = 1, 3
"""Between two readings of a ring that does not fill sooner: a job that is killed loses no more. A
reading copies the whole ring, which takes 3 ms of the main thread, most of what the collector takes
of it. Whole seconds, so that ranks read at the same moments."""
_READING_SHARE = 0.004
"""Of the main thread's time for these readings: where one takes longer, they are made less often, up
to the most seconds."""

Call = tuple[int, int, int]
"""When it was called (nanoseconds since the epoch), its number in its group, its key."""


class Recorder:
    """The flight recorder of this process.

    Attributes:
        lost: Collectives that were overwritten before they were read.
        keys: What was called, by number: process group, operation, bytes, whether it is a send or
            receive.
        exists: Whether this torch has a recorder for these collectives.
    """

    def __init__(self, marks: Marks) -> None:
        self._dump = _find_dump()
        self.exists = self._dump is not None
        self.lost = 0
        self.keys: list[tuple[str, str, int, bool]] = []
        self._numbers: dict[tuple[str, str, int, bool], int] = {}
        self._marks = marks
        self._next = 0
        self._capacity = _capacity()
        self._read_at = monotonic()
        self._per_second = self._per_step = 0.0
        self._interval = _LONGEST_SECONDS
        self._beat = beat(self._interval)
        self._is_known = False
        self._steps = 0

    def is_due(self) -> bool:
        """Whether to read between two steps; called once after each."""
        self._steps += 1
        if not self._is_known:
            return True
        expected = self._steps * self._per_step
        is_nearly_full = expected + self._per_step > _FULL_SHARE * self._capacity
        return is_nearly_full or beat(self._interval) != self._beat

    def is_urgent(self) -> bool:
        """Whether to read at once: within a step, or in a job without steps."""
        waited = monotonic() - self._read_at
        return waited > 2 * self._interval or (
            waited * self._per_second > _URGENT_SHARE * self._capacity
        )

    def drain(self) -> list[Call]:
        """The collectives since the last call."""
        if self._dump is None:
            return []
        self._marks.note(DRAIN)
        began = thread_time()
        with _no_collection():
            content = pickle.loads(self._dump(True, False, False))  # noqa: S301 - of this very process
            calls = self._new_calls(content.get("entries") or [])
            del content
        wanted = round((thread_time() - began) / _READING_SHARE)
        self._interval = min(max(wanted, _LONGEST_SECONDS), _MOST_SECONDS)
        self._beat = beat(self._interval)
        self._marks.note(DRAIN_END)
        return calls

    def _new_calls(self, entries: list[dict[str, Any]]) -> list[Call]:
        now = monotonic()
        new = [entry for entry in entries if entry["record_id"] >= self._next]
        calls = [
            (
                entry["time_created_ns"],
                entry["p2p_seq_id"] if entry["is_p2p"] else entry["collective_seq_id"],
                self._key(entry),
            )
            for entry in new
        ]
        if entries:
            self.lost += max(0, entries[0]["record_id"] - self._next)
            self._next = entries[-1]["record_id"] + 1
            self._capacity = max(self._capacity, len(entries))
            if self.lost:
                self._capacity = len(entries)
        if self._steps:
            self._is_known = True
            self._per_step = len(new) / self._steps
        self._per_second = len(new) / max(now - self._read_at, 1e-3)
        self._read_at, self._steps = now, 0
        return calls

    def _key(self, entry: dict[str, Any]) -> int:
        size = _bytes(entry["input_sizes"], entry["input_dtypes"])
        if len(self.keys) >= _MOST_KEYS:
            size = 1 << size.bit_length()
        _, _, operation = entry["profiling_name"].rpartition(":")
        key = (entry["process_group"][0], operation, size, bool(entry["is_p2p"]))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.keys)
            self.keys.append(key)
        return number


_WIDTHS = {
    "Byte": 1,
    "Char": 1,
    "Bool": 1,
    "Half": 2,
    "BFloat16": 2,
    "Short": 2,
    "Float": 4,
    "Int": 4,
    "Double": 8,
    "Long": 8,
    "ComplexFloat": 8,
    "ComplexDouble": 16,
}


def _bytes(sizes: list[list[int]], dtypes: list[str]) -> int:
    """Of the tensors that go in; 0 where the type is not known."""
    total = 0
    for shape, dtype in zip(sizes, dtypes, strict=False):
        width = _WIDTHS.get(dtype, 1 if dtype.startswith("Float8") else 0)
        for length in shape:
            width *= length
        total += width
    return total


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection begins meanwhile: the thousands of objects of an unpacked ring would have
    Python look through all objects of the program, 50 ms with torch imported, again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def enlarge_ring() -> None:
    """Have the recorder keep :data:`RING_ENTRIES`, where nothing or less is asked for. To be called
    before the first process group is made."""
    for name in _SIZE_VARIABLES:
        value = os.environ.get(name, "")
        if value.isdigit() and int(value) < RING_ENTRIES:
            os.environ[name] = str(RING_ENTRIES)
    if not any(os.environ.get(name) for name in _SIZE_VARIABLES):
        newer, earlier = _SIZE_VARIABLES
        os.environ[newer] = str(RING_ENTRIES)
        if _version() < _RENAMED_IN:
            os.environ[earlier] = str(RING_ENTRIES)


def _version() -> tuple[int, ...]:
    """Of torch: major and minor."""
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


def _capacity() -> int:
    """Entries that the recorder keeps, by the variables that torch reads."""
    for name in _SIZE_VARIABLES:
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    return DEFAULT_ENTRIES


def _find_dump() -> Callable[[bool, bool, bool], bytes] | None:
    """The function that returns the ring as a pickle without stacks; ``None`` in a torch that has
    none. It is private to torch: of every backend since 2.8, of NCCL alone before."""
    module = getattr(torch._C, "_distributed_c10d", None)
    for name in ("_dump_fr_trace", "_dump_nccl_trace"):
        function = getattr(module, name, None)
        if function is not None:
            return function  # type: ignore[no-any-return]
    return None
