"""Which Python a command runs in."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from torchscale.features.trace import program_python
from torchscale.features.trace.program_python import has_cuda_device, python_of


def script(directory: Path, name: str, head: str) -> Path:
    path = directory / name
    path.write_text(f"{head}\nprint()\n")
    path.chmod(0o755)
    return path


def test_the_first_word_that_tells_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    script(tmp_path, "torchrun", "#!/opt/env/bin/python3.12")
    script(tmp_path, "accelerate", "#!/usr/bin/env python3")
    script(
        tmp_path,
        "deep",
        "#!/bin/sh\n'''exec' \"/a/very/long/path/bin/python3.11\" \"$0\" \"$@\"\n' '''",
    )
    script(tmp_path, "srun", "#!/bin/sh")
    assert python_of([sys.executable, "train.py"]) == sys.executable
    assert python_of(["torchrun", "--nproc-per-node", "4", "train.py"]) == "/opt/env/bin/python3.12"
    assert python_of(["accelerate", "launch", "train.py"]) == "python3"
    assert python_of(["deep", "x"]) == "/a/very/long/path/bin/python3.11"
    assert python_of(["srun", "-N2", "torchrun", "train.py"]) == "/opt/env/bin/python3.12"
    assert python_of(["env", "A=b", sys.executable, "-m", "train"]) == sys.executable
    assert python_of(["./no-such-script.sh"]) == "python3"


@pytest.mark.slow
def test_without_a_device_no_python_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started = []
    monkeypatch.setattr(program_python, "run_bounded", lambda *words, **_: started.append(words))
    monkeypatch.setattr(program_python, "_DEVICES", tmp_path)
    assert not has_cuda_device([sys.executable, "train.py"])
    assert not started


@pytest.mark.slow
@pytest.mark.parametrize(("available", "expected"), [("True", True), ("False", False)])
def test_torch_there_is_asked(
    available: str, expected: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(program_python, "_DEVICES", tmp_path)
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        f"class cuda:\n    is_available = staticmethod(lambda: {available})\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert has_cuda_device([sys.executable, "train.py"]) is expected
