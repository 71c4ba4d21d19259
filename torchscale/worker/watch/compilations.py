"""Compilations by torch.compile: when, of what, how long, and why again.

torch keeps the figures of a compilation in a context (``torch._dynamo.metrics_context``), which it
enters once for a frame and once for a backward graph that is compiled later. Contexts within a
context are a part of it. A torch whose contexts have another form shows no compilations.
"""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path
from typing import Any

import torch

from . import clock
from .dump import text
from .guard import guarded, unseen
from .imports import after_import
from .marks import COMPILE, COMPILE_END, Marks
from .places import user_place

_MOST = 2_000
"""Compilations that are noted: a program that compiles more has told its cause by then."""
_MOST_FRAMES = 2_000
"""Frames whose names are kept for what is compiled later."""
_MOST_NAME, _MOST_REASON = 500, 300
"""Characters of a name, and of the guard that failed."""
_LITERAL = re.compile(r"""(==\s*)(?:'[^']*'|"[^"]*")""")
"""A text that a guard compares with: it may be one of the program's secrets."""
_TORCH = str(Path(torch.__file__).parent)
_UNTOLD = "a guard that this version of torch does not name"

Frame = tuple[str, str, int]
"""Function, file, line."""


class Compilations:
    """Of this process.

    Attributes:
        noted: The first ones, as they are written.
    """

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self.begin()

    def begin(self) -> None:
        """Begin anew, as in a process that has been forked."""
        self.noted: list[dict[str, Any]] = []
        self._began: dict[int, int] = {}
        self._frames: dict[str, Frame] = {}

    def watch(self) -> None:
        """Note compilations from now on."""
        after_import("torch._dynamo.metrics_context", self._watch)

    def _watch(self, module: Any) -> None:  # noqa: ANN401 - a module
        context = getattr(module, "MetricsContext", None)
        if context is None:
            return  # of another version
        enter, leave = context.__enter__, context.__exit__

        @functools.wraps(enter)
        def entering(entered: Any) -> Any:  # noqa: ANN401 - as torch's
            result = enter(entered)
            guarded(self._enters, entered)
            return result

        @functools.wraps(leave)
        def leaving(entered: Any, *error: Any) -> Any:  # noqa: ANN401 - as torch's
            is_outermost = getattr(entered, "_level", None) == 1
            found = guarded(self._found, entered, error) if is_outermost else None
            try:
                return leave(entered, *error)
            except BaseException as raised:
                unseen(raised)
                raise
            finally:
                if is_outermost:
                    guarded(self._leaves, found)

        context.__enter__, context.__exit__ = entering, leaving

    def _enters(self, context: Any) -> None:  # noqa: ANN401 - torch's
        if getattr(context, "_level", None) == 1:
            self._began[id(context)] = clock.now_ns()
            self._marks.note(COMPILE)

    def _found(self, context: Any, error: tuple[Any, ...]) -> dict[str, Any] | None:  # noqa: ANN401 - torch's
        """What is known as the outermost context ends; ``None`` where that is too little."""
        began = self._began.pop(id(context), None)
        metrics = getattr(context, "_metrics", None)
        if began is None or not isinstance(metrics, dict):
            return None
        number = _compile_id(metrics)
        return {
            "began_ns": began,
            "id": number,
            "frame": self._frame(number, metrics),
            "reason": _reason(number, metrics),
            "is_backward": metrics.get("is_forward") is False,
            "has_failed": bool(metrics.get("fail_type") or (error and error[0])),
        }

    def _leaves(self, found: dict[str, Any] | None) -> None:
        self._marks.note(COMPILE_END)
        frame = None if found is None else found.pop("frame")
        if found is None or frame is None or len(self.noted) >= _MOST:
            return
        function, file, line = frame
        seconds = (clock.now_ns() - found["began_ns"]) * 1e-9
        named = {"function": function, "file": file, "line": line}
        self.noted.append({**found, "seconds": seconds, **named})

    def _frame(self, number: str, metrics: dict[str, Any]) -> Frame | None:
        """What is compiled; of what torch names no more, as it was named before."""
        key = number.partition("/")[0]
        if not metrics.get("co_name"):
            return self._frames.get(key)
        function, file = str(metrics["co_name"]), str(metrics.get("co_filename") or "")
        line = int(metrics.get("co_firstlineno") or 0)
        caller = user_place(sys._getframe()) if file.startswith(_TORCH) else None
        if caller is not None:  # frames of torch itself (a compiled ``Sequential``) say little
            file, line, function, _ = caller
        frame = text(function)[:_MOST_NAME], text(file)[:_MOST_NAME], line
        if key in self._frames or len(self._frames) < _MOST_FRAMES:
            self._frames[key] = frame
        return frame


def _compile_id(metrics: dict[str, Any]) -> str:
    """``0/1``: number of the frame, and of its compilation."""
    known = metrics.get("compile_id")
    if not known:
        guards = sys.modules.get("torch._guards")
        context = getattr(guards, "CompileContext", None)
        known = context.current_compile_id() if context is not None else None
    return str(known or "")[:_MOST_NAME]


def _reason(number: str, metrics: dict[str, Any]) -> str:
    """The guard that failed; empty for a first compilation."""
    if "recompile_reason" not in metrics:  # torch 2.6
        again = number.partition("/")[2]
        is_again = again.isdigit() and int(again) > 0
        return _UNTOLD if is_again and metrics.get("is_forward") else ""
    lines = str(metrics["recompile_reason"] or "").strip().splitlines()
    return text(_LITERAL.sub(r"\1'...'", lines[0]))[:_MOST_REASON] if lines else ""
