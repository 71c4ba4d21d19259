"""Whether a disk ran full while something was built: that says nothing of what was built, and the
next build would fail as well."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from torchscale.errors import OutputError
from torchscale.util.units import format_bytes

_FULL_BYTES = 1 << 20
"""Free bytes below which a disk counts as full: pip and uv compile modules to bytecode one by one,
and do not fail where one of these files is cut off."""
_SAID = re.compile(
    r"No space left on device|Disk quota exceeded|(?:errno|os error) (?:28|122)\b", re.IGNORECASE
)
"""What programs say of ENOSPC and EDQUOT; 28 and 122 are their numbers on Linux."""


@dataclass
class _Place:
    """A directory, and the least space that its file system had."""

    directory: Path
    option: str
    free_bytes: int | None = None
    has_files: bool = True

    def look(self) -> None:
        """See how much is free; of a place that cannot be looked at nothing is known."""
        with suppress(OSError):
            system = os.statvfs(self.directory)
            # A part is kept for root.
            is_root = os.geteuid() == 0
            free = (system.f_bfree if is_root else system.f_bavail) * system.f_frsize
            self.free_bytes = free if self.free_bytes is None else min(self.free_bytes, free)
            files = system.f_ffree if is_root else system.f_favail
            self.has_files &= files > 0 or system.f_files == 0  # some systems count none

    @property
    def least(self) -> str:
        """The least that was seen to be free; empty where nothing is known."""
        if self.free_bytes is None:
            return ""
        return f"{self.directory} had {format_bytes(self.free_bytes)} at one moment"

    @property
    def shortage(self) -> str:
        """Of what it had next to nothing; empty for neither."""
        if not self.has_files:
            return "no inode was left"
        if self.free_bytes is not None and self.free_bytes < _FULL_BYTES:
            return f"{format_bytes(self.free_bytes)} were left"
        return ""


class Disk:
    """The file systems that a build writes to, while it runs."""

    def __init__(self, directory: Path) -> None:
        """
        Args:
            directory: Where the build stays. It also needs a place for temporary files.
        """
        self._own = _Place(directory, "choose a directory on a larger one with --cache DIR")
        temporary = Path(tempfile.gettempdir())
        self._places = [self._own, _Place(temporary, "set TMPDIR to a directory on a larger one")]

    def watched(self, cancelled: Callable[[], bool]) -> Callable[[], bool]:
        """``cancelled``, which is asked again and again, with a look at the space each time."""

        def look_and_ask() -> bool:
            self._look()
            return cancelled()

        return look_and_ask

    def check(self, what: str, problem: str) -> None:
        """Judge a step that has ended, while what it wrote is still there.

        Args:
            what: What was to be done, for the message.
            problem: Why it failed; empty where it says that it did not.

        Raises:
            OutputError: a disk is full. Without a problem only that of the build itself counts:
                what it wrote last may be cut off.
        """
        self._look()
        looked_at = self._places if problem else [self._own]
        full = next((place for place in looked_at if place.shortage), None)
        if full is not None:
            raise OutputError(
                f"cannot {what}: the disk of {full.directory} is full: {full.shortage}",
                hint=f"free space, or {full.option}",
            )
        if _SAID.search(problem):
            least = ", ".join(place.least for place in self._places if place.least)
            raise OutputError(
                f"cannot {what}: a disk was full ({least}): {problem}",
                hint=f"free space, or {' or '.join(place.option for place in self._places)}",
            )

    def _look(self) -> None:
        for place in self._places:
            place.look()
