"""The sweep, with launches that are made up: what it runs, and ``summary.csv`` beside it."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.factories import experiment, experiment_file, failed_record, launch_record, machine
from tests.report.test_machine import record as record_of_any_kind
from torchscale.config.choices import Rerun
from torchscale.config.experiment import Experiment
from torchscale.errors import OutputError
from torchscale.launch.control import StopRequest
from torchscale.measure import summary_file, sweep
from torchscale.measure.launcher import Pending
from torchscale.measure.listener import SilentListener
from torchscale.measure.sweep import Sweep
from torchscale.plan.expand import Plan, make_plan
from torchscale.report.formats.export import summary_csv
from torchscale.results.reader import read_summary
from torchscale.schema.cells.kinds import AnyCell
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.telemetry import Telemetry
from torchscale.schema.state import State
from torchscale.store.run_folder import RunFolder

RecordOf = Callable[[AnyCell, int], LaunchRecord]


def ok_record(cell: AnyCell, launch: int) -> LaunchRecord:
    if isinstance(cell, TrainingCell):
        return launch_record(cell, launch)
    return record_of_any_kind(cell, Telemetry(seconds=1.0, readings=1)).model_copy(
        update={"launch": launch}
    )


def planned(
    path: Path, *, join: bool = False, **content: Any
) -> tuple[Experiment, Plan, RunFolder]:
    config = experiment(**content)
    plan = make_plan(config, machine(cores=4))
    begin = RunFolder.join if join else RunFolder.create
    return config, plan, begin(path, experiment_file(config, plan.cells))


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Callable[[RecordOf], None]:
    """Replaces torchrun: a launch leaves the record of its cell that the given function makes."""

    def replace(record_of: RecordOf) -> None:
        monkeypatch.setattr(sweep, "open_launcher", made_up_launcher(record_of))

    replace(ok_record)
    return replace


def made_up_launcher(record_of: RecordOf) -> Any:
    class Launcher:
        def __init__(self, folder: RunFolder) -> None:
            self.folder = folder

        def run(self, item: Pending) -> LaunchRecord:
            self.folder.begin_launch(item.cell, item.launch)
            record = record_of(item.cell, item.launch)
            self.folder.finish_launch(item.cell, record)
            return record

    @contextmanager
    def open_launcher(
        config: Experiment, plan: Plan, folder: RunFolder, *_: object, **__: object
    ) -> Iterator[Launcher]:
        yield Launcher(folder)

    return open_launcher


class Follower(SilentListener):
    """Compares ``summary.csv`` with what a new reader finds in the folder, before and after each
    launch."""

    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0

    def launch_started(self, cell: AnyCell, launch: int) -> None:
        self.compare()

    def launch_finished(self, cell: AnyCell, record: LaunchRecord, summary: Any) -> None:
        self.compare()
        self.count += 1

    def compare(self) -> None:
        assert (self.path / "summary.csv").read_text() == summary_csv(read_summary(self.path))


def run_sweep(
    path: Path, listener: SilentListener | None = None, *, join: bool = False, **content: Any
) -> Any:
    config, plan, folder = planned(path, join=join, **content)
    one = Sweep(config, plan, folder)
    return one.run(one.prepare(None), listener or SilentListener(), StopRequest())


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((path / "summary.csv").read_text())))


def test_summary_csv_is_that_of_the_folder_before_and_after_every_launch(
    tmp_path: Path, launches: object
) -> None:
    path = tmp_path / "run"
    follower = Follower(path)
    summary = run_sweep(path, follower, batch_sizes=[8, 16], benchmark={"repeats": 2})
    assert follower.count == 8
    assert summary == read_summary(path)
    assert {row["state"] for row in rows(path)} == {"ok"}
    # A machine command joins the folder: what was measured before stays as it was.
    joining = Follower(path)
    joined = run_sweep(
        path, joining, join=True, measure=["hardware", "collectives"], experiment_name="comm"
    )
    assert joining.count == 3, "a single rank has no collectives"
    assert joined == read_summary(path)
    # The experiment is resumed with more batch sizes and launches.
    resumed = Follower(path)
    assert run_sweep(
        path, resumed, batch_sizes=[8, 16, 32], benchmark={"repeats": 3}
    ) == read_summary(path)
    assert resumed.count == 10


def test_the_folder_is_read_once(
    tmp_path: Path, launches: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    load_cell = RunFolder.load_cell

    def counting(folder: RunFolder, entry: Any) -> Any:
        read.append(entry.cell.id)
        return load_cell(folder, entry)

    monkeypatch.setattr(RunFolder, "load_cell", counting)
    summary = run_sweep(tmp_path / "run", batch_sizes=[1, 2, 3, 4], benchmark={"repeats": 3})
    cells = [cell.cell.id for cell in summary.cells]
    assert sorted(read) == sorted(cells * 2), (
        "once at the start, and once when a cell's first launch has ended"
    )


def test_a_table_that_cannot_be_written_costs_no_launch(
    tmp_path: Path, launches: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"

    def full(*_: object, **_options: object) -> None:
        raise OutputError("cannot write summary.csv: No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(summary_file, "atomic_write_text", full)
        summary = run_sweep(path)
    assert [cell.state for cell in summary.cells] == [State.OK, State.OK]
    assert summary.problems == ("cannot write summary.csv: No space left on device",)
    assert not (path / "summary.csv").exists()
    assert run_sweep(path).problems == ()
    assert [row["state"] for row in rows(path)] == ["ok", "ok"]


def test_larger_batches_are_skipped_once_a_smaller_one_ran_out_of_memory(
    tmp_path: Path, launches: Callable[[RecordOf], None]
) -> None:
    path = tmp_path / "run"

    def record_of(cell: AnyCell, launch: int) -> LaunchRecord:
        assert isinstance(cell, TrainingCell)
        if cell.world_size == 2 and (cell.batch_size or 0) >= 16:
            return failed_record(cell, State.OOM, "out of memory", launch)
        return launch_record(cell, launch)

    launches(record_of)
    content: dict[str, Any] = {
        "batch_sizes": [8, 16, 32],
        "benchmark": {"skip_larger_batches": True},
    }
    summary = run_sweep(path, **content)
    states = {
        (cell.cell.batch_size, cell.cell.world_size): (cell.state, cell.reason)
        for cell in summary.cells
    }
    assert states[32, 2] == (State.SKIPPED, "batch 16 ran out of memory")
    assert states[16, 2][0] is State.OOM
    assert states[32, 1][0] is State.OK
    plain = run_sweep(tmp_path / "plain", batch_sizes=[8, 16, 32])  # skipped only where asked
    assert [cell.state for cell in plain.cells if cell.cell.batch_size == 32] == [
        State.OK,
        State.OOM,
    ]
    # Also one that ran out of memory under an earlier command.
    grown = run_sweep(path, **{**content, "batch_sizes": [8, 16, 32, 64]})
    assert [
        cell.reason
        for cell in grown.cells
        if cell.cell.batch_size == 64 and cell.cell.world_size == 2
    ] == ["batch 16 ran out of memory"]


def test_the_batch_that_ran_out_of_memory_and_smaller_ones_are_still_measured(
    tmp_path: Path, launches: Callable[[RecordOf], None]
) -> None:
    """Memory may have been short for a moment: each repeat of the batch itself is tried, and only
    larger ones are not worth it."""
    ran: list[int] = []

    def record_of(cell: AnyCell, launch: int) -> LaunchRecord:
        assert isinstance(cell, TrainingCell)
        ran.append(cell.batch_size or 0)
        if cell.batch_size == 16:
            return failed_record(cell, State.OOM, "out of memory", launch)
        return launch_record(cell, launch)

    launches(record_of)
    run_sweep(
        tmp_path / "run",
        batch_sizes=[8, 16, 32],
        gpu_counts=[1],
        benchmark={"skip_larger_batches": True, "repeats": 2},
    )
    assert sorted(ran) == [8, 8, 16, 16]


KILLED = """
import json, os, pathlib, shutil, signal, sys
from tests.measure.test_sweep import made_up_launcher, ok_record, run_sweep
from torchscale.measure import sweep

