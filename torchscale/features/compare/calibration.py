"""A/A runs → a baseline with thresholds: runs that exist are read, others are measured first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torchscale.config.choices import Metric
from torchscale.config.experiment import Experiment
from torchscale.door import Slot
from torchscale.errors import StoreError, UsageError
from torchscale.features.compare.analysis.calibrate import MIN_RUNS, calibrate
from torchscale.features.compare.analysis.differences import SideDifference, differences
from torchscale.features.compare.analysis.headlines import decides
from torchscale.features.compare.baseline_files import BASELINES, free_path, save_baseline
from torchscale.features.compare.inputs import load_sides, load_source, meant_source
from torchscale.features.compare.merged import calibrated_baseline, each_once
from torchscale.features.compare.rate import AlarmRate
from torchscale.observer import SILENT, Observer
from torchscale.read.folders import run_folder
from torchscale.schema.run.calibration import Calibration
from torchscale.schema.run.result_set import ResultCell, ResultSet
from torchscale.util.secret_names import REDACTED

MOST_RUNS = 200
"""Maximum number of A/A runs to measure: more do not make a threshold better by what they cost."""


class MeasuredAgain(Protocol):
    """What a benchmark says of its end."""

    @property
    def interrupted(self) -> bool:
        """Whether it was stopped before it was complete."""
        ...


class MeasureAgain(Protocol):
    """Measures what is still to be measured of an experiment into a run folder."""

    def __call__(
        self, experiment: Experiment, *, output_dir: Path, observer: Observer
    ) -> MeasuredAgain:
        """Returns when it has ended or was interrupted."""
        ...


_MEASURE: Slot[MeasureAgain] = Slot("runs again")


@dataclass(frozen=True)
class CalibrationRules:
    """How a baseline is calibrated.

    Attributes:
        metrics: What decides; by default speed alone.
        rate: Of false alarms.
        baselines: Where baselines are kept.
        replace: Overwrite a baseline of that name.
    """

    metrics: tuple[Metric, ...]
    rate: AlarmRate
    baselines: Path = BASELINES
    replace: bool = False


@dataclass(frozen=True)
class CalibratedBaseline:
    """A baseline that was written, its thresholds, and in what its A/A runs differ that can change
    a figure."""

    path: Path
    results: ResultSet
    calibration: Calibration
    differing: tuple[SideDifference, ...]


@dataclass(frozen=True)
class CalibrationOutcome:
    """``saved`` is ``None`` where measuring was interrupted; ``runs`` is how many A/A runs are
    complete."""

    saved: CalibratedBaseline | None
    runs: int


def calibrate_runs(
    name: str, sources: Sequence[str], rules: CalibrationRules, observer: Observer = SILENT
) -> CalibrationOutcome:
    """Read A/A runs, and keep them as a baseline with thresholds (writes).

    Raises:
        UsageError: the name is taken or is none, there are too few runs, or they are no A/A runs.
        StoreError: a source cannot be read.
        OutputError: the baseline cannot be written.
    """
    free_path(name, rules.baselines, replace=rules.replace)
    meant = [meant_source(source, rules.baselines) for source in sources]
    with observer.status("Reading"):
        sides, left_out = load_sides(meant, rules.baselines)
    for text in left_out:
        observer.note(text)
    if not sides:
        raise UsageError(f"{' '.join(sources)}: no run; expected {MIN_RUNS} A/A runs or more")
    runs = each_once([side.results for side in sides], observer)
    differing = differences(runs)
    _refuse_other_machines(differing)
    calibration = calibrate(runs, rules.metrics, rules.rate)
    results = calibrated_baseline(runs, calibration)
    path = save_baseline(results, name, rules.baselines, replace=rules.replace)
    return CalibrationOutcome(
        CalibratedBaseline(path, results, calibration, tuple(differing)), len(runs)
    )


def measure_and_calibrate(
    name: str,
    sources: Sequence[str],
    count: int,
    rules: CalibrationRules,
    observer: Observer = SILENT,
) -> CalibrationOutcome:
    """Measure the config of a run ``count`` more times, each as a run of its own in
    ``RUN-calibration`` beside it, then calibrate from all of them and the run itself.

    What is complete there is kept, so that the same call goes on after an interruption.

    Raises:
        UsageError: as :func:`calibrate_runs`; or the source is no run folder with a config.
        MachineError: this machine cannot run the config.
        StoreError: a folder there holds another experiment.
    """
    if not MIN_RUNS <= count <= MOST_RUNS:
        raise UsageError(
            f"--calibrate {count}: expected {MIN_RUNS} to {MOST_RUNS} A/A runs: how far runs "
            "scatter is not known from fewer"
        )
    if len(sources) != 1:
        raise UsageError(
            f"--calibrate {count} measures one run again, not {len(sources)}",
            hint="--calibrate read takes the sources as the A/A runs",
        )
    free_path(name, rules.baselines, replace=rules.replace)
    run = run_folder(Path(sources[0]), observer)
    reference = load_source(str(run), rules.baselines)
    experiment = _repeatable(reference, run)
    if not any(decides(*figure, rules.metrics) for figure in _figures(reference)):
        wanted = " or ".join(metric.value for metric in rules.metrics)
        raise UsageError(f"--metric {wanted}: {run} has none, so there is nothing to calibrate")
    folder = run.parent / f"{run.name}-calibration"
    for number in range(1, count + 1):
        directory = folder / f"run-{number:03d}"
        if _is_complete(directory, reference):
            continue
        observer.note(f"A/A run {number} of {count}: {directory}")
        measured = _MEASURE["benchmark"](experiment, output_dir=directory, observer=observer)
        if measured.interrupted:
            return CalibrationOutcome(None, number - 1)
        if number == 1:  # on another machine the others would be in vain
            _refuse_other_machines(differences([reference, load_source(str(directory))]))
    return calibrate_runs(name, [str(run), str(folder)], rules, observer)


def _repeatable(results: ResultSet, run: Path) -> Experiment:
    """The config of a run, to measure it again.

    Raises:
        UsageError: it has none, measured nothing, or its secrets were not kept.
    """
    if results.config is None or not run.is_dir():
        raise UsageError(
            f"{run} is no run folder, so that it cannot be measured again",
            hint="name a directory that `torchscale benchmark` wrote",
        )
    if not any(cell.launches for cell in results.cells):
        raise UsageError(f"nothing was measured in {run}, so there is nothing to measure again")
    hidden = [name for name, value in results.config.launch.env.items() if REDACTED in value]
    if hidden:
        raise UsageError(
            f"{run} was measured with launch.env.{hidden[0]}, whose value was not kept",
            hint="measure the runs with `torchscale benchmark`, then --calibrate read",
        )
    return results.config


def _is_complete(directory: Path, reference: ResultSet) -> bool:
    """Whether a folder has a launch for each that the reference has."""
    if not (directory / "experiment.json").is_file():
        return False
    try:
        found = load_source(str(directory))
    except StoreError:
        return False  # measuring into it says what is wrong with it
    launches = {cell.cell.id: len(cell.launches) for cell in found.cells}
    return all(launches.get(cell.cell.id, 0) >= len(cell.launches) for cell in reference.cells)


def _figures(results: ResultSet) -> Iterator[tuple[ResultCell, Metric]]:
    for cell in results.cells:
        for metric in dict.fromkeys(key.metric for one in cell.launches for key in one.values):
            yield cell, metric


def _refuse_other_machines(differing: Sequence[SideDifference]) -> None:
    forbidding = [one for one in differing if one.forbids]
    if not forbidding:
        return
    unequal = "; ".join(f"{one.what} ({' | '.join(sorted(set(one.values)))})" for one in forbidding)
    raise UsageError(
        f"--calibrate: the runs differ in {unequal}, so they are no A/A runs",
        hint="name runs of one device and one version of torch",
    )
