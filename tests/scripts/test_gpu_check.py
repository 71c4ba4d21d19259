"""The script that checks CUDA paths on a user's machine: its verdicts on constructed answers, its
table, its bounds."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from torchscale.util.processes.subprocesses import wait_until

ROOT = Path(__file__).resolve().parents[2]
H100 = "NVIDIA H100 80GB HBM3"


script: Any = importlib.import_module("gpu_check")
GPU: dict[str, Any] = {
    "index": 0, "name": H100, "uuid": "GPU-1", "memory_bytes": 85 * 10**9, "temperature_celsius": 34,
    "ecc_enabled": True, "throttle_reasons": [], "pcie_width": 16, "foreign_processes": [],
}  # fmt: skip
FACTS: dict[str, Any] = {
    "software": {
        "cuda_available": True, "cuda_devices": 1, "torch": "2.13.0", "nccl": "2.28.9", "python": "3.12.3",
    },
    "driver": {"version": "580.65", "gpus": [GPU]},
    "collective": {"backend": "nccl", "world_size": 1, "elements": 789435, "wrong_elements": 0, "error": None},
    "nsys": {"path": "/usr/bin/nsys", "version": "2026.2"},
}  # fmt: skip
NO_GPU: dict[str, Any] = {
    "software": {"cuda_available": False, "torch": "2.13.0+cpu", "python": "3.11.7"}
}


class Answering(script.Session):  # type: ignore[misc] # a class of a script
    """A session whose commands give the same answer."""

    answer: Any = None

    def run(self, *arguments: str, seconds: float) -> Any:
        """The answer."""
        return self.answer


def session(
    tmp_path: Path, facts: Mapping[str, Any] = FACTS, document: Any = None, code: int = 0
) -> Any:
    made = Answering(tmp_path, {}, time.monotonic() + 60, facts)
    made.answer = script.Ran(code, document, "Error: no such thing" if document is None else "")
    return made


def cell(precision: str = "bf16", state: str = "ok", **changes: Any) -> dict[str, Any]:
    gpu = {
        "power_watts": 500.0, "temperature_peak_celsius": 55.0, "busy": 0.98, "energy_joules": 2400.0,
        "sm_clock_hertz": 1.98e9, "throttle_reasons": [],
    }  # fmt: skip
    figures = {
        "samples_per_second": 100.0, "first_loss": 10.5, "last_loss": 7.25, "compile_seconds": None,
        "telemetry": {"seconds": 5.0, "gpus": [gpu], "problem": ""},
    }  # fmt: skip
    whole = {
        "cell_id": "c", "cell": {"precision": precision, "compile": False}, "state": state, "reason": "", "flags": [],
        "figures": figures, "compute": {"mfu": 0.4},
    }  # fmt: skip
    return {**whole, **changes}


def checks(*results: str, on_cpu: bool = False) -> tuple[Any, ...]:
    def check(result: str) -> Callable[..., Any]:
        return lambda session, seconds: script.Outcome(result, f"{result} figure")

    return tuple(
        script.Check(f"check {number}", 5, check(result), on_cpu)
        for number, result in enumerate(results)
    )


def test_the_table_has_a_row_a_check_and_only_a_failure_is_one(tmp_path: Path) -> None:
    rows: list[tuple[str, Any]] = []
    sound = script.perform(
        checks("pass", "not applicable"),
        session(tmp_path),
        lambda check, outcome: rows.append((check.name, outcome)),
    )
    assert sound
    assert script.table(rows) == (
        "check   | result         | figure\n"
        "--------+----------------+-----------------------------------------\n"
        "check 0 | pass           | pass figure\n"
        "check 1 | not applicable | not applicable figure\n"
    )
    assert not script.perform(
        checks("pass", "fail"), session(tmp_path), lambda check, outcome: None
    )


def outcome(check: Any, made: Any) -> Any:
    """What one check comes to."""
    outcomes: list[Any] = []
    script.perform([check], made, lambda _, outcome: outcomes.append(outcome))
    return outcomes[0]


def test_without_a_gpu_nothing_of_cuda_is_judged_and_the_script_is_proven(tmp_path: Path) -> None:
    (on_gpu,), (anywhere,), (failing,) = (
        checks("fail"),
        checks("pass", on_cpu=True),
        checks("fail", on_cpu=True),
    )
    found = [outcome(check, session(tmp_path, NO_GPU)) for check in (on_gpu, anywhere, failing)]
    assert [one.result for one in found] == ["not applicable", "not applicable", "fail"]
    assert found[1].figure == "no CUDA device; on the CPU: pass figure"


def test_a_check_that_is_late_or_misses_something_fails(tmp_path: Path) -> None:
    late = session(tmp_path)
    late.ends = time.monotonic() - 1
    assert outcome(checks("pass")[0], late) == script.Outcome(
        "fail", "not begun: the time for all checks was over"
    )

    def lacking(session: Any, seconds: float) -> Any:
        return session.facts["nothing"]

    found = outcome(script.Check("x", 5, lacking), session(tmp_path))
    assert found == script.Outcome("fail", "its answer lacks something: KeyError: 'nothing'")


def test_the_heading_tells_versions_and_no_names(tmp_path: Path) -> None:
    assert script.heading(FACTS) == (
        f"1 × {H100}, driver 580.65, PyTorch 2.13.0, NCCL 2.28.9, nsys 2026.2, Python 3.12.3"
    )
    assert script.heading(NO_GPU) == "no GPU, PyTorch 2.13.0+cpu, Python 3.11.7"


def test_validate_gives_the_facts_or_fails(tmp_path: Path) -> None:
    good = session(
        tmp_path, {}, {"facts": FACTS, "checks": [{"status": "pass"}], "verdict": "Fit."}
    )
    assert script.validate(good, 5) == script.Outcome("pass", "Fit.")
    assert good.cuda
    failed = {"status": "fail", "title": "ECC", "seen": "GPU 0: 2"}
    unfit = session(tmp_path, {}, {"facts": FACTS, "checks": [failed], "verdict": ""})
    assert script.validate(unfit, 5) == script.Outcome("fail", "ECC: GPU 0: 2")
    silent = script.validate(session(tmp_path, {}, None, code=3), 5)
    assert silent == script.Outcome("fail", "exit code 3: Error: no such thing")


def test_facts_are_judged(tmp_path: Path) -> None:
    assert script.device_known(session(tmp_path), 5).result == "pass"
    stranger = {**FACTS, "driver": {"gpus": [{**GPU, "name": "NVIDIA H100 80GB HBM3 MIG 1g.10gb"}]}}
    assert script.device_known(session(tmp_path, stranger), 5).result == "not applicable"
    assert script.driver(session(tmp_path), 5).figure == "throttle reasons none, 34 °C, ECC on"
    silent = {**FACTS, "driver": {"gpus": [{**GPU, "throttle_reasons": None}]}}
    assert script.driver(session(tmp_path, silent), 5).result == "fail"
    assert script.nccl(session(tmp_path), 5).result == "pass"
    for change in (
        {"backend": "gloo"},
        {"world_size": 0},
        {"wrong_elements": 1},
        {"error": "no result within 120 s"},
    ):
        facts = {**FACTS, "collective": {**FACTS["collective"], **change}}
        assert script.nccl(session(tmp_path, facts), 5).result == "fail"


def test_training_cells_are_measured_together_and_told_apart(tmp_path: Path) -> None:
    cells = [
        cell("fp32"),
        cell("bf16", "crashed", reason="boom"),
        cell("fp8", "skipped", reason="no fp8"),
    ]
    made = session(tmp_path, document={"cells": cells})
    results = [script.training(precision)(made, 5) for precision in ("fp32", "bf16", "fp8")]
    assert [one.result for one in results] == ["pass", "fail", "not applicable"]
    assert [one.figure for one in results] == [
        "100.0 samples/s, loss 7.250",
        "crashed: boom",
        "no fp8",
    ]
    assert (
        script.training("bf16")(session(tmp_path, code=1), 5).figure
        == "missing: exit code 1: Error: no such thing"
    )


@pytest.mark.parametrize(("wall", "result"), [(10.0, "pass"), (9.0, "fail"), (14.0, "fail")])
def test_events_against_the_wall_clock(wall: float, result: str, tmp_path: Path) -> None:
    made = session(tmp_path)
    made.cells = {"bf16": cell()}
    folder = tmp_path / "training" / "cells" / "c" / "launch-0"
    folder.mkdir(parents=True)
    rank = {
        "batches": {"seconds": [4.9] * 2},
        "measured_from": 100.0,
        "measured_until": 100.0 + wall,
    }
    (folder / "record.json").write_text(json.dumps({"payload": {"ranks": [rank]}}))
    assert script.event_clock(made, 5).result == result


@pytest.mark.parametrize(
    ("share", "result"), [(0.4, "pass"), (1.2, "fail"), (0.0, "fail"), (None, "not applicable")]
)
def test_mfu(share: float | None, result: str, tmp_path: Path) -> None:
    made = session(tmp_path)
    made.cells = {
        "fp32": cell("fp32"),
        "bf16": cell(compute={"mfu": share}),
        "fp8": {"state": "missing", "reason": ""},
    }
    if share is None:
        del made.cells["fp32"]
    assert script.mfu(made, 5).result == result


@pytest.mark.parametrize(
    ("change", "result"),
    [
        ({}, "pass"),
        ({"power_watts": 5e5}, "fail"),
        ({"temperature_peak_celsius": 300.0}, "fail"),
        ({"busy": 98.0}, "fail"),
        ({"energy_joules": 2.4e6}, "fail"),
        ({"energy_joules": None}, "pass"),
    ],
)
def test_telemetry_in_wrong_units_is_found(
    change: dict[str, Any], result: str, tmp_path: Path
) -> None:
    made, trained = session(tmp_path), cell()
    trained["figures"]["telemetry"]["gpus"][0].update(change)
    made.cells = {"bf16": trained}
    assert script.telemetry(made, 5).result == result
    trained["figures"]["telemetry"] = None
    assert script.telemetry(made, 5).result == "fail"


def test_a_compiled_model_must_compute_the_same(tmp_path: Path) -> None:
    def answer(loss: float) -> Any:
        other = cell(cell={"precision": "fp32", "compile": "reduce-overhead"})
        other["figures"] |= {
            "first_loss": loss,
            "samples_per_second": 150.0,
            "compile_seconds": 20.0,
        }
        return session(tmp_path, document={"cells": [cell(), other]})

    good = script.compiled("reduce-overhead")(answer(10.501), 5)
    assert good.result == "pass"
    assert good.figure.startswith("1.50 × the speed, compiled in 20 s")
    assert script.compiled("default")(answer(12.0), 5).result == "fail"
    other = cell(state="crashed", reason="overwritten", cell={"compile": True})
    crashed = session(tmp_path, document={"cells": [cell(), other]})
    assert script.compiled("default")(crashed, 5).figure == "crashed: overwritten"
    other = cell(state="interrupted", reason="while warming up", cell={"compile": "max-autotune"})
    slow = session(tmp_path, document={"cells": [cell(), other]})
    judged = script.compiled("max-autotune")(slow, 240)
    assert judged == script.Outcome("not applicable", "not compiled within 240 s")


@pytest.mark.parametrize(
    ("rates", "result"),
    [
        ({"fp32": 50e12, "bf16": 700e12}, "pass"),
        ({"bf16": 1100e12}, "fail"),
        ({"bf16": 70e12}, "fail"),
    ],
)
def test_rates_against_the_documented_ones(
    rates: dict[str, float], result: str, tmp_path: Path
) -> None:
    products = [{"dtype": dtype, "peak": rate} for dtype, rate in rates.items()]
    document = [{"figures": {"matmuls": products}, "reason": ""}]
    assert script.peak_rates(session(tmp_path, document=document), 5).result == result
    unknown = {**FACTS, "driver": {"gpus": [{**GPU, "name": "Another"}]}}
    assert script.peak_rates(session(tmp_path, unknown, document), 5).result == "not applicable"
    failed = session(tmp_path, document=[{"figures": None, "reason": "killed by SIGKILL"}])
    assert script.peak_rates(failed, 5) == script.Outcome("fail", "killed by SIGKILL")


def test_memory_and_its_limits(tmp_path: Path) -> None:
    def predicted(error: float | None) -> Any:
        ranks = [{"peak_bytes": 2**31, "not_predicted": "no tracker"}]
        document = [{"state": "ok", "reason": "", "prediction_error": error, "ranks": ranks}]
        return script.memory_prediction(session(tmp_path, document=document), 5)

    assert predicted(0.05) == script.Outcome("pass", "peak 2.00 GiB, predicted +5.0%")
    assert predicted(-0.4).result == "fail"
    assert predicted(None).figure == "not predicted: no tracker"
    ended = {"oom": "pass", "crashed": "fail", "ok": "fail"}
    for state, result in ended.items():
        assert (
            script.out_of_memory(
                session(tmp_path, document=[{"state": state, "reason": ""}]), 5
            ).result
            == result
        )
    trials = [{"batch_size": 2, "state": "ok"}, {"batch_size": 4, "state": "oom"}]
    document = {"batch_size": 2, "trials": trials}
    assert script.max_batch(session(tmp_path, document=document), 5) == script.Outcome(
        "pass", "2 (2 ok, 4 oom)"
    )
    trials[1]["state"] = "crashed"
    assert script.max_batch(session(tmp_path, document=document), 5).result == "fail"


def test_recordings(tmp_path: Path) -> None:
    rank = {"compute_seconds": 0.5, "window_seconds": 1.0}
    document = {"per_rank": [rank], "window": {"steps": 29}}
    found = script.recorded("kineto")(session(tmp_path, document=document), 5)
    assert found == script.Outcome("pass", "29 steps, kernels in 50% of their time")
    rank["compute_seconds"] = 0.0
    assert script.recorded("nsys")(session(tmp_path, document=document), 5).result == "fail"
    without = {**FACTS, "nsys": {"path": None}}
    assert (
        script.recorded("nsys")(session(tmp_path, without, document), 5).result == "not applicable"
    )


def watched_rank(**changes: Any) -> dict[str, Any]:
    return {"lost_calls": 0, "problem": "", "recorders": {"gloo": 0, "nccl": 404}, **changes}


def watch_report(**changes: Any) -> dict[str, Any]:
    whole = {
        "steps": 200, "device": "cuda", "backend": "nccl", "waits_by": "lengths", "collector_share": 0.0021,
        "per_rank": [watched_rank()], "findings": [], "autopsy": None,
    }  # fmt: skip
    return {**whole, **changes}


@pytest.mark.parametrize(
    ("changes", "result", "figure"),
    [
        ({}, "pass", "200 of 200 steps on cuda over nccl, 404 collectives in"),
        ({"steps": 140}, "fail", "140 of 200 steps"),
        ({"device": "cpu"}, "fail", "on cpu over nccl"),
        ({"per_rank": [watched_rank(lost_calls=7)]}, "fail", "7 collectives lost"),
        ({"per_rank": [watched_rank(problem="KeyError: 'x'")]}, "fail", "KeyError"),
        ({"per_rank": [watched_rank(recorders={"gloo": 404, "nccl": 0})]}, "fail", "0 collectives"),
    ],
)
def test_a_watched_program_is_seen_whole(
    changes: dict[str, Any], result: str, figure: str, tmp_path: Path
) -> None:
    outcome = script.watched(session(tmp_path, document=watch_report(**changes)), 5)
    assert outcome.result == result
    assert figure in outcome.figure


def test_a_watched_program_that_fails_is_no_pass(tmp_path: Path) -> None:
    outcome = script.watched(session(tmp_path, document=watch_report(), code=1), 5)
    assert outcome.result == "fail"


def test_wheels_that_a_machine_has_in_newer_versions_stay_packed() -> None:
    wheels = [
        Path(f"{name}-py3-none-any.whl")
        for name in (
            "typer-0.15.1",
            "pydantic-2.8.0",
            "numpy-2.4.6",
            "scipy-1.17.0",
            "nvidia_ml_py-13.615.71",
        )
    ]
    installed = {"typer": "0.15.1", "pydantic": "1.10.9", "numpy": "1.26.4"}
    chosen = script.wheels_to_unpack(wheels, installed.get)
    assert [wheel.name.partition("-")[0] for wheel in chosen] == [
        "pydantic",
        "scipy",
        "nvidia_ml_py",
    ]


@pytest.mark.parametrize(
    ("tags", "python", "fits"),
    [
        ("py3-none-any", (3, 10), True),
        ("py2.py3-none-any", (3, 13), True),
        ("cp312-cp312-manylinux_2_28_x86_64", (3, 12), True),
        ("cp312-cp312-manylinux_2_28_x86_64", (3, 11), False),
        ("cp36-abi3-manylinux2010_x86_64", (3, 12), True),
        ("cp313-abi3-manylinux2010_x86_64", (3, 12), False),
        ("py2-none-any", (3, 12), False),
    ],
)
def test_a_wheel_says_for_which_python_it_is(
    tags: str, python: tuple[int, int], *, fits: bool
) -> None:
    assert script.is_for(Path(f"wheels/some_name-1.2.3-{tags}.whl"), python) == fits


def test_wheels_for_another_python_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "no_such_package-1.0-cp36-cp36-any.whl").touch()
    assert script.run_checks(tmp_path, tmp_path, [], 10.0) == 2
    assert "is not for Python 3." in capsys.readouterr().err


FAKE_PIP = """
import pathlib, sys
directory = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
(directory / "asked.txt").write_text(" ".join(sys.argv[1:]))
with (directory / "numpy-2.4.6-cp312-cp312-manylinux_2_28_x86_64.whl").open("wb") as file:
    file.truncate(%d << 20)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("mebibytes", "code"), [(55, 0), (61, 1)])
