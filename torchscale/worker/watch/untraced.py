"""Keeps torch's compiler from compiling what the collector does: within what a program compiles it
would take it for a part of that, and warn of what it cannot trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from torch._C._dynamo.eval_frame import set_eval_frame

from .imports import after_import

T = TypeVar("T")

_TRACED = "hooks.py"
"""Has functions that are a part of what a program compiles, and do nothing there."""


def keep_untraced() -> None:
    """Leave the collector to Python, once the compiler is imported."""
    after_import("torch._dynamo.trace_rules", _skip_own_files)


def _skip_own_files(rules: Any) -> None:  # noqa: ANN401 - a module
    """Of files in this list no frame is compiled."""
    files = Path(__file__).parent.glob("*.py")
    rules.SKIP_DIRS.extend(str(file) for file in files if file.name != _TRACED)
    rules._recompile_re()


def untraced(action: Callable[..., T], *arguments: object) -> T:
    """The result of ``action``; of what it calls no frame is compiled either."""
    callback = set_eval_frame(None)
    try:
        return action(*arguments)
    finally:
        set_eval_frame(callback)
