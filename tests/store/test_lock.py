"""One command at a time writes to a run folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchscale.errors import OutputError, StoreError
from torchscale.store.lock import is_locked, locked_folder


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
    with (
        pytest.raises(OutputError, match="cannot create"),
        locked_folder(tmp_path / "file" / "run"),
    ):
        pass


def test_a_pipe_in_place_of_the_lock_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock")
    with (
        pytest.raises(OutputError, match=r"its \.lock is not a regular file"),
        locked_folder(tmp_path),
    ):
        pass
    assert not is_locked(tmp_path)


def test_a_link_in_place_of_the_lock_makes_no_file_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "outside")
    with pytest.raises(OutputError), locked_folder(tmp_path / "run"):
        pass
    assert not (tmp_path / "outside").exists()