def test_packing_asks_for_what_the_checks_need_and_for_no_more(
    mebibytes: int, code: int, tmp_path: Path
) -> None:
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").touch()
    (tmp_path / "pip" / "__main__.py").write_text(FAKE_PIP % mebibytes)
    wheels = tmp_path / "wheels"
    done = subprocess.run(
        [ROOT / "scripts" / "gpu_check.sh", "pack", wheels, "--python", "3.12"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == code, done.stderr
    assert f"{mebibytes}.0 MiB" in done.stdout
    words = (wheels / "asked.txt").read_text().split()
    assert words[:2] == ["download", "--only-binary=:all:"]
    asked = {word.partition(">=")[0] for word in words if ">=" in word}
    assert asked == set(script.NEEDED)
    assert words[words.index("--python-version") + 1] == "3.12"


# Takes SIGINT as torchscale does, whatever it inherits: a shell starts background jobs with SIGINT
# ignored.
HANGING = """
import pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path("child.txt").write_text(str(child.pid))
print("waiting", file=sys.stderr, flush=True)
try:
    time.sleep(600)
except KeyboardInterrupt:
    child.kill()
    print("interrupted", file=sys.stderr, flush=True)
"""


@pytest.mark.slow
def test_a_command_that_hangs_is_interrupted_at_its_bound(tmp_path: Path) -> None:
    (tmp_path / "torchscale").mkdir()
    (tmp_path / "torchscale" / "__main__.py").write_text(HANGING)
    made = script.Session(
        tmp_path, {**os.environ, "PYTHONPATH": str(tmp_path)}, time.monotonic() + 100
    )
    began = time.monotonic()
    ran = made.run("validate", seconds=8)
    assert time.monotonic() - began < 60
    assert (ran.code, ran.document, ran.problem()) == (
        None,
        None,
        "not finished in time: interrupted",
    )
    child = int((tmp_path / "child.txt").read_text())
    assert wait_until(lambda: not is_running(child), timeout_seconds=10)


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
@pytest.mark.campaign
def test_a_dry_run_without_a_gpu(tmp_path: Path) -> None:
    names = ("MFU below 100 %", "training in fp32", "report", "watch")
    only = [word for name in names for word in ("--only", name)]
    done = subprocess.run(
        [ROOT / "scripts" / "gpu_check.sh", "run", tmp_path / "out", "--wheels", tmp_path, *only],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={**os.environ, "PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = dict(line.split(" | ", 1) for line in done.stdout.splitlines() if " | " in line)
    results = {
        name.strip(): row.partition(" | ") for name, row in rows.items() if name.strip() != "check"
    }
    assert list(results) == ["validate", "training in fp32", "MFU below 100 %", "report", "watch"]
    assert "200 of 200 steps on cpu over gloo" in results["watch"][2]
    assert {row[0].strip() for row in results.values()} == {"not applicable"}
    assert "on the CPU: " in results["training in fp32"][2]
    assert "samples/s" in results["training in fp32"][2]
    assert results["MFU below 100 %"][2] == "no CUDA device"
    assert "report.md" in results["report"][2]
    assert (tmp_path / "out" / "gpu_check.txt").read_text() == done.stdout


def straggler(rank: int = 1, kind: str = "straggler") -> dict[str, Any]:
    return {"kind": kind, "rank": rank, "summary": f"rank {rank} is 6 ms late; look there"}


@pytest.mark.parametrize(
    ("findings", "result", "figure"),
    [
        ([straggler()], "pass", "rank 1 is 6 ms late"),
        ([straggler(), straggler(0, "pauses")], "pass", "rank 1 is 6 ms late"),
        ([straggler(0)], "fail", "rank 0 is 6 ms late"),
        ([straggler(), straggler(0)], "fail", "rank 0 is 6 ms late"),
        ([], "fail", "nobody is named"),
    ],
)
def test_the_late_rank_alone_is_to_be_named(
    findings: list[dict[str, Any]], result: str, figure: str, tmp_path: Path
) -> None:
    watched = watch_report(findings=[{"finding": item} for item in findings])
    launched = {"cells": [{**cell(), "diagnosis": {"findings": findings}}]}
    for check, document in (
        (script.late_rank_watched("nccl", "ddp"), watched),
        (script.late_rank_launched("fsdp"), launched),
        (
            script.late_rank_recorded("ddp"),
            {"findings": findings, "window": {"confidence": "high", "reasons": []}},
        ),
    ):
        found = check(session(tmp_path, document=document), 5)
        assert (found.result, figure in found.figure) == (result, True)
        assert check(session(tmp_path, code=1), 5).result == "fail"


def test_a_recording_that_judges_no_rank_says_why(tmp_path: Path) -> None:
    window = {"confidence": "low", "reasons": ["the ranks' clocks do not agree"]}
    others = [{"kind": "host_bound", "summary": "the device has nothing to do", "rank": None}]
    made = session(tmp_path, document={"findings": others, "window": window})
    found = script.late_rank_recorded("fsdp")(made, 5)
    assert found.result == "not applicable"
    assert found.figure == "fsdp: not judged: the ranks' clocks do not agree"


def test_a_hang_is_to_be_explained_by_the_recorders(tmp_path: Path) -> None:
    verdict = {
        "ranks": [1], "collective": {"operation": "all_reduce"}, "summary": "rank 1 never called it",
        "evidence": ["flight recorders read: nccl (404)"],
    }  # fmt: skip
    found = script.hang_explained(session(tmp_path, document=watch_report(autopsy=verdict)), 5)
    assert found == script.Outcome(
        "pass", "rank 1 never called it; flight recorders read: nccl (404)"
    )
    for wrong in ({**verdict, "ranks": [0]}, {**verdict, "collective": None}, None):
        report = watch_report(autopsy=wrong)
        assert script.hang_explained(session(tmp_path, document=report), 5).result == "fail"


def test_graphs_that_cannot_be_captured_beside_watch_fail(tmp_path: Path) -> None:
    check = script.graphs_beside_watch
    assert check(session(tmp_path, document=watch_report()), 5).result == "pass"
    assert check(session(tmp_path, document=watch_report(), code=1), 5).result == "fail"


def test_checks_that_judge_no_time_run_side_by_side_and_are_told_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    both = threading.Barrier(2, timeout=30)

    def waits(made: Any, seconds: float) -> Any:
        both.wait()
        return script.Outcome("pass", "")

    def alone(made: Any, seconds: float) -> Any:
        return script.Outcome("pass", "")

    chosen = (
        script.Check("first", 30, waits, beside=True),
        script.Check("second", 30, waits, beside=True),
        script.Check("third", 30, alone),
    )
    seen: list[str] = []
    assert script.perform(chosen, session(tmp_path), lambda check, _: seen.append(check.name))
    assert seen == ["first", "second", "third"]