sweep.open_launcher = made_up_launcher(ok_record)
root = pathlib.Path(sys.argv[1])
run_sweep(root / "before", batch_sizes=[8, 16])
replace = pathlib.Path.replace
for number in range(1, 100):
    path = root / f"run-{number}"
    shutil.copytree(root / "before", path)
    if (child := os.fork()) == 0:
        writes = iter(range(1, 1000))

        def dying(self, target):
            replace(self, target)
            if next(writes) == number:
                os.kill(os.getpid(), signal.SIGKILL)

        pathlib.Path.replace = dying
        run_sweep(path, join=True, measure=["hardware"], experiment_name="hardware")
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        print(json.dumps(number))
        break
"""


@pytest.mark.slow
def test_summary_csv_is_true_whenever_a_command_that_joins_is_killed(tmp_path: Path) -> None:
    """SIGKILL after each of its writes: the cells that were measured before keep their rows, and a
    launch is missing only if its record was the last write."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    count = json.loads(done.stdout)
    # experiment.json, summary.csv, and for each of two cells: cell.json, record.json, summary.csv
    assert count == 2 + 2 * 3 + 1
    before = [row for row in rows(tmp_path / "before") if row["kind"] == "training"]
    assert [row["state"] for row in before] == ["ok"] * 4
    for number in range(1, count + 1):
        path = tmp_path / f"run-{number}"
        after = rows(path)
        assert [row for row in after if row["kind"] == "training"] == before
        launched = len(list(path.glob("cells/hardware-*/launch-*/record.json")))
        shown = sum(row["state"] == "ok" for row in after if row["kind"] == "hardware")
        missing = 1 if number in (4, 7) else 0
        assert shown == launched - missing
    # The next command puts right what was missing.
    config, plan, folder = planned(
        tmp_path / "run-7", join=True, measure=["hardware"], experiment_name="hardware"
    )
    Sweep(config, plan, folder).run((), SilentListener(), StopRequest())
    assert {row["state"] for row in rows(tmp_path / "run-7")} == {"ok"}


