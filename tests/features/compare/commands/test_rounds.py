"""Launches by turns, of commands whose step times are made up; what they leave is real."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.factories import environment, failed_record, launch_record, rank_record
from torchscale.errors import ExitCode, MachineError, StoreError, TorchscaleError
from torchscale.features.compare.analysis.change import ChangeVerdict
from torchscale.features.compare.commands import rounds
from torchscale.features.compare.commands.rounds import CommandComparison, compare_commands
from torchscale.features.compare.commands.sides import parse_sides
from torchscale.features.compare.compare import Rules
from torchscale.features.compare.sections.document import ComparisonReport
from torchscale.features.watch.job.watched_program import WatchedProgram
from torchscale.observer import SILENT
from torchscale.schema.cells.training import Measurement
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.state import State
from torchscale.store.run_folder import RunFolder

_MOMENT = "2026-01-02T03:{:02}:00+00:00"


@dataclass
class FakeLaunches:
    """Stands for programs: ``python NAME`` takes ``seconds[NAME]`` a step, with some noise.

    Attributes:
        seconds: Of a step.
        failing: Name → the states of its next launches that fail.
        stop_after: Launches after which the user stops.
        launched: The names, in order.
    """

    seconds: dict[str, float]
    noise: float = 0.001
    failing: dict[str, list[State]] = field(default_factory=dict)
    stop_after: int = 1000
    launched: list[str] = field(default_factory=list)
    is_stopped: bool = False
    random: random.Random = field(default_factory=lambda: random.Random(1))

    def launch(self, command: Sequence[str], folder: Path) -> LaunchRecord:
        name = command[1]
        program = WatchedProgram(command)
        rule = Measurement(**{**program.rule.model_dump(), "measure_seconds": 5.0})
        cell = program.cell(1, rule)
        told = cell.model_copy(update={"batch_size": 1})
        if len(self.launched) >= self.stop_after:
            self.is_stopped = True
            return failed_record(told, State.INTERRUPTED, "interrupted")
        self.launched.append(name)
        if self.failing.get(name):
            return failed_record(told, self.failing[name].pop(0), "exit code 1: ValueError: data")
        count = self.launched.count(name)
        moment = _MOMENT.format(len(self.launched))
        run = RunFolder.create(folder, program.experiment_file([cell], environment(), moment, 1))
        batches = [10 * self.seconds[name] * self.random.lognormvariate(0, self.noise)] * 10
        run.begin_launch(cell, count)
        rank = rank_record(told, 0, batches, samples_per_step=None, parameters=None, setup=None)
        record = launch_record(cell, count, batches, [rank], started_at=moment)
        run.finish_launch(cell, record)
        return record


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Compares ``python NAME`` for each name in what is launched."""

    def compared(
        launches: FakeLaunches,
        *lines: str,
        most: int = 20,
        budget: float | None = None,
        said: list[str] | None = None,
    ) -> ComparisonReport | None:
        @contextmanager
        def opened(directory: Path, **settings: object) -> Iterator[FakeLaunches]:
            assert directory == tmp_path / "kept"
            assert settings["launch_seconds"] == 5.0
            yield launches

        monkeypatch.setattr(rounds, "_LAUNCHES", {"watch": opened})
        sides = parse_sides(lines or [f"python3 {name}" for name in launches.seconds], None)
        request = CommandComparison(sides, tmp_path / "kept", Rules(), most, budget, 5.0, 60.0)
        return compare_commands(request, SILENT, (said if said is not None else []).append)

    return compared


def verdicts(comparison: ComparisonReport | None) -> list[ChangeVerdict]:
    assert comparison is not None
    return [change.verdict for pair in comparison.pairs for _, change in pair.decided_by(())]


def test_a_clear_difference_ends_after_three_rounds_in_which_each_has_its_turn(play: Any) -> None:
    launches = FakeLaunches({"a": 0.01, "b": 0.02})
    said: list[str] = []
    assert verdicts(play(launches, said=said)) == [ChangeVerdict.WORSE]
    assert len(launches.launched) == 6
    turns = [set(launches.launched[place : place + 2]) for place in (0, 2, 4)]
    assert turns == [{"a", "b"}] * 3
    assert any("ms a step" in line for line in said)


