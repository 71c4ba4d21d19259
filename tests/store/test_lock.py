"""One command at a time writes to a run folder."""

from __future__ import annotations

import errno
import fcntl
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
        pytest.raises(OutputError, match=r"cannot create .*/run: Not a directory$"),
        locked_folder(tmp_path / "file" / "run"),
    ):
        pass


def test_a_pipe_in_place_of_the_lock_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock")
    with (
        pytest.raises(OutputError, match=r"/\.lock: not a regular file"),
        locked_folder(tmp_path),
    ):
        pass
    assert not is_locked(tmp_path)


def test_a_link_in_place_of_the_lock_makes_no_file_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "outside")
    with (
        pytest.raises(OutputError, match=r"/\.lock: is a link; remove it$"),
        locked_folder(tmp_path / "run"),
    ):
        pass
    assert not (tmp_path / "outside").exists()


def test_a_folder_that_is_held_is_refused_and_told_and_free_afterwards(tmp_path: Path) -> None:
    with locked_folder(tmp_path):
        assert is_locked(tmp_path)
        with pytest.raises(StoreError, match="another torchscale"), locked_folder(tmp_path):
            pass
        assert is_locked(tmp_path), "the one that was refused took nothing away"
    assert not is_locked(tmp_path)
    assert not is_locked(tmp_path / "nowhere")
    with locked_folder(tmp_path):
        pass


def test_a_look_at_the_lock_fails_no_command_that_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks whether a folder is locked holds the lock for an instant."""
    with locked_folder(tmp_path):
        pass
    waits: list[float] = []
    with (tmp_path / ".lock").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)

        def sleep(seconds: float) -> None:
            waits.append(seconds)
            fcntl.flock(looking, fcntl.LOCK_UN)

        monkeypatch.setattr("torchscale.store.lock.time.sleep", sleep)
        with locked_folder(tmp_path):
            pass
    assert len(waits) == 1
    assert 0 < waits[0] < 1, "nobody notices"


def test_a_file_system_without_locks_is_no_second_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("torchscale.store.lock.fcntl.flock", flock)
    with (
        pytest.raises(OutputError, match=r"cannot lock .*: No locks available$"),
        locked_folder(tmp_path),
    ):
        pass


@pytest.mark.parametrize(
    ("method", "said"), [("os.open", r"cannot create .*/\.lock"), ("fcntl.flock", "cannot lock .*")]
)
def test_an_error_without_a_number_is_told_in_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, said: str
) -> None:
    def failing(*_: object) -> None:
        raise OSError("the server is gone")

    monkeypatch.setattr(f"torchscale.store.lock.{method}", failing)
    with (
        pytest.raises(OutputError, match=rf"{said}: the server is gone$"),
        locked_folder(tmp_path),
    ):
        pass


def test_others_of_the_group_may_lock_what_they_may_write(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        with locked_folder(tmp_path):
            assert (tmp_path / ".lock").stat().st_mode & 0o777 == 0o664
    finally:
        os.umask(before)
