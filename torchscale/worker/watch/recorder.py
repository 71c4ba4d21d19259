"""Reads what torch's flight recorders of this process hold, each collective once.

A recorder is a ring that always is read as a whole: 4 µs for an entry, and 1 µs to unpack it. It is
read when it is nearly full of new entries, so that each is read little more than once.

The length of a collective on the device comes later than its call: torch's watchdog looks ten times
a second for what has ended (``nccl2`` once a second). It is taken at the first reading after that.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, thread_time
from typing import Any, NamedTuple

from . import clock
from .beats import beat
from .marks import DRAIN, DRAIN_END, Marks
from .ring_reader import RingReader, numbered_entries
from .ring_settings import ring_capacity, timing_asked
from .rings import GLOO, FlightRecorder, rings

_SET_NS = 1_000_000
"""The wall clock differs from the monotonic one by less, unless it is set."""
_MOST_KEYS = 1_000
"""Different collectives that are told apart by their exact size; where sequences of any length make
more, sizes are rounded up to powers of two."""
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

_LARGEST = 1 << 62
"""Beyond times, numbers and sizes of any collective; files hold them in 64 bits."""

Call = tuple[int, int, int]
"""When it was called (nanoseconds since the epoch), its number in its group, its key."""
SETTLED = -1
"""In place of a key: all collectives until then have their lengths, or never will."""


class Key(NamedTuple):
    """What was called.

    Attributes:
        backend: That carries it out, as its recorder names it: ``nccl``.
        group: Name of the process group.
        operation: ``all_reduce``.
        size: Bytes of the tensors that go in.
        is_p2p: Whether it is a send or receive.
    """

    backend: str
    group: str
    operation: str
    size: int
    is_p2p: bool


class Recorder:
    """The flight recorders of this process.

    Attributes:
        keys: What was called, by number.
        exists: Whether this torch has a recorder.
        is_timed: Whether lengths are asked for.
        problems: Name of each recorder that failed → how; it is not read any more.
    """

    def __init__(self, marks: Marks, *, since_ns: int = 0) -> None:
        """
        Args:
            marks: Where its readings are noted.
            since_ns: When the process was forked, in nanoseconds since the epoch: collectives
                before were those of the other one.
        """
        self.exists = bool(rings())
        self.is_timed = timing_asked()
        self.keys: list[Key] = []
        self.problems: dict[str, str] = {}
        self._numbers: dict[Key, int] = {}
        self._lengths: list[int] = []
        self._readers: dict[str, RingReader] = {}
        self._marks, self._since_ns = marks, since_ns
        self._times = _Times()
        self._read_at = monotonic()
        self._interval = _LONGEST_SECONDS
        self._beat = beat(self._interval)
        self._is_known = False
        self._steps = 0

    @property
    def lost(self) -> int:
        """Collectives that were overwritten before they were read, or are of an unknown form."""
        return sum(reader.lost + reader.unknown for reader in self._readers.values())

    @property
    def counts(self) -> dict[str, int]:
        """Name of each recorder → its collectives that were read."""
        return {name: reader.read for name, reader in self._readers.items()}

    def is_due(self) -> bool:
        """Whether to read between two steps; called once after each."""
        self._steps += 1
        if not self._is_known:
            return True
        is_nearly_full = any(
            (self._steps + 1) * reader.per_step > _FULL_SHARE * reader.room
            for reader in self._readers.values()
        )
        return is_nearly_full or beat(self._interval) != self._beat

    def is_urgent(self) -> bool:
        """Whether to read at once: within a step, or in a job without steps."""
        waited = monotonic() - self._read_at
        return waited > 2 * self._interval or any(
            waited * reader.per_second > _URGENT_SHARE * reader.room
            for reader in self._readers.values()
        )

    def drain(self) -> list[Call]:
        """The collectives since the last call, in the order of time."""
        if not self.exists:
            return []
        self._marks.note(DRAIN)
        began, looked_ns, now = thread_time(), self._times.look(), monotonic()
        calls: list[Call] = []
        with _no_collection():
            for ring in rings():
                if ring.name in self.problems:
                    continue
                try:
                    calls += self._new_calls(ring, now)
                except Exception as error:  # noqa: BLE001 - private to torch: whatever it raises
                    text = f"{type(error).__name__}: {error}".partition("\n")[0]
                    self.problems[ring.name] = text
        if self.is_timed:
            pending = [
                reader.pending_since(looked_ns)
                for name, reader in self._readers.items()
                if name not in self.problems
            ]
            self._lengths += (min(pending, default=looked_ns), SETTLED, 0)
        self._is_known |= bool(self._steps)
        self._read_at, self._steps = now, 0
        wanted = round((thread_time() - began) / _READING_SHARE)
        self._interval = min(max(wanted, _LONGEST_SECONDS), _MOST_SECONDS)
        self._beat = beat(self._interval)
        self._marks.note(DRAIN_END)
        return sorted(calls)

    def take_lengths(self) -> list[int]:
        """Rows of three since the last call: number in its group, key, nanoseconds on the device.
        Where the key is :data:`SETTLED`, the first is a time, in nanoseconds since the epoch."""
        taken, self._lengths = self._lengths, []
        return taken

    def _new_calls(self, ring: FlightRecorder, now: float) -> list[Call]:
        """The collectives that a recorder has got since the last call; notes the lengths that have
        come. An entry of an unknown form leaves the others.

        Raises:
            Exception: whatever torch raises.
        """
        entries = numbered_entries(ring.content().get("entries"))
        if ring.name not in self._readers:  # another thread may look through the ones before
            self._readers = {**self._readers, ring.name: RingReader(ring_capacity())}
        reader = self._readers[ring.name]
        new = reader.take(entries)
        reader.note_rates(len(new), self._steps, now - self._read_at)
        known = {
            entry["record_id"]: call for entry in new if (call := self._call(entry)) is not None
        }
        calls = [call for call in known.values() if call[0] >= self._since_ns]
        reader.read += len(calls)
        reader.unknown += len(new) - len(known)
        if not self.is_timed or ring.name == GLOO:
            return calls
        reader.await_lengths({record: called for record, (called, _, _) in known.items()})
        for entry, length in reader.with_lengths(entries):
            call = self._call(entry)
            if call is not None:
                _, number, key = call
                self._lengths += (number, key, length)
        return calls

    def _call(self, entry: dict[str, Any]) -> Call | None:
        """``None`` for an entry of an unknown form."""
        try:
            called, number = self._times.own(int(entry["time_created_ns"])), _number(entry)
            size = _bytes(entry["input_sizes"], entry["input_dtypes"])
            backend, _, operation = entry["profiling_name"].rpartition(":")
            group, is_p2p = str(entry["process_group"][0]), bool(entry["is_p2p"])
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return None
        if not all(0 <= value < _LARGEST for value in (called, number, size)):
            return None
        return called, number, self._key(Key(backend, group, operation, size, is_p2p))

    def _key(self, key: Key) -> int:
        if key not in self._numbers and len(self.keys) >= _MOST_KEYS:
            key = key._replace(size=1 << key.size.bit_length())
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.keys)
            self.keys.append(key)
        return number


class _Times:
    """Takes torch's times, which are the wall clock's, onto the clock of the job: the wall clock may
    be set between two readings."""

    def __init__(self) -> None:
        self._set_by, self._now = 0, clock.now_ns()
        self.look()

    def look(self) -> int:
        """A reading begins now, which is returned."""
        self._before, found = self._set_by, clock.set_by_ns()
        if abs(found - self._before) > _SET_NS:
            self._set_by = found
        self._last, self._now = self._now, clock.now_ns()
        return self._now

    def own(self, time: int) -> int:
        """When it was, for what has happened since the last reading or long ago."""
        own = time - self._before
        return own if self._last <= own <= self._now else time - self._set_by


def _number(entry: dict[str, Any]) -> int:
    """In its group; sends and receives have numbers of their own."""
    if entry["is_p2p"]:
        return int(entry["p2p_seq_id"])
    return int(entry["collective_seq_id"])


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
            width *= int(length)
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
