"""Imports torch's compiler before anything else does."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile

_COMPILER = "torch._dynamo"
_DIRECTORY = "TORCHINDUCTOR_CACHE_DIR"
_FIXED_BY_THE_IMPORT = "TORCH_CACHING_PRECOMPILE"
"""Variable of whoever keeps whole programs in the cache: their place follows from the directory at
the time of the import."""


def import_compiler() -> None:
    """Import what torch itself imports when the first optimizer is made, which takes a second:
    forks have it then.

    torch makes the directory of its cache in TMPDIR as soon as its compiler is imported, and would
    leave an empty one behind. Meanwhile the cache is said to be in a directory that is there
    already; what compiles makes the real one, which other programs use too.
    """
    if _COMPILER in sys.modules or _DIRECTORY in os.environ or _FIXED_BY_THE_IMPORT in os.environ:
        importlib.import_module(_COMPILER)
        return
    os.environ[_DIRECTORY] = tempfile.gettempdir()
    try:
        importlib.import_module(_COMPILER)
    finally:
        os.environ.pop(_DIRECTORY, None)
