"""The search for the fastest setting in a run folder: on a machine that is made up, and on this
one."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.factories import experiment, failed_record, launch_record, rank_record
from tests.fake_launches import FakeLaunches
from tests.features.decide.tune.test_memory import GIB, Predicted
from torchscale.config.choices import TuningAxis
from torchscale.config.experiment import Experiment
from torchscale.config.load import load_experiment
from torchscale.config.strategies.data_parallel import Ddp, Fsdp
from torchscale.config.strategy import Strategy, strategy_label
from torchscale.errors import ExitCode, MachineError, StoreError, UsageError
from torchscale.features.decide.tune.outcome import TuneOutcome
from torchscale.features.decide.tune.run import TuneOptions, tune
from torchscale.launch.control import LaunchLimits, StopRequest
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.launch.signals import LinkSample, RankSignals
from torchscale.schema.launch.task import LaunchTask
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.state import State
from torchscale.store.run_folder import RunFolder

OPTIONS = TuneOptions(
    axes=(TuningAxis.FUSED, TuningAxis.CHANNELS_LAST, TuningAxis.COMPILE),
    budget_seconds=1e6,
    launch_seconds=1.0,
)

MIB = 1 << 20
PIECES = RankSignals(
    bucket_bytes=(MIB,) * 4,
    bucket_ready_seconds=(0.0, 0.01, 0.02, 0.03),
    link=LinkSample(
        payload_bytes=4 * MIB, as_bucketed_seconds=0.024, merged_seconds=0.021, repeats=5
    ),
    collections=0,
    collection_seconds=0.0,
    longest_collection_seconds=0.0,
    page_faults=0,
)
"""Four pieces of gradients, ready every 10 ms; an all-reduce takes 1 ms and 5 ms for each MiB."""


class Speeds:
    """Stands for torchrun: a launch's speed follows from its cell's settings."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.stop_after: int | None = None
        self.seconds = 0.0
        """What a launch takes on the clock."""
        self.passed = 0.0
        self.strategies: dict[str, float] = {}
        """Time of a step with a strategy, over that of DDP."""
        self.failing: Callable[[TrainingCell], State | None] = lambda _: None
        self._draw = random.Random(3)

    def __call__(
        self,
        task: LaunchTask,
        directory: Path,
        *,
        limits: LaunchLimits,
        extra_env: Mapping[str, str],
        stop: StopRequest,
        on_progress: Callable[[Progress], None],
    ) -> LaunchRecord:
        del directory, limits, extra_env, on_progress
        cell = task.cell
        assert isinstance(cell, TrainingCell)
        self.ran.append(cell.id)
        self.passed += self.seconds
        if self.stop_after is not None and len(self.ran) >= self.stop_after:
            stop.count += 1
            return failed_record(cell, State.INTERRUPTED, "as the test asks", task.launch)
        state = self.failing(cell)
        if state is not None:
            return failed_record(cell, state, "as the test asks", task.launch)
        seconds = 1.0 * (0.9 if cell.fused else 1.0) * (1.2 if cell.channels_last else 1.0)
        seconds *= self._of_strategy(cell.strategy) * self._draw.gauss(1, 0.002)
        exchanges = not isinstance(cell.strategy, Ddp) or cell.strategy.exchanges_gradients
        signals = None if exchanges else PIECES
        ranks = [
            rank_record(cell, rank, [seconds] * 10, signals=signals)
            for rank in range(cell.world_size)
        ]
        return launch_record(cell, task.launch, [seconds] * 10, ranks)

    def _of_strategy(self, strategy: Strategy) -> float:
        if not isinstance(strategy, Ddp):
            return self.strategies.get(strategy_label(strategy), 1.0)
        if not strategy.exchanges_gradients:
            return 0.6
        return 0.9 if strategy.bucket_cap_mb == 1 else 1.0


@pytest.fixture
def speeds(launches: FakeLaunches, monkeypatch: pytest.MonkeyPatch) -> Speeds:
    """On the made-up machine of ``launches``."""
    del launches
    speeds = Speeds()
    monkeypatch.setattr("torchscale.measure.launcher.run_launch", speeds)
    monkeypatch.setattr("torchscale.features.decide.tune.launcher.monotonic", lambda: speeds.passed)
    return speeds


def one_cell(**content: object) -> Experiment:
    return experiment(**{"gpu_counts": [1], "launch": {"isolation": "cell"}, **content})