def test_a_cell_that_was_measured_again_is_summarized_with_its_new_launch(
    tmp_path: Path, launches: Any
) -> None:
    path = tmp_path / "run"
    run_sweep(path)
    before = rows(path)
    launches(lambda cell, launch: launch_record(trained_cell(cell), launch, batches=[2.0] * 10))
    config, plan, folder = planned(path)
    again = Sweep(config, plan, folder)
    summary = again.run(again.prepare(Rerun.ALL), SilentListener(), StopRequest())
    assert summary == read_summary(path)
    for old, new in zip(before, rows(path), strict=True):
        assert float(new["samples_per_second"]) == pytest.approx(
            float(old["samples_per_second"]) / 2
        )


def trained_cell(cell: AnyCell) -> TrainingCell:
    assert isinstance(cell, TrainingCell)
    return cell


@dataclass(frozen=True)
class NoRecording:
    """One that failed."""

    analysis: None = None
    problem: str = "as the test asks"


class NoRecordings:
    """Stands for the profiler: notes what it is asked to record."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def profile(
        self,
        cell: TrainingCell,
        directory: Path,
        stop: StopRequest,
        on_progress: Callable[[Progress], None],
    ) -> NoRecording:
        del directory, stop, on_progress
        self.asked.append(cell.world_size)
        return NoRecording()


@pytest.mark.parametrize(("counts", "recorded"), [([1], [1]), ([1, 2], [])])
def test_single_ranks_are_profiled_though_no_bottleneck_is_found(
    launches: Callable[[RecordOf], None], tmp_path: Path, counts: list[int], recorded: list[int]
) -> None:
    """Between ranks the rule is to record where something was found; one rank alone has nothing to
    find there."""
    del launches
    config, plan, folder = planned(tmp_path / "run", gpu_counts=counts, profiling={"enabled": True})
    one, profiler = Sweep(config, plan, folder), NoRecordings()
    one.run(one.prepare(None), SilentListener(), StopRequest(), profiler)
    assert profiler.asked == recorded
