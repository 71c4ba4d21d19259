"""Waits of a process for others before there is anything to collect: one file each in ``waits/``,
there as long as the wait."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from . import ends

FOLDER = "waits"
FORMAT = 1
_MOST_FRAMES = 100
"""Of the stack, the innermost."""


class _Job:
    """Where the files go."""

    folder = ""


def note_waits(folder: str) -> None:
    """Note waits in the folder of the job from now on."""
    _Job.folder = folder


class Waiting:
    """One wait."""

    def __init__(self) -> None:
        self._path = ""
        self._content: dict[str, Any] = {}

    def begin(self, what: str, content: dict[str, Any]) -> None:
        """It begins.

        Args:
            what: What is waited for.
            content: Further facts.

        Raises:
            OSError: it cannot be written.
        """
        if not _Job.folder:
            return
        from . import clock  # noqa: PLC0415 - no other process needs it

        process = ends.of_process()
        self._content = {
            "format": FORMAT,
            "what": what,
            "since": clock.now(),
            "frames": _stack(),
            **process,
            **content,
        }
        with contextlib.suppress(FileExistsError):
            os.mkdir(f"{_Job.folder}/{FOLDER}")  # noqa: PTH102 - see sitecustomize
        self._path = f"{_Job.folder}/{FOLDER}/{what}-{os.getpid()}-{clock.now_ns()}.json"
        self._write()

    def change(self, content: dict[str, Any]) -> None:
        """More is known of it.

        Raises:
            OSError: it cannot be written.
        """
        if self._path and not content.items() <= self._content.items():
            self._content |= content
            self._write()

    def end(self) -> None:
        """It is over."""
        path, self._path = self._path, ""
        if path:
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108 - see sitecustomize

    def _write(self) -> None:
        import json  # noqa: PLC0415
        from pathlib import Path  # noqa: PLC0415

        from .files import replace_whole  # noqa: PLC0415

        replace_whole(Path(self._path), json.dumps(self._content))


def _stack() -> list[list[Any]]:
    """File, line and function of the frames of the program, the innermost last."""
    found: list[list[Any]] = []
    step = sys._getframe(1).f_back
    while step is not None and len(found) < _MOST_FRAMES:
        code = step.f_code
        found.append([ends.text(code.co_filename), step.f_lineno or 0, ends.text(code.co_name)])
        step = step.f_back
    return found[::-1]
