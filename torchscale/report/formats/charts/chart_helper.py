"""Charts of a page with many of them, drawn by a second process while this one renders the rest.

It draws the last one first. Where this process comes to a chart that is not there yet, it draws it
itself: both are at work until all are there, whichever is faster.
"""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from torchscale.report.charts import AnyChart
from torchscale.report.formats.charts.chart_screen import ScreenChart, screen_chart
from torchscale.util.gc import gc_paused
from torchscale.util.interpreter import module_command

_FEWEST = 16
"""Fewer charts, some hundredths of a second each, are drawn before a process has started and imported
matplotlib."""
_SIZE = struct.Struct("<Q")
"""What stands before each drawing in the file: its length in bytes."""


@dataclass(frozen=True)
class Drawing:
    """What :func:`~torchscale.report.formats.charts.chart_screen.screen_chart` is given."""

    chart: AnyChart
    prefix: str
    width: str

    def draw(self) -> ScreenChart:
        """Draw it here."""
        return screen_chart(self.chart, self.prefix, self.width)


class ChartHelper:
    """A process that draws; made by :func:`chart_helper`."""

    def __init__(self, drawings: Sequence[Drawing], output: IO[bytes]) -> None:
        """Start it. It writes to ``output``, a file without a name."""
        self._places = {drawing: place for place, drawing in enumerate(drawings)}
        self._drawn: dict[int, ScreenChart] = {}
        self._output, self._read = output, 0
        with tempfile.TemporaryFile() as asked:
            pickle.dump(tuple(drawings), asked, protocol=pickle.HIGHEST_PROTOCOL)
            asked.seek(0)
            self._process = subprocess.Popen(
                module_command("torchscale.report.formats.charts.chart_helper"),
                stdin=asked,
                stdout=self._output,
                stderr=subprocess.DEVNULL,  # what it cannot draw, this process tries too, and says why
            )

    def drawn(self, drawing: Drawing) -> ScreenChart:
        """The drawing, by the other process if it has it already."""
        self._read_new()
        place = self._places.get(drawing)
        if place is None or place not in self._drawn:
            return drawing.draw()
        return self._drawn[place]

    def _read_new(self) -> None:
        """Drawings that were written since the last call; the last one may not be whole yet."""
        descriptor = self._output.fileno()
        written = os.fstat(descriptor).st_size
        while self._read + _SIZE.size <= written:
            (size,) = _SIZE.unpack(os.pread(descriptor, _SIZE.size, self._read))
            end = self._read + _SIZE.size + size
            if end > written:
                return
            place, found = pickle.loads(os.pread(descriptor, size, self._read + _SIZE.size))  # noqa: S301 - of our own process, a moment ago
            self._drawn[place] = found
            self._read = end

    @property
    def count(self) -> int:
        """Drawings that it has made so far."""
        self._read_new()
        return len(self._drawn)

    def wait(self) -> None:
        """Wait until it has drawn all."""
        self._process.wait()

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


class Alone:
    """The same without a second process."""

    def drawn(self, drawing: Drawing) -> ScreenChart:
        """The drawing, made here."""
        return drawing.draw()


@contextmanager
def chart_helper(drawings: Sequence[Drawing]) -> Iterator[ChartHelper | Alone]:
    """Draws these, in a second process too where there are many and a core for it; none is left
    running."""
    if len(drawings) < _FEWEST or (os.cpu_count() or 1) < 2:
        yield Alone()
        return
    with tempfile.TemporaryFile() as output:
        helper = ChartHelper(drawings, output)
        try:
            yield helper
        finally:
            helper.close()


def _main() -> None:
    drawings: tuple[Drawing, ...] = pickle.load(sys.stdin.buffer)  # noqa: S301 - of the process that started this one
    for place in reversed(range(len(drawings))):
        content = pickle.dumps((place, drawings[place].draw()), protocol=pickle.HIGHEST_PROTOCOL)
        sys.stdout.buffer.write(_SIZE.pack(len(content)) + content)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    with gc_paused():
        _main()
