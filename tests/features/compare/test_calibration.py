"""A baseline with thresholds, from runs that are there or are measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.features.compare.cli.test_compare import measured
from torchscale.config.choices import Metric
from torchscale.config.experiment import Experiment
from torchscale.errors import UsageError
from torchscale.features.compare import calibration
from torchscale.features.compare.baseline_files import load_baseline
from torchscale.features.compare.calibration import (
    CalibrationRules,
    calibrate_runs,
    measure_and_calibrate,
)
from torchscale.features.compare.rate import AlarmRate
from torchscale.observer import Observer

RATE = AlarmRate("1/20", 10.0, 0.05)


def rules(tmp_path: Path, *, replace: bool = False) -> CalibrationRules:
    return CalibrationRules((), RATE, tmp_path / "baselines", replace)


def level(number: int) -> list[float]:
    """Seconds of the launches of a run: runs differ by a percent."""
    return [1 + 0.01 * (number % 5) + 1e-6 * number + 0.001 * launch for launch in range(2)]


def a_a_folder(folder: Path, count: int) -> Path:
    for number in range(count):
        measured(folder / f"run-{number:02}", level(number), benchmark={"repeats": 2})
    return folder


@dataclass(frozen=True)
class Ended:
    interrupted: bool


class Measure:
    """Writes what a benchmark would; the run with this number is interrupted before it begins."""

    def __init__(self, interrupted: int) -> None:
        self.interrupted = interrupted
        self.written: list[str] = []

    def __call__(self, experiment: Experiment, *, output_dir: Path, observer: Observer) -> Ended:
        del observer
        if len(self.written) == self.interrupted:
            self.interrupted = -1
            return Ended(interrupted=True)
        assert experiment.benchmark.repeats == 2
        measured(output_dir, level(len(self.written)), benchmark={"repeats": 2})
        self.written.append(output_dir.name)
        return Ended(interrupted=False)


def test_the_launches_of_all_runs_are_the_baseline_each_in_its_session(tmp_path: Path) -> None:
    folder = a_a_folder(tmp_path / "nights", 12)
    outcome = calibrate_runs("main", [str(folder)], rules(tmp_path))
    assert outcome.saved is not None
    kept = load_baseline("main", tmp_path / "baselines")
    assert kept.calibration == outcome.saved.calibration
    assert [len(cell.launches) for cell in kept.cells] == [24]
    assert len(kept.sessions) == 12
    assert kept.calibration.runs == 12


def test_an_interrupted_series_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = measured(tmp_path / "results" / "main", level(99), benchmark={"repeats": 2})
    measure = Measure(interrupted=4)
    monkeypatch.setattr(calibration, "_MEASURE", {"benchmark": measure})
    first = measure_and_calibrate("main", [str(run)], 10, rules(tmp_path))
    assert (first.saved, first.runs) == (None, 4)
    assert not (tmp_path / "baselines").exists()
    second = measure_and_calibrate("main", [str(run)], 10, rules(tmp_path))
    assert second.saved is not None
    assert measure.written == [f"run-{number:03}" for number in range(1, 11)], "each once"
    assert second.runs == 11, "the run itself is one, too"


def test_runs_of_other_devices_are_no_a_a_runs(tmp_path: Path) -> None:
    folder = a_a_folder(tmp_path / "nights", 11)
    measured(folder / "other", level(0), device="Another Processor", benchmark={"repeats": 2})
    with pytest.raises(UsageError, match=r"differ in device \(Another Processor \| Test"):
        calibrate_runs("main", [str(folder)], rules(tmp_path))


@pytest.mark.parametrize(
    ("count", "told"), [(9, "expected 10 to 200"), (201, "expected 10 to 200")]
)
def test_a_number_of_runs_that_makes_no_sense_is_refused(
    tmp_path: Path, count: int, told: str
) -> None:
    run = measured(tmp_path / "results" / "main")
    with pytest.raises(UsageError, match=told):
        measure_and_calibrate("main", [str(run)], count, rules(tmp_path))


def test_what_cannot_be_measured_again_is_refused_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    run = measured(tmp_path / "results" / "main")
    calibrate_runs("main", [str(a_a_folder(tmp_path / "nights", 10))], rules(tmp_path))
    baseline = tmp_path / "baselines" / "main.json"
    with pytest.raises(UsageError, match="exists"):
        measure_and_calibrate("main", [str(run)], 10, rules(tmp_path))
    with pytest.raises(UsageError, match="is no run folder"):
        measure_and_calibrate("other", [str(baseline)], 10, rules(tmp_path))
    with pytest.raises(UsageError, match="one run again, not 2"):
        measure_and_calibrate("other", [str(run), str(run)], 10, rules(tmp_path))
    assert not (tmp_path / "results" / "main-calibration").exists()


def test_runs_are_named_as_everywhere_and_each_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_a_folder(tmp_path / "results", 11)
    monkeypatch.chdir(tmp_path)
    names = [f"run-{number:02}" for number in range(11)]
    outcome = calibrate_runs("main", [*names, "results/run-00"], rules(tmp_path))
    assert outcome.saved is not None
    assert outcome.saved.calibration.runs == 11


def test_what_the_run_does_not_have_is_said_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = measured(tmp_path / "main", level(99), benchmark={"repeats": 2})
    measure = Measure(interrupted=100)
    monkeypatch.setattr(calibration, "_MEASURE", {"benchmark": measure})
    asked = CalibrationRules((Metric.COST,), RATE, tmp_path / "baselines")
    with pytest.raises(UsageError, match=r"--metric cost: .* has none"):
        measure_and_calibrate("main", [str(run)], 10, asked)
    assert not measure.written


def test_records_alone_have_no_sessions(tmp_path: Path) -> None:
    folder = a_a_folder(tmp_path / "nights", 12)
    records = sorted(map(str, folder.glob("*/cells/*/launch-0/record.json")))
    outcome = calibrate_runs("main", records, rules(tmp_path))
    assert outcome.saved is not None
    assert outcome.runs == 12
