"""Reads one ring of a flight recorder: what is new in it, and the lengths that have come."""

from __future__ import annotations

from typing import Any

_DAY_MS = 86_400_000
"""A collective that took longer was not measured: torch gives up after ten minutes."""


class RingReader:
    """Reads one ring.

    Attributes:
        read: Collectives so far.
        lost: Those that were overwritten before.
        unknown: Those of an unknown form.
        per_step, per_second: New ones, as of the last readings.
        room: New ones that it takes until one is lost.
    """

    def __init__(self, capacity: int) -> None:
        self.read = self.lost = self.unknown = 0
        self.per_step = self.per_second = 0.0
        self._capacity = capacity
        self._next = 0
        self._pending: dict[int, int] = {}
        self._ended: set[int] = set()

    @property
    def room(self) -> int:
        """What awaits its length stays, too."""
        return max(1, self._capacity - len(self._pending))

    def take(self, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The entries that are new."""
        if not entries:
            return []
        first, last = entries[0]["record_id"], entries[-1]["record_id"]
        if last + 1 < self._next:  # torch was told to begin anew
            self._next, self._pending = first, {}
        self.lost += max(0, first - self._next)
        new = [entry for entry in entries if entry["record_id"] >= self._next]
        self._next = last + 1
        self._capacity = max(self._capacity, len(entries))
        if self.lost:
            self._capacity = len(entries)
        return new

    def note_rates(self, count: int, steps: int, seconds: float) -> None:
        """Of new entries, over so many steps and seconds."""
        if steps:
            self.per_step = count / steps
        self.per_second = count / max(seconds, 1e-3)

    def await_lengths(self, called: dict[int, int]) -> None:
        """Look for the lengths of these from now on: ``record_id`` → when it was called."""
        self._pending.update(called)

    def with_lengths(self, entries: list[dict[str, Any]]) -> list[tuple[dict[str, Any], int]]:
        """The awaited ones that have their lengths now, in nanoseconds. Those that will never have
        one are awaited no longer: they are gone, or have got one that cannot be, or have been
        retired without, or a later one of their group has been, since torch's watchdog goes by their
        order. It retires an entry a moment before it notes the length, so that this must be so
        twice."""
        found, left = [], {}
        latest = _latest_retired(entries)
        over = set()
        for entry in entries:
            number = entry["record_id"]
            if number not in self._pending:
                continue
            took = entry.get("duration_ms")
            if took is not None:
                if isinstance(took, (int, float)) and 0 < took < _DAY_MS:
                    found.append((entry, round(took * 1e6)))
                continue
            if entry.get("retired") or number < latest.get(entry.get("pg_id"), -1):
                over.add(number)
            if number not in self._ended:
                left[number] = self._pending[number]
        self._pending, self._ended = left, over
        return found

    def pending_since(self, now: int) -> int:
        """When the first collective was called that awaits its length, less one; ``now`` where none
        does. Nanoseconds since the epoch."""
        return min((called - 1 for called in self._pending.values()), default=now)


def numbered_entries(entries: object) -> list[dict[str, Any]]:
    """The entries that can be told from each other."""
    if not isinstance(entries, list):
        return []
    return [one for one in entries if isinstance(one, dict) and type(one.get("record_id")) is int]


def _latest_retired(entries: list[dict[str, Any]]) -> dict[object, int]:
    """Process group → its last entry that has been retired."""
    return {entry.get("pg_id"): entry["record_id"] for entry in entries if entry.get("retired")}
