"""Calibrated baselines and files of several machines through the whole program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.program import torchscale
from tests.features.compare.cli.test_compare import measured
from tests.features.compare.test_calibration import a_a_folder, level

CALIBRATE = ("nights", "--calibrate", "read", "--save", "main")


def calibrated(path: Path, *options: str) -> None:
    """A baseline ``main`` from 12 runs that differ by 1 to 4 %."""
    a_a_folder(path / "nights", 12)
    done = torchscale(path, "compare", *CALIBRATE, *options)
    assert done.returncode == 0, done.stderr


def test_a_calibrated_baseline_judges_one_launch_and_says_by_what(tmp_path: Path) -> None:
    calibrated(tmp_path, "--false-alarms", "1/10")
    measured(tmp_path / "same", level(3)[:1])
    measured(tmp_path / "slow", [1.3])
    same = torchscale(tmp_path, "compare", "main", "same")
    assert (same.returncode, same.stderr) == (0, "")
    told = " ".join(same.stdout.split())
    assert "No alarm: same is within the calibrated" in told
    assert "calibrated from 12 A/A runs: one false alarm in 10 runs." in told
    slow = torchscale(tmp_path, "compare", "main", "slow", "--json")
    assert slow.returncode == 1
    assert "1 cell worse or lost" in slow.stderr
    content = json.loads(slow.stdout)
    assert content["calibration"]["runs"] == 12
    assert content["calibration"]["used"] is True
    (change,) = (
        one for one in content["pairs"][0]["cells"][0]["changes"] if one["metric"] == "throughput"
    )
    assert (change["verdict"], change["p_corrected"]) == ("worse", None)
    assert 0.01 < change["limit"] < 0.1


def test_a_threshold_on_the_command_line_wins_and_is_told(tmp_path: Path) -> None:
    calibrated(tmp_path)
    measured(tmp_path / "slow", [1.3, 1.3, 1.3])
    done = torchscale(tmp_path, "compare", "main", "slow", "--threshold", "40%", "--json")
    assert json.loads(done.stdout)["calibration"]["used"] is False
    printed = torchscale(tmp_path, "compare", "main", "slow", "--threshold", "40%")
    assert "Gate: --threshold 40.0 %, in place of the calibrated thresholds of main." in " ".join(
        printed.stdout.split()
    )
    markdown = torchscale(tmp_path, "compare", "main", "slow", "--format", "md").stdout
    assert "- Gate? **calibrated** cell thresholds of" in markdown


def test_what_a_calibration_rests_on_is_printed_and_kept(tmp_path: Path) -> None:
    a_a_folder(tmp_path / "nights", 12)
    done = torchscale(tmp_path, "compare", *CALIBRATE)
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.split())
    assert "Calibrated from 12 A/A runs of 2 launches on node-1" in told
    assert "one false alarm a year at 10 runs a day" in told
    assert "All are of one day" in told
    shown = torchscale(tmp_path, "runs", "baselines", "main").stdout
    assert "Calibrated thresholds" in shown
    kept = json.loads((tmp_path / "baselines" / "main.json").read_text())["calibration"]
    assert (kept["false_alarms"], kept["runs_per_day"], kept["runs"]) == ("1/year", 10.0, 12)
    assert kept["cells"][0]["threshold"] > 0


def test_a_gate_that_cannot_see_a_quarter_says_so(tmp_path: Path) -> None:
    for number in range(10):
        measured(tmp_path / "nights" / f"run-{number}", [1 + 0.1 * number] * 2)
    done = torchscale(tmp_path, "compare", *CALIBRATE)
    assert "this gate does not see a loss of a quarter there" in " ".join(done.stdout.split())
    new = torchscale(tmp_path, "compare", "main", "nights/run-3")
    assert "It does not see a loss of 25.0 %" in " ".join(new.stdout.split())
    assert new.returncode == 0


def test_machines_in_one_file_are_a_reference_without_a_verdict(tmp_path: Path) -> None:
    names = [f"m{number}" for number in range(3)]
    for number, name in enumerate(names):
        measured(tmp_path / name, [1 + 0.1 * number] * 2, experiment_name=name)
    measured(tmp_path / "new", [5.0] * 2)
    saved = torchscale(tmp_path, "compare", *names, "--save", "fleet", "--json")
    assert json.loads(saved.stdout)["machines"] == 3
    done = torchscale(tmp_path, "compare", "new", "--against", "fleet")
    assert done.returncode == 0, "a place is no verdict"
    assert "better than 0 of 3 other machines: too few to tell a percentile" in " ".join(
        done.stdout.split()
    )
    content = json.loads(
        torchscale(tmp_path, "compare", "new", "--against", "fleet", "--json").stdout
    )
    (place,) = content["places"]
    assert (place["worse"], place["percentile"], len(place["others"])) == (0, None, 3)
    refused = torchscale(tmp_path, "compare", "fleet", "new")
    assert refused.returncode == 2
    assert "holds 3 machines" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a", "--calibrate", "20"), "--calibrate is for --save"),
        (("a", "--calibrate", "many", "--save", "x"), "--calibrate many: expected a number of A/A"),
        (("a", "--calibrate", "3", "--save", "x"), "--calibrate 3: expected 10 to 200 A/A runs"),
        (("a", "--calibrate", "read", "--save", "x"), "1 A/A run; expected 10 or more"),
        (("a", "--save", "x", "--false-alarms", "1/year"), "--false-alarms is for --calibrate"),
        (
            ("a", "--save", "x", "--calibrate", "read", "--false-alarms", "often"),
            "--false-alarms often: expected a number and a period",
        ),
        (
            ("a", "--save", "x", "--calibrate", "read", "--false-alarms", "1/2"),
            "--false-alarms 1/2: 0.5 of the runs; expected 1e-06 to 0.2",
        ),
        (
            ("a", "--save", "x", "--calibrate", "read", "--runs-per-day", "0"),
            "--runs-per-day 0: expected a number above 0",
        ),
        (
            ("a", "--save", "x", "--calibrate", "read", "--threshold", "3%"),
            "--threshold is for a comparison",
        ),
        (("a", "a", "--against", "a"), "--against a takes one run, not 2"),
        (("a", "--against", "a", "--threshold", "3%"), "--threshold is for a verdict"),
        (("a", "--against", "nowhere"), "or a file or directory with results of other machines"),
    ],
)
def test_bad_input_is_told_in_a_line(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    measured(tmp_path / "a")
    done = torchscale(tmp_path, "compare", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "baselines").exists()
