"""What ``benchmark`` does, without a terminal and without processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from tests.factories import cells, experiment
from tests.fake_launches import FakeLaunches, Recorder
from torchscale.config.choices import Rerun
from torchscale.errors import ExitCode, MachineError, StoreError
from torchscale.measure.benchmark import benchmark
from torchscale.measure.dry_run import dry_run
from torchscale.measure.nodes import ClusterNode, SweepNodes
from torchscale.schema.state import State
from torchscale.store.run_folder import RunFolder


def test_a_sweep_measures_every_cell_and_leaves_a_summary(
    tmp_path: Path, launches: FakeLaunches, recorder: Recorder
) -> None:
    outcome = benchmark(experiment(), output_dir=tmp_path / "run", observer=recorder)
    assert outcome.exit_code is ExitCode.OK
    assert [cell.state for cell in outcome.summary.cells] == [State.OK, State.OK]
    assert launches.ran == [(cell.id, 0) for cell in cells()]
    assert (tmp_path / "run" / "summary.csv").read_text().count("\n") == 3
    assert recorder.notes == [
        "experiment: 2 cells, 2 launches, on CPU (2 cores, 1 thread per rank, gloo)",
    ]
    assert recorder.details == [f"run folder: {tmp_path / 'run'}"]
    assert recorder.waits == ["Detecting devices and software", "2 launches on cpu, 1 per cell"]


def test_the_same_call_resumes_and_rerun_measures_again(
    tmp_path: Path, launches: FakeLaunches, recorder: Recorder
) -> None:
    first, second = cells()
    launches.states[second.id] = State.CRASHED
    outcome = benchmark(experiment(), output_dir=tmp_path)
    assert outcome.exit_code is ExitCode.FAILED
    launches.states.clear()
    launches.ran.clear()
    assert (
        benchmark(experiment(), output_dir=tmp_path, observer=recorder).exit_code is ExitCode.FAILED
    )
    assert launches.ran == []
    assert "2 done before" in recorder.notes[0]
    assert benchmark(experiment(), output_dir=tmp_path, rerun=Rerun.FAILED).exit_code is ExitCode.OK
    assert launches.ran == [(second.id, 0)]
    launches.ran.clear()
    benchmark(experiment(), output_dir=tmp_path, rerun=Rerun.ALL)
    assert launches.ran == [(first.id, 0), (second.id, 0)]


def test_a_stop_ends_the_sweep_after_the_running_launch(
    tmp_path: Path, launches: FakeLaunches
) -> None:
    launches.stop_after = 1
    outcome = benchmark(experiment(), output_dir=tmp_path)
    assert outcome.interrupted
    assert outcome.exit_code is ExitCode.INTERRUPTED
    assert len(launches.ran) == 1


def test_another_experiment_in_the_folder_is_refused(
    tmp_path: Path, launches: FakeLaunches
) -> None:
    benchmark(experiment(), output_dir=tmp_path)
    with pytest.raises(StoreError, match="learning_rate"):
        benchmark(experiment(training={"learning_rate": 0.5}), output_dir=tmp_path)


def test_a_machine_that_can_run_nothing_is_refused_before_a_folder_is_made(
    tmp_path: Path, launches: FakeLaunches
) -> None:
    with pytest.raises(MachineError, match="can run none of 1 cell; the first: needs 64"):
        benchmark(experiment(gpu_counts=[64]), output_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_secrets_in_the_environment_do_not_reach_the_folder(
    tmp_path: Path, launches: FakeLaunches
) -> None:
    config = experiment(launch={"env": {"HF_TOKEN": "hf_verysecret", "NCCL_DEBUG": "WARN"}})
    benchmark(config, output_dir=tmp_path)
    env = RunFolder.open(tmp_path).experiment.config.launch.env
    assert env["NCCL_DEBUG"] == "WARN"
    assert "verysecret" not in (tmp_path / "experiment.json").read_text()


def test_a_dry_run_plans_and_writes_nothing(tmp_path: Path, launches: FakeLaunches) -> None:
    result = dry_run(experiment(gpu_counts=[1, 64]), output_dir=tmp_path / "run", predict=False)
    assert [entry.skip_reason is None for entry in result.planned.plan.cells] == [True, False]
    assert result.directory == tmp_path / "run"
    assert not result.directory.exists()
    assert result.forecast.device_bytes == 2**34
    assert result.forecast.shared
    assert launches.ran == []


def test_what_failed_is_known(tmp_path: Path, launches: FakeLaunches) -> None:
    _, second = cells()
    launches.states[second.id] = State.CRASHED
    outcome = benchmark(experiment(), output_dir=tmp_path)
    assert outcome.has_failed
    assert not benchmark(experiment(gpu_counts=[1]), output_dir=tmp_path / "other").has_failed


def test_a_dry_run_knows_what_is_done_and_what_would_be_refused(
    tmp_path: Path, launches: FakeLaunches
) -> None:
    launches.stop_after = 1
    benchmark(experiment(), output_dir=tmp_path)
    plan = dry_run(experiment(), output_dir=tmp_path, predict=False)
    assert [(item.done, item.left) for item in plan.progress] == [(1, 0), (0, 1)]
    assert plan.problem == ""
    other = dry_run(experiment(training={"learning_rate": 0.5}), output_dir=tmp_path, predict=False)
    assert "holds another experiment; it differs in training.learning_rate" in other.problem
    assert (
        dry_run(experiment(), output_dir=tmp_path / "new", predict=False).estimate.from_earlier == 0
    )


def test_without_the_profiler_that_is_asked_for_everything_is_measured(
    tmp_path: Path, launches: FakeLaunches, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_nsys(tool: str, device: object) -> None:
        raise MachineError("nsys is not installed")

    monkeypatch.setattr("torchscale.features.trace.cell_profiler.choose_tool", no_nsys)
    config = experiment(profiling={"enabled": True, "tool": "nsys"})
    assert benchmark(config, output_dir=tmp_path, observer=recorder).exit_code is ExitCode.OK
    assert len(launches.ran) == 2
    told = (
        "no cell will be profiled: nsys is not installed; --profiling.tool=auto takes "
        "torch.profiler instead"
    )
    assert f"warning: {told}" in recorder.notes
    assert dry_run(config, output_dir=tmp_path, predict=False).notes == (told,)


class NodesElsewhere:
    """Nodes of an engine, none of which has come."""

    is_leader, detection = True, None
    run_all = True

    @contextmanager
    def lead(self, *_: object) -> Iterator[SweepNodes]:
        yield cast(SweepNodes, self)

    def close(self) -> None:
        """Nothing is open."""

    def update(self) -> None:
        """Nothing happens."""

    def can_run(self, _: object) -> bool:
        return False

    def conclude(self, *_: object) -> None:
        """Nobody is told."""


def test_over_an_engine_it_is_said_that_nothing_is_recorded(
    tmp_path: Path, launches: FakeLaunches, recorder: Recorder
) -> None:
    """And no other reason is given."""
    config = experiment(profiling={"enabled": True, "tool": "kineto", "trigger": "always"})
    node = cast(ClusterNode, NodesElsewhere())
    benchmark(config, output_dir=tmp_path, observer=recorder, node=node)
    assert launches.ran == []
    (said,) = (note for note in recorder.notes if "record" in note)
    assert said.startswith("warning: no cell is recorded: a profiler records on this machine")
