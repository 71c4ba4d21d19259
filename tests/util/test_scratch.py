from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from torchscale.util.interpreter import module_command
from torchscale.util.scratch import scratch_directory

HOLD = (
    "from torchscale.util.scratch import scratch_directory as s\nwith s('test') as d: print(d, "
    "flush=True); input()"
)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_directory_is_gone_at_the_end(place: Path) -> None:
    with scratch_directory("test") as directory:
        assert directory.parent == place
        assert directory.name.startswith("torchscale-test-")
        (directory / "file").write_text("x")
    assert list(place.iterdir()) == []


def test_what_is_in_use_or_not_ours_stays(place: Path) -> None:
    strange = place / "torchscale-test-strange"
    strange.mkdir()
    (place / "torchscale-test-link").symlink_to(strange)
    (place / "torchscale-test-file").touch()
    with scratch_directory("test") as first, scratch_directory("test") as second:
        assert first != second
        assert first.is_dir()
    assert {path.name for path in place.iterdir()} == {
        "torchscale-test-strange",
        "torchscale-test-link",
        "torchscale-test-file",
    }


@pytest.mark.slow
def test_what_a_killed_process_left_is_removed_by_the_next_one(place: Path) -> None:
    interpreter = module_command("torchscale")[0]
    environment = {**os.environ, "TMPDIR": str(place)}
    with subprocess.Popen(
        [interpreter, "-c", HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        (left / "rank-0.json").write_text("{}")
        with scratch_directory("test"):
            assert left.is_dir(), "its process lives"
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
    assert left.is_dir()
    with scratch_directory("other"):
        assert not left.exists()
    assert list(place.iterdir()) == []
