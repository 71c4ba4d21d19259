"""Rounds of an acceptance on this machine's cores, in small sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchscale.errors import UsageError
from torchscale.features.validate.baseline import read_acceptance, read_baseline
from torchscale.features.validate.names import ACCEPTANCE
from torchscale.features.validate.run.acceptance import (
    AcceptanceOptions,
    measure_acceptance,
)
from torchscale.launch.control import StopRequest
from torchscale.observer import SilentObserver
from torchscale.schema.node.acceptance import Acceptance, Baseline
from torchscale.schema.node.probe import NodeFacts

SMALL = {
    "hardware.matmul_sizes": [64],
    "hardware.matmul_dtypes": ["fp32"],
    "hardware.seconds": 0.02,
    "hardware.copy_bytes": "1MiB",
    "hardware.disk_bytes": "1MiB",
    "collectives.min_bytes": "64KiB",
    "collectives.max_bytes": "64KiB",
    "collectives.iterations": 3,
    "benchmark.measure_seconds": 0.1,
    "benchmark.warmup_seconds": 0.0,
    "benchmark.warmup_max_seconds": 0.5,
}

pytestmark = pytest.mark.slow


class Notes(SilentObserver):
    """Keeps what is said."""

    def __init__(self, stop: StopRequest | None = None, after: str = "") -> None:
        self.lines: list[str] = []
        self._stop, self._after = stop, after

    def note(self, text: str) -> None:
        """Keep it; ask for the end at a line that begins with ``after``."""
        self.lines.append(text)
        if self._stop is not None and text.startswith(self._after):
            self._stop.count += 1


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Acceptance, Path, list[str]]:
    """An acceptance of a few rounds, its directory, and what was said."""
    directory = tmp_path_factory.mktemp("acceptance")
    notes = Notes()
    options = AcceptanceOptions(budget_seconds=8.0, sizes=SMALL)
    found = measure_acceptance(NodeFacts(), options, output_dir=directory, observer=notes)
    return found, directory, notes.lines


def test_rounds_are_measured_until_the_budget_ends_and_are_a_baseline(
    measured: tuple[Acceptance, Path, list[str]],
) -> None:
    found, directory, lines = measured
    run = found.run
    assert run.device == "cpu"
    assert run.ended in ("budget", "narrow")
    assert len(run.rounds) >= 1
    assert all(not each.problems and not each.missing for each in run.rounds)
    figures = {series.figure for series in run.series}
    assert {"compute fp32", "memory bandwidth", "disk write", "training"} <= figures
    assert all(len(series.values) == len(run.rounds) for series in run.series)
    assert all(each.conditions.foreign_share is not None for each in run.rounds)
    assert lines[0].startswith("Prediction (from default values, until round 2)")
    assert any(line.startswith("Round 1: ") for line in lines)
    (file,) = directory.glob(f"acceptance-*/{ACCEPTANCE}")
    assert read_acceptance(file) == found
    assert (file.parent / "summary.csv").is_file(), "it has ended, as of any run"
    assert read_baseline(file.parent) == Baseline(source=file.parent.name, run=run)


def test_what_was_measured_before_an_interrupt_is_kept(tmp_path: Path) -> None:
    stop = StopRequest()
    notes = Notes(stop, "Round 1: ")
    found = measure_acceptance(
        NodeFacts(),
        AcceptanceOptions(budget_seconds=60.0, sizes=SMALL),
        output_dir=tmp_path,
        stop=stop,
        observer=notes,
    )
    assert found.run.ended == "interrupted"
    assert len(found.run.rounds) == 1
    assert found.run.series


def test_a_baseline_of_other_sizes_is_refused_before_anything_is_measured(
    measured: tuple[Acceptance, Path, list[str]], tmp_path: Path
) -> None:
    baseline = Baseline(source="node-1", run=measured[0].run)
    other = AcceptanceOptions(baseline=baseline, sizes={**SMALL, "hardware.copy_bytes": "2MiB"})
    with pytest.raises(UsageError, match="in other sizes"):
        measure_acceptance(NodeFacts(), other, output_dir=tmp_path / "more", observer=Notes())
    assert not list((tmp_path / "more").glob("acceptance-*"))