def test_equal_commands_are_the_same(play: Any) -> None:
    launches = FakeLaunches({"a": 0.01})
    assert verdicts(play(launches, "python3 a", "python3 a")) == [ChangeVerdict.SAME]
    assert len(launches.launched) < 40


def test_every_other_side_is_compared_with_the_first(play: Any) -> None:
    launches = FakeLaunches({"a": 0.02, "b": 0.03, "c": 0.01})
    assert verdicts(play(launches)) == [ChangeVerdict.WORSE, ChangeVerdict.BETTER]


def test_noise_ends_at_the_most_launches_and_is_unclear(play: Any) -> None:
    launches = FakeLaunches({"a": 0.01, "b": 0.0101}, noise=0.3)
    assert verdicts(play(launches, most=4)) == [ChangeVerdict.UNCLEAR]
    assert len(launches.launched) == 8


def test_no_round_begins_after_the_budget(play: Any) -> None:
    launches = FakeLaunches({"a": 0.01, "b": 0.02})
    assert verdicts(play(launches, budget=0.0)) == [ChangeVerdict.UNCLEAR], "too few launches"
    assert len(launches.launched) == 2


def test_what_was_interrupted_goes_on_with_the_side_whose_turn_it_was(play: Any) -> None:
    first = FakeLaunches({"a": 0.01, "b": 0.02}, stop_after=3)
    assert play(first) is None
    again = FakeLaunches({"a": 0.01, "b": 0.02}, launched=list(first.launched))
    said: list[str] = []
    assert verdicts(play(again, said=said)) == [ChangeVerdict.WORSE]
    assert "already" in said[0]
    assert sorted(again.launched) == ["a", "a", "a", "b", "b", "b"]
    assert verdicts(play(FakeLaunches({"a": 9.0, "b": 9.0}, stop_after=0))) == [ChangeVerdict.WORSE]


def test_a_launch_that_fails_is_tried_again_once(play: Any) -> None:
    launches = FakeLaunches({"a": 0.01, "b": 0.02}, failing={"b": [State.CRASHED]})
    assert verdicts(play(launches)) == [ChangeVerdict.WORSE]


def test_a_command_that_fails_twice_ends_it(play: Any) -> None:
    failing = FakeLaunches({"a": 0.01, "c": 0.02}, failing={"c": [State.CRASHED] * 3})
    with pytest.raises(TorchscaleError, match="B failed twice: exit code 1: ValueError") as raised:
        play(failing)
    assert raised.value.exit_code is ExitCode.FAILED
    assert failing.launched.count("c") == 2


def test_a_program_without_steps_ends_it_at_once(play: Any) -> None:
    launches = FakeLaunches({"a": 0.01, "b": 0.02}, failing={"b": [State.INVALID]})
    with pytest.raises(TorchscaleError, match="B cannot be compared by its steps") as raised:
        play(launches)
    assert "hyperfine" in (raised.value.hint or "")


def test_a_folder_of_other_commands_and_a_program_that_is_not_there_are_refused(play: Any) -> None:
    play(FakeLaunches({"a": 0.01, "b": 0.02}))
    launches = FakeLaunches({"a": 0.01, "b": 0.02})
    with pytest.raises(StoreError, match="another command"):
        play(launches, "python3 a", "python3 b --more")
    with pytest.raises(MachineError, match="C: cannot start no-such-program"):
        play(launches, "python3 a", "python3 b", "no-such-program x")
    assert not launches.launched


def test_single_failures_in_different_launches_end_nothing(play: Any) -> None:
    launches = FakeLaunches({"a": 0.01, "b": 0.02}, failing={"a": [State.CRASHED]})
    original = launches.launch

    later = [State.CRASHED]

    def failing_later(command: Sequence[str], folder: Path) -> LaunchRecord:
        if later and launches.launched.count("a") == 3:
            launches.failing["a"].append(later.pop())
        return original(command, folder)

    launches.launch = failing_later  # type: ignore[method-assign]
    assert verdicts(play(launches)) == [ChangeVerdict.WORSE]


def test_launches_of_another_time_are_no_turns(play: Any, tmp_path: Path) -> None:
    play(FakeLaunches({"a": 0.01, "b": 0.02}))
    shutil.rmtree(tmp_path / "kept" / "B")
    with pytest.raises(StoreError, match="launches from another time: 3 of A and 0 of B"):
        play(FakeLaunches({"a": 0.01, "c": 0.02}))
