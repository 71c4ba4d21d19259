"""Which Python a user's command runs in, and whether PyTorch there has a CUDA device."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from torchscale.errors import MachineError
from torchscale.util.processes.bounded import run_bounded

_PROBE = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 1)"
_PROBE_SECONDS = 120.0
"""Importing torch takes one to two seconds, and a minute from a cold network file system."""
_DEVICES = Path("/dev")
_PYTHON = re.compile(r"python(?:\d(?:\.\d+)?)?")
_HEAD_BYTES = 1024
_SHEBANG = re.compile(r"#!\s*(?:/\S*/env\s+(?:-S\s+)?)?(\S*python[\d.]*)")
_LONG_SHEBANG = re.compile(r"'''exec' \"?([^\"\s]*python[\d.]*)\"?")
"""pip writes it where the path of the interpreter is too long for the kernel."""


def has_cuda_device(command: Sequence[str]) -> bool:
    """Whether torch, in the Python that ``command`` runs in, finds a CUDA device here."""
    if not any(_DEVICES.glob("nvidia[0-9]*")) and not (_DEVICES / "dxg").exists():
        return False  # dxg: of the Windows subsystem for Linux
    try:
        return (
            run_bounded(
                [python_of(command), "-c", _PROBE], timeout_seconds=_PROBE_SECONDS
            ).returncode
            == 0
        )
    except MachineError:
        return False


def python_of(command: Sequence[str]) -> str:
    """The interpreter of the first word that is one, or a script of one (as torchrun and accelerate
    are); ``python3`` where no word is, as with a shell script."""
    for word in command:
        path = shutil.which(word)
        if path is None:
            continue
        if _PYTHON.fullmatch(Path(path).name):
            return path
        interpreter = _interpreter(Path(path))
        if interpreter is not None:
            return interpreter
    return "python3"


def _interpreter(script: Path) -> str | None:
    """The interpreter that a script's first lines name; ``None`` for other programs."""
    try:
        with script.open("rb") as file:
            head = file.read(_HEAD_BYTES).decode(errors="replace")
    except OSError:
        return None
    if not head.startswith("#!"):
        return None
    match = _SHEBANG.match(head) or _LONG_SHEBANG.search(head)
    if match is None:
        return None
    return match[1]
