"""Interruptions of every kind, then the same command again: nothing complete is lost, nothing is
left running."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.campaign import WHOLE, cases, tell_fault
from tests.kills import SWEEPS, Kills

from .conftest import CATALOGUED, RUN_SECONDS, Program

pytestmark = pytest.mark.integration

NET = {"name": "faulty:build", "fault": "none"}
ENDED_SECONDS = 20.0
KILLS = 40 if WHOLE else 2


def wait_for_file(directory: Path, pattern: str, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + RUN_SECONDS
    while not list(directory.glob(pattern)):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.timeout(300 + 60 * KILLS)
@pytest.mark.parametrize(
    ("isolation", "sweep"),
    cases(
        [("auto", "training")],
        # That torchrun and its ranks end with torchscale: also of a node that is killed, in
        # test_nodes.py.
        [
            ("cell", "training"),
            ("group", "training"),
            ("auto", "every kind"),
            ("cell", "every kind"),
            ("group", "every kind"),
        ],
    ),
)
@pytest.mark.real
def test_killed_at_random_moments_and_resumed(
    program: Program, isolation: str, sweep: str, record_property: Callable[[str, object], None]
) -> None:
    kills = Kills(program, isolation, SWEEPS[sweep])
    chance = random.Random(7)
    while kills.killed < KILLS:
        kills.strike(chance)
    kills.finish()
    tell_fault(
        record_property,
        f"torchscale is killed ({sweep}, {isolation})",
        "kill -9 at random moments, resumed",
        "nothing lost",
        kills.told,
    )


@pytest.mark.parametrize(
    ("presses", "isolation"), cases([(2, "cell")], [(1, "cell"), (1, "group"), (2, "group")])
)
@pytest.mark.real
def test_ctrl_c(
    program: Program, presses: int, isolation: str, record_property: Callable[[str, object], None]
) -> None:
    """A single stop request, of a group, is in
    :func:`test_two_sweeps_in_one_folder_and_the_end_of_the_first`."""
    config = program.config(
        models={**NET, "fault": "hang", "step": 6},
        gpu_counts=[2],
        batch_sizes=[4, 8],
        launch={"isolation": isolation},
    )
    process = program.start("benchmark", config)
    wait_for_file(program.directory, "results/run/cells/*/launch-0/progress.jsonl", process)
    time.sleep(1.5)  # by now the ranks hang, or are about to
    pressed = time.monotonic()
    for _ in range(presses):
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    output, _ = process.communicate(timeout=ENDED_SECONDS)
    # The second one may arrive when all is said and done; a shell shows 130 for either.
    assert (
        process.returncode in (130, -signal.SIGINT) if presses == 2 else process.returncode == 130
    ), output
    assert "Interrupted." in output
    assert "Traceback" not in output
    assert time.monotonic() - pressed < ENDED_SECONDS
    (record,) = program.records().values()
    assert record["state"] == "interrupted"
    assert program.leftovers() == []
    tell_fault(
        record_property,
        f"Ctrl-C {'twice' if presses == 2 else 'once'} ({isolation})",
        "SIGINT while ranks hang",
        "exit 130, interrupted",
        f"exit {process.returncode}, {record['state']} after {time.monotonic() - pressed:.1f} s",
    )


@pytest.mark.campaign
def test_a_closed_terminal(
    program: Program, record_property: Callable[[str, object], None]
) -> None:
    config = program.config(models={**NET, "fault": "hang", "step": 6}, gpu_counts=[2])
    inherited = signal.signal(
        signal.SIGHUP, signal.SIG_DFL
    )  # ignored where these tests run under nohup
    try:
        process = program.start("benchmark", config)
    finally:
        signal.signal(signal.SIGHUP, inherited)
    wait_for_file(program.directory, "results/run/cells/*/launch-0/progress.jsonl", process)
    process.send_signal(signal.SIGHUP)
    output, _ = process.communicate(timeout=ENDED_SECONDS)
    assert process.returncode == 130, output
    (record,) = program.records().values()
    assert record["state"] == "interrupted"
    assert program.leftovers() == []
    seen = f"exit {process.returncode}, {record['state']}"
    tell_fault(
        record_property,
        "the terminal is closed",
        "SIGHUP while ranks hang",
        "exit 130, interrupted",
        seen,
    )


def test_a_longer_axis_resumes_another_setting_is_refused_and_a_truncated_record_is_redone(
    program: Program,
) -> None:
    threads = {"threads_per_rank": 1}
    content: dict[str, Any] = {"models": CATALOGUED, "gpu_counts": [1], "launch": threads}
    config = program.config(batch_sizes=[8, 2], **content)
    assert program.run("benchmark", config).returncode == 0
    before = program.records()

    # A record that was cut off is named in the report; the next run sets it aside and measures
    # again.
    kept, damaged = sorted(before)
    path = program.directory / "results/run/cells" / damaged / "record.json"
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])
    shown = program.here("report", "--source", "results/run", "--format", "md", "--output", "-")
    assert shown.returncode == 0
    assert "record.json" in shown.stdout
    config = program.config(batch_sizes=[8, 2, 4], **content)
    extended = program.run("benchmark", config, GLOO_SOCKET_IFNAME="lo")
    assert extended.returncode == 0, extended.stderr
    assert "(variable GLOO_SOCKET_IFNAME changed)" in extended.stderr.replace("\n", " ")
    after = program.records()
    assert [record["state"] for record in after.values()] == ["ok"] * 3
    assert after[kept] == before[kept]
    assert after[damaged]["started_at"] != before[damaged]["started_at"]
    (aside,) = (program.directory / "results/run/quarantine").glob("*-damaged-0/record.json")
    assert aside.read_text() == whole[: len(whole) // 2]
    shown = program.here("report", "--source", "results/run", "--format", "json", "--output", "-")
    assert [one["changed"] for one in json.loads(shown.stdout)["sessions"]] == [
        [],
        ["variable GLOO_SOCKET_IFNAME"],
    ]
    refused = program.here("benchmark", config, "--training.learning_rate=0.5")
    assert refused.returncode == 2
    assert "training.learning_rate (0.0001 there, 0.5 here)" in refused.stderr.replace("\n", " ")


def test_two_sweeps_in_one_folder_and_the_end_of_the_first(
    program: Program, record_property: Callable[[str, object], None]
) -> None:
    config = program.config(
        models={**NET, "fault": "hang", "step": 6},
        gpu_counts=[2],
        batch_sizes=[4, 8],
        launch={"isolation": "group"},
    )
    first = program.start("benchmark", config)
    wait_for_file(program.directory, "results/run/cells/*/launch-0/progress.jsonl", first)
    second = program.here("benchmark", config)
    assert second.returncode == 2
    assert "another torchscale" in second.stderr
    seen = f"exit {second.returncode}, another torchscale is writing"
    tell_fault(
        record_property, "two sweeps in one directory", "both at once", "the second: exit 2", seen
    )
    first.send_signal(signal.SIGTERM)
    output, _ = first.communicate(timeout=ENDED_SECONDS)
    assert first.returncode == 130, output
    assert "Interrupted." in output
    assert "Traceback" not in output
    (record,) = program.records().values()
    assert record["state"] == "interrupted"
    assert program.leftovers() == []


@pytest.mark.real
def test_ctrl_c_before_anything_runs(program: Program) -> None:
    process = program.start("validate")
    started = psutil.Process(process.pid)
    deadline = time.monotonic() + RUN_SECONDS
    while not started.children():  # it has started to look at the machine
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=ENDED_SECONDS)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert program.leftovers() == []
