"""Places of the user's program: which of a thread's frames are the program's own."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from types import FrameType

import torch

from .dump import frames

Place = tuple[str, int, str, str]
"""File, line, function, function of a library that it had called."""
_OWN = str(Path(__file__).parent)
_PATHS = sysconfig.get_paths()
_LIBRARIES = (
    *sorted({_PATHS[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}),
    str(Path(torch.__file__).parent),
    _OWN,
    "<frozen",
    "<eval_with_key>",
)
"""What the files of libraries begin with, and of graphs that torch makes."""
_ANYWHERE = ("/site-packages/", "/dist-packages/", "/torchinductor_")
"""In paths of libraries of another environment, as one over the system's packages has; and of code
that torch.compile writes, unless a variable names its folder."""
_CACHE = "TORCHINDUCTOR_CACHE_DIR"


def user_place(innermost: FrameType | None) -> Place | None:
    """The innermost line of the program itself, and the function of a library that it called, if it
    did."""
    called = ""
    libraries = (*_LIBRARIES, os.environ.get(_CACHE) or _OWN)
    for code, line in frames(innermost):
        file = code.co_filename
        if not file.startswith(libraries) and not any(part in file for part in _ANYWHERE):
            return file, line, code.co_name, called
        if not file.startswith(_OWN):
            called = code.co_name
    return None
