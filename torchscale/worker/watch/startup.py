"""When a rank came to which point of its start."""

from __future__ import annotations

from time import monotonic_ns

from . import clock, imports


class Startup:
    """Points of the start of this process, by ``monotonic_ns``."""

    def __init__(self) -> None:
        self._points: dict[str, int] = {"python_ns": imports.LOADED}
        times = imports.import_times("torch")
        if times is not None:
            self._points["import_ns"], self._points["imported_ns"] = times

    def begin(self) -> None:
        """Begin anew, as in a process that has been forked: it has started with all modules."""
        self._points = {}

    def group_begins(self) -> None:
        """The program makes its process group; only the first one counts."""
        self._points.setdefault("group_ns", monotonic_ns())

    def group_ended(self) -> None:
        """It has made it."""
        self._points.setdefault("grouped_ns", monotonic_ns())

    def facts(self) -> dict[str, int]:
        """Points that were reached, in nanoseconds since the epoch."""
        return {name: clock.at_ns(point) for name, point in self._points.items()}