def tuned(
    path: Path, options: TuneOptions = OPTIONS, config: Experiment | None = None
) -> TuneOutcome:
    return tune(config or one_cell(), options, config=path / "tuned.yaml", output_dir=path / "run")


def test_the_winning_config_loads_and_holds_only_what_gained(
    speeds: Speeds, tmp_path: Path
) -> None:
    speeds.failing = lambda cell: State.OOM if cell.compile else None
    outcome = tuned(tmp_path)
    result = outcome.export()
    assert outcome.exit_code is ExitCode.OK
    assert result.better
    assert [(change.setting, change.value) for change in result.winner] == [
        ("training.fused", "true")
    ]
    assert result.verified is not None
    assert result.verified.low < 1 / 0.9 < result.verified.high
    states = {tuple(change.value for change in trial.changes): trial for trial in result.trials}
    assert {trial.state for trial in result.trials} == {"ok", "oom"}
    assert states[()].gain is None
    written = load_experiment(tmp_path / "tuned.yaml")
    assert written == one_cell(training={"fused": True})
    assert {entry.cell.id for entry in RunFolder.open(tmp_path / "run").experiment.plan} == set(
        speeds.ran
    )


def test_nothing_better_writes_nothing(speeds: Speeds, tmp_path: Path) -> None:
    outcome = tuned(tmp_path, TuneOptions(axes=(TuningAxis.CHANNELS_LAST,), budget_seconds=1e6))
    assert (outcome.exit_code, outcome.better) == (ExitCode.OK, False)
    assert outcome.export().smallest_visible_gain is not None
    assert not (tmp_path / "tuned.yaml").exists()
    assert speeds.ran


def test_a_complete_search_is_not_measured_again(speeds: Speeds, tmp_path: Path) -> None:
    times = {"seconds", "trials", "launch_seconds", "seconds_needed"}
    first = tuned(tmp_path).export()
    ran = len(speeds.ran)
    assert tuned(tmp_path).export().model_dump(exclude=times) == first.model_dump(exclude=times)
    assert len(speeds.ran) == ran


def test_a_budget_too_small_for_an_answer_is_said_and_the_same_call_continues(
    speeds: Speeds, tmp_path: Path
) -> None:
    """Every launch takes 5 s, so 20 s are four, which is no answer; each call tries what those
    before it did not, and a larger budget gives the answer."""
    lines: list[str] = []
    options = replace(OPTIONS, budget_seconds=20.0)
    calls = []
    speeds.seconds = 5.0
    for _ in range(2):
        outcome = tune(
            one_cell(),
            options,
            config=tmp_path / "tuned.yaml",
            output_dir=tmp_path / "run",
            on_launch=lines.append,
        )
        calls.append(outcome.export())
        assert outcome.exit_code is ExitCode.UNABLE
    assert [call.ending for call in calls] == ["budget", "budget"]
    assert [change.axis for change in calls[0].untried] == ["compile"]
    assert calls[1].launches_needed == 8 + len(calls[1].untried)
    assert sum(trial.launches for trial in calls[1].trials) > sum(
        trial.launches for trial in calls[0].trials
    )
    assert lines[1].startswith(
        "A launch takes about 5.00 s, so the budget of 20.0 s allows about 4; an answer"
    )
    ran = len(speeds.ran)
    answer = tuned(tmp_path)
    assert answer.better
    assert len(speeds.ran) - ran < sum(trial.launches for trial in answer.search.trials.values())


def test_an_interrupted_search_goes_on_where_it_stopped(speeds: Speeds, tmp_path: Path) -> None:
    speeds.stop_after = 6
    interrupted = tuned(tmp_path)
    assert interrupted.exit_code is ExitCode.INTERRUPTED
    assert interrupted.export().ending == "interrupted"
    speeds.stop_after = None
    whole = tuned(tmp_path)
    assert whole.better
    assert len(speeds.ran) == 1 + sum(trial.launches for trial in whole.search.trials.values())


@pytest.mark.parametrize("place", [1, 2, 4])
def test_a_launch_that_was_killed_is_measured_again(
    speeds: Speeds, tmp_path: Path, place: int
) -> None:
    """By the same command, wherever it was in the search: the start's first, a single change, a
    later one."""
    speeds.failing = lambda _: State.KILLED if len(speeds.ran) == place else None
    first = tuned(tmp_path)
    killed = speeds.ran[place - 1]
    speeds.failing = lambda _: None
    again = tuned(tmp_path)
    assert again.better
    assert {trial.state for trial in again.search.trials.values()} == {"ok"}
    assert [path.name for path in (tmp_path / "run" / "quarantine").iterdir()] == [
        f"{killed}-launch-0-replaced-0"
    ]
    assert first.search.ending != "interrupted"


