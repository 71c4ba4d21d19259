"""One command at a time writes to a run folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from torchscale.errors import OutputError, StoreError
from torchscale.store.lock import locked_folder


@pytest.mark.slow
def test_the_lock_excludes_another_process_and_goes_with_it(tmp_path: Path) -> None:
    code = f"""
import pathlib, sys, time
from torchscale.store.lock import locked_folder
with locked_folder(pathlib.Path({str(tmp_path / "run")!r})):
    print("held", flush=True)
    time.sleep(60)
"""
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(StoreError, match="another torchscale"), locked_folder(tmp_path / "run"):
        pass
    holder.kill()
    holder.communicate()
    with locked_folder(tmp_path / "run"):
        pass


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot create"), locked_folder(tmp_path / "file" / "run"):
        pass
