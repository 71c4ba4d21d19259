"""Whether the command that follows a job is there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from torchscale.features.watch.job.liveness import (
    RUNS,
    SILENT_SECONDS,
    gave_sign,
    give_sign,
    is_followed,
    this_run,
)


def test_this_process_follows_its_run() -> None:
    run = this_run(time.time())

    assert (run.pid, run.ended) == (os.getpid(), None)
    assert is_followed(run) is True


def test_the_number_of_a_process_that_began_later_is_anothers() -> None:
    began = psutil.Process().create_time()

    assert is_followed(this_run(began - 60.0)) is False
    assert is_followed(this_run(began + 60.0)) is True


@pytest.mark.parametrize("place", [{"host": "far-away"}, {"namespace": "pid:[1]"}])
def test_a_number_of_another_host_or_container_says_nothing(place: dict[str, str]) -> None:
    assert is_followed(this_run(time.time()).model_copy(update=place)) is None


@pytest.mark.slow
def test_a_process_that_was_killed_and_not_waited_for_is_gone() -> None:
    code = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        run = this_run(time.time()).model_copy(update={"pid": process.pid})
        assert is_followed(run) is True
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
        assert is_followed(run) is False
        process.wait(30)
        assert is_followed(run) is False


def test_a_sign_is_seen_until_it_is_old(tmp_path: Path) -> None:
    give_sign(tmp_path)  # without a list of runs nothing is touched, and nothing fails
    assert not gave_sign(tmp_path / RUNS, time.time())
    (tmp_path / RUNS).write_text("")
    os.utime(tmp_path / RUNS, (1.0, 1.0))
    assert not gave_sign(tmp_path / RUNS, time.time())
    give_sign(tmp_path)

    assert gave_sign(tmp_path / RUNS, time.time())
    assert not gave_sign(tmp_path / RUNS, time.time() + SILENT_SECONDS + 1)
