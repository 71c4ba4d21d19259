"""The program in this process: what a shell shows of it, without the start of an interpreter for
every command."""

from __future__ import annotations

import contextlib
import io
import signal
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from torchscale.cli.main import main


def torchscale(directory: Path, *arguments: str, columns: int = 140) -> CompletedProcess[str]:
    """Exit code and output of ``torchscale`` with these arguments, called in ``directory`` on a
    terminal so wide."""
    handlers = {
        number: signal.getsignal(number)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    }
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        patch.setenv("COLUMNS", str(columns))
        patch.setenv("NO_COLOR", "1")
        patch.setattr(sys, "argv", ["torchscale", *arguments])
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
                code = 0
            except SystemExit as end:
                code = int(end.code or 0)
            finally:
                for number, handler in handlers.items():
                    signal.signal(number, handler)
                out.flush()
                err.flush()
    return CompletedProcess(list(arguments), code, _text(out), _text(err))


def _text(stream: io.TextIOWrapper) -> str:
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()