def test_a_start_that_failed_is_measured_again(speeds: Speeds, tmp_path: Path) -> None:
    speeds.failing = lambda _: State.CRASHED
    assert tuned(tmp_path).exit_code is ExitCode.FAILED
    speeds.failing = lambda _: None
    assert tuned(tmp_path).better


def test_another_experiment_in_the_folder_is_refused(speeds: Speeds, tmp_path: Path) -> None:
    del speeds
    tuned(tmp_path)
    with pytest.raises(StoreError, match=r"another experiment; it differs in training\.seed"):
        tuned(tmp_path, config=one_cell(training={"seed": 7}))


def test_a_start_that_fails_is_said(speeds: Speeds, tmp_path: Path) -> None:
    speeds.failing = lambda _: State.OOM
    outcome = tuned(tmp_path)
    assert outcome.exit_code is ExitCode.FAILED
    assert outcome.export().ending == "start failed"


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        (experiment(), OPTIONS, "tune takes one setting; this config has 2 cells"),
        (one_cell(launch={"nodes": 2}), OPTIONS, "tune measures on one node"),
        (
            one_cell(),
            TuneOptions(axes=(TuningAxis.PRECISION,)),
            "--search precision: changes what is computed",
        ),
        (
            one_cell(),
            TuneOptions(axes=(TuningAxis.STRATEGY, TuningAxis.BUCKET)),
            "--search strategy,bucket: bucket is an option of ddp",
        ),
        (
            one_cell(parallel={"strategy": {"name": "ddp", "comm_hook": "noop"}}),
            OPTIONS,
            "comm_hook noop is no training",
        ),
    ],
)
def test_bad_input_is_one_line(
    speeds: Speeds, tmp_path: Path, config: Experiment, options: TuneOptions, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        tuned(tmp_path, options, config)
    assert "\n" not in raised.value.message
    assert not speeds.ran


def test_bucket_sizes_are_predicted_and_measured(speeds: Speeds, tmp_path: Path) -> None:
    """By hand, 1 MiB exposes 6 ms (the last piece), 2 MiB 7 ms, 25 MiB 16 ms (three pieces at
    once); a step is 100 ms. The two best are tried."""
    config = one_cell(gpu_counts=[2])
    outcome = tuned(tmp_path, TuneOptions(axes=(TuningAxis.BUCKET,), budget_seconds=1e6), config)
    result = outcome.export()
    exposed = result.predicted_exposed_seconds
    assert [exposed[size] for size in ("1 MiB", "2 MiB", "25 MiB")] == pytest.approx(
        [0.006, 0.007, 0.016]
    )
    tried = {
        change.value
        for trial in result.trials
        if len(trial.changes) == 1
        for change in trial.changes
    }
    assert tried == {"1 MiB", "2 MiB", "views"}
    assert [change.value for change in result.winner] == ["1 MiB"]
    assert result.exposed_communication is not None
    assert result.exposed_communication.ratio == pytest.approx(1 / 0.6, rel=0.02)
    assert load_experiment(tmp_path / "tuned.yaml") == one_cell(
        gpu_counts=[2], parallel={"strategy": {"name": "ddp", "bucket_cap_mb": 1}}
    )
    del speeds


def test_numerics_are_left_alone_unless_allowed(speeds: Speeds, tmp_path: Path) -> None:
    outcome = tuned(tmp_path, TuneOptions(budget_seconds=1e6))
    assert any("--allow-numerics" in note for note in outcome.notes)
    tried = {change.axis for setting in outcome.search.trials for change in setting}
    assert tried == {"fused", "channels_last", "compile"}
    assert "recomput" in outcome.search.skipped["checkpointing"]
    del speeds


STRATEGIES = TuneOptions(axes=(TuningAxis.STRATEGY,), budget_seconds=1e6, launch_seconds=1.0)


@pytest.fixture
def predicted(monkeypatch: pytest.MonkeyPatch) -> Predicted:
    """Peaks by strategy; each of four ranks has 4 GiB."""
    predicted = Predicted({})
    monkeypatch.setattr("torchscale.features.decide.tune.memory.predict_cells", predicted)
    return predicted


def on_four(**content: object) -> Experiment:
    launch = {"isolation": "cell", "oversubscribe": True, "threads_per_rank": 1}
    return one_cell(**{"gpu_counts": [4], "launch": launch, **content})


def test_the_fastest_strategy_is_verified_and_written(
    speeds: Speeds, predicted: Predicted, tmp_path: Path
) -> None:
    predicted.peaks = {"ddp": GIB, "zero1": 9 * GIB}
    speeds.strategies = {"fsdp": 0.8, "fsdp reshard_after_forward=false": 0.7}
    outcome = tuned(tmp_path, STRATEGIES, on_four())
    result = outcome.export()
    assert [change.value for change in result.winner] == ["fsdp reshard_after_forward=false"]
    assert result.better
    assert outcome.title == "tiny ResNet, global batch 32, 4 ranks, fp32"
    assert load_experiment(tmp_path / "tuned.yaml") == on_four(
        parallel={"strategy": {"name": "fsdp", "reshard_after_forward": False}}
    )
    rows = {one.strategy: one for one in result.strategies}
    assert rows["fsdp reshard_after_forward=false"].state == "fastest"
    assert rows["fsdp reshard_after_forward=false"].config == {
        "name": "fsdp",
        "reshard_after_forward": False,
    }
    assert rows["ddp"].predicted_bytes == GIB
    assert rows["ddp"].state == rows["fsdp"].state == "slower"
    against = rows["ddp"].against_fastest
    assert against is not None
    assert against.ratio == pytest.approx(0.7, rel=0.01)
    assert rows["zero1"].state == "left out"
    assert rows["zero1"].reason == "predicted to take 9.00 GiB a rank, of 4.00 GiB"
    assert rows["zero1"].launches == 0
    assert not any("zero1" in one for one in speeds.ran)
    assert "does not support tensor parallelism" in rows["tensor"].reason
    assert result.exhaustive_launches == 3 * 5
    assert (result.start_strategy, result.moved_start) == ("ddp", "")


def test_strategies_that_are_equal_are_a_tie_and_the_simplest_stays(
    speeds: Speeds, predicted: Predicted, tmp_path: Path
) -> None:
    del predicted
    speeds.strategies = {"fsdp shard=2": 2.0, "fsdp reshard_after_forward=false shard=2": 2.0}
    outcome = tuned(tmp_path, STRATEGIES, on_four())
    states = {one.strategy: one.state for one in outcome.export().strategies}
    assert outcome.exit_code is ExitCode.OK
    assert not outcome.better
    assert states["ddp"] == "fastest"
    assert states["fsdp shard=2"] == "slower"
    assert "tie" in {states["zero1"], states["fsdp"]}


def test_a_config_that_runs_out_of_memory_gives_way_to_what_fits(
    speeds: Speeds, predicted: Predicted, tmp_path: Path
) -> None:
    """DDP is predicted not to fit; ZeRO-1 is not, and runs out of memory all the same."""
    predicted.peaks = {"ddp": 9 * GIB}
    speeds.failing = lambda cell: None if isinstance(cell.strategy, Fsdp) else State.OOM
    speeds.strategies = dict.fromkeys(
        (
            "fsdp shard=2",
            "fsdp reshard_after_forward=false",
            "fsdp reshard_after_forward=false shard=2",
        ),
        1.5,
    )
    outcome = tuned(tmp_path, STRATEGIES, on_four())
    result = outcome.export()
    rows = {one.strategy: one for one in result.strategies}
    assert result.start_strategy == "fsdp"
    assert result.moved_start == "ddp: predicted to take 9.00 GiB a rank, of 4.00 GiB"
    assert rows["zero1"].reason == "oom: as the test asks"
    assert rows["fsdp"].state == "fastest"
    assert outcome.exit_code is ExitCode.OK
    assert load_experiment(tmp_path / "tuned.yaml") == on_four(parallel={"strategy": "fsdp"})
    ran = len(speeds.ran)
    assert tuned(tmp_path, STRATEGIES, on_four()).better
    assert len(speeds.ran) == ran


def test_where_no_strategy_fits_nothing_is_launched(
    speeds: Speeds, predicted: Predicted, tmp_path: Path
) -> None:
    predicted.peaks = {
        "ddp": 9 * GIB,
        "zero1": 8 * GIB,
        "fsdp": 6 * GIB,
        "fsdp shard=2": 7 * GIB,
        "fsdp reshard_after_forward=false": 6 * GIB,
        "fsdp reshard_after_forward=false shard=2": 7 * GIB,
    }
    with pytest.raises(MachineError, match="the one that takes least is fsdp, predicted to take"):
        tuned(tmp_path, STRATEGIES, on_four())
    assert not speeds.ran


def test_a_batch_that_a_strategy_makes_room_for(
    speeds: Speeds, predicted: Predicted, tmp_path: Path
) -> None:
    """Larger batches fit sharded alone; a step takes as long with any, so that the largest is the
    fastest. What is predicted not to fit is not launched."""

    def fits(cell: TrainingCell) -> bool:
        return cell.batch_size == 8 or isinstance(cell.strategy, Fsdp)

    def failing(cell: TrainingCell) -> State | None:
        assert fits(cell)
        return None

    speeds.failing = failing
    predicted.peak_of = lambda cell: GIB if fits(cell) else 9 * GIB
    axes = (TuningAxis.STRATEGY, TuningAxis.BATCH)
    options = replace(STRATEGIES, axes=axes, allow_numerics=True)
    result = tuned(tmp_path, options, on_four()).export()
    found = {change.axis: change.value for change in result.winner}
    assert found["batch"] == "32"
    assert found["strategy"].startswith("fsdp")
    skipped = {
        tuple(change.value for change in trial.changes): trial.reason
        for trial in result.trials
        if trial.state == "skipped"
    }
    assert skipped["16",] == "predicted to take 9.00 GiB a rank, of 4.00 GiB"


@pytest.mark.slow
def test_two_ranks_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real launches: communication is probed by a run that exchanges nothing. Two rounds leave one
    degree of freedom, so that the interval nearly always holds 1 and no hook is tried."""
    monkeypatch.setattr("torchscale.features.decide.tune.search._PROBE_ROUNDS", 2)
    config = experiment(
        models="tiny-resnet", gpu_counts=[2], device="cpu", launch={"threads_per_rank": 1}
    )
    options = TuneOptions(
        (TuningAxis.COMM_HOOK,), budget_seconds=600, allow_numerics=True, launch_seconds=0.2
    )
    outcome = tune(config, options, config=tmp_path / "tuned.yaml", output_dir=tmp_path / "run")
    result = outcome.export()
    assert (outcome.exit_code, result.ending) == (ExitCode.OK, "complete")
    assert result.exposed_communication is not None
    assert result.exposed_communication.launches == 2
    assert {trial.state for trial in result.trials} == {"ok"}, [
        trial.reason for trial in result.trials
    ]
    (probe,) = [
        cell
        for cell in outcome.cells.values()
        if cell.strategy == Ddp(comm_hook="noop", bucket_cap_mb=1)
    ]
    record = RunFolder.open(tmp_path / "run").record(probe, 0)
    assert record is not None
    for rank in payload(record, TrainingResult).ranks:
        assert rank.signals is not None
        ready = rank.signals.bucket_ready_seconds
        assert ready is not None
        assert len(ready) == len(rank.signals.bucket_bytes or ())
        assert list(ready) == sorted(ready)
        assert ready[0] == 0


@pytest.mark.slow
def test_what_does_not_fit_on_this_machine_is_not_launched(tmp_path: Path) -> None:
    """Real predictions: of a decoder with 5 MiB of parameters, DDP and ZeRO-1 take more than 18 MiB
    a rank, FSDP2 takes less. The budget ends after the first launch, which is FSDP2's."""
    config = experiment(
        models="tiny-decoder",
        batch_sizes=[2],
        gpu_counts=[2],
        device="cpu",
        launch={"threads_per_rank": 1, "oversubscribe": True},
        memory={"limit": "18MiB"},
    )
    options = TuneOptions((TuningAxis.STRATEGY,), budget_seconds=0.1, launch_seconds=0.2)
    outcome = tune(config, options, config=tmp_path / "tuned.yaml", output_dir=tmp_path / "run")
    result = outcome.export()
    assert (outcome.exit_code, result.ending) == (ExitCode.UNABLE, "budget")
    rows = {one.strategy: one for one in result.strategies}
    for name in ("ddp", "zero1"):
        assert rows[name].reason.startswith("predicted to take 2")
        assert rows[name].launches == 0
    assert result.start_strategy == "fsdp"
    assert rows["fsdp"].launches == 1
    assert rows["fsdp"].throughput is not None
    assert rows["fsdp"].tokens_per_second == pytest.approx(64 * rows["fsdp"].throughput)
    assert rows["tensor"].predicted_at_least
    assert rows["tensor"].state == "not launched"
    assert {trial.state for trial in result.trials} == {"ok"}
