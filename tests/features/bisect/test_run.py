"""A bisection with its folder: on launches that are made up, and real ones over real wheels."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.features.bisect.wheels import write_versions, write_wheel
from tests.repositories import commits
from torchscale.errors import ExitCode, OutputError, StoreError, UsageError
from torchscale.features.bisect.changes import ChangeRule
from torchscale.features.bisect.environment import ProgramEnvironment
from torchscale.features.bisect.environments.builder import Builder, Built
from torchscale.features.bisect.environments.installer import Sources
from torchscale.features.bisect.launcher import CommandLauncher, Launch, LaunchMetric
from torchscale.features.bisect.outcome import BisectOutcome, BisectRequest, recorded
from torchscale.features.bisect.question import ask, ask_versions
from torchscale.features.bisect.run import bisect
from torchscale.features.bisect.search import BisectionEnding, BisectionSearch, Limits
from torchscale.features.bisect.state import FILE
from torchscale.util.processes.subprocesses import wait_until

SIX = ask_versions("demo=1.0,1.1,1.2,1.3,1.4,1.5")
COMMAND = ("python", "-c", "import demo; demo.work()")


@dataclass
class FakeMachine:
    """Stands for builds and launches: version 1.N takes ``seconds(N)``.

    Attributes:
        root: Below which environments are.
        seconds: Of a version's launches.
        unbuildable: Versions.
        failing: Versions whose launches fail.
        stop_after: Launches after which the user stops it.
        ran: The versions that were launched.
        built: The versions that were built.
    """

    root: Path
    seconds: Callable[[int], float]
    unbuildable: tuple[int, ...] = ()
    failing: tuple[int, ...] = ()
    stop_after: int | None = None
    ran: list[int] = field(default_factory=list)
    built: list[int] = field(default_factory=list)

    def build(self, environment: ProgramEnvironment, cancelled: Callable[[], bool]) -> Built:
        del cancelled
        version = int(environment.requirements[0].rpartition(".")[2])
        self.built.append(version)
        if version in self.unbuildable:
            return Built(None, "No matching distribution found", 1.0)
        python = self.root / str(version) / "bin" / "python"
        python.parent.mkdir(parents=True, exist_ok=True)
        python.touch(mode=0o755)
        return Built(self.root / str(version), seconds=1.0)

    def run(self, launcher: CommandLauncher, variables: Mapping[str, str]) -> Launch:
        version = int(Path(variables["VIRTUAL_ENV"]).name)
        if self.stop_after is not None and len(self.ran) >= self.stop_after:
            launcher.stop.count += 1
            return Launch(None, "interrupted", "interrupted", 0.1)
        self.ran.append(version)
        if version in self.failing:
            return Launch(None, "failed", "exit code 1: ImportError: no", 0.1)
        return Launch(self.seconds(version), "ok", "", 1.0)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeMachine:
    fake = FakeMachine(tmp_path / "environments", lambda version: 1.2 if version >= 3 else 1.0)

    def build(_: Builder, environment: ProgramEnvironment, cancelled: Callable[[], bool]) -> Built:
        return fake.build(environment, cancelled)

    def run(
        launcher: CommandLauncher, number: int, variables: Mapping[str, str], cwd: Path | None
    ) -> Launch:
        del number, cwd
        return fake.run(launcher, variables)

    monkeypatch.setattr(Builder, "build", build)
    monkeypatch.setattr(CommandLauncher, "run", run)
    return fake


@pytest.fixture
def request_of_six(tmp_path: Path) -> BisectRequest:
    return BisectRequest(
        SIX,
        COMMAND,
        LaunchMetric("wall"),
        Sources((tmp_path,)),
        cache=tmp_path / "cache",
        directory=tmp_path / "folder",
    )


def answer(outcome: BisectOutcome) -> list[int]:
    assert isinstance(outcome.search, BisectionSearch)
    assert outcome.search.ending is BisectionEnding.FOUND
    return [one.members[0] for one in outcome.search.answer]


def test_the_answer_with_every_launch_in_the_folder(
    machine: FakeMachine, request_of_six: BisectRequest
) -> None:
    lines: list[str] = []
    outcome = bisect(request_of_six, on_line=lines.append)
    assert answer(outcome) == [3]
    assert outcome.exit_code is ExitCode.OK
    kept = json.loads((request_of_six.folder / FILE).read_text())
    assert [entry["environment"] for entry in kept["launches"]] == machine.ran
    assert len(machine.built) == len(set(machine.built))
    assert "demo 1.5 is slower than demo 1.0" in "\n".join(lines)


def test_the_first_launch_of_an_environment_does_not_count(
    machine: FakeMachine, request_of_six: BisectRequest
) -> None:
    outcome = bisect(request_of_six)
    warmups = [entry for entry in outcome.state.launches if entry.is_warmup]
    assert len(warmups) == len(set(machine.ran))
    assert len(outcome.search.launches) == len(machine.ran) - len(warmups)
    of_steps = replace(
        request_of_six,
        metric=LaunchMetric("step"),
        directory=request_of_six.folder.with_name("steps"),
    )
    assert not any(entry.is_warmup for entry in bisect(of_steps).state.launches)


def test_a_stop_keeps_what_was_launched_and_the_same_call_goes_on(
    machine: FakeMachine, request_of_six: BisectRequest
) -> None:
    machine.stop_after = 7
    stopped = bisect(request_of_six)
    assert stopped.interrupted
    assert stopped.exit_code is ExitCode.INTERRUPTED
    assert len(stopped.state.launches) == 7
    machine.stop_after = None
    outcome = bisect(request_of_six)
    assert answer(outcome) == [3]
    assert len(outcome.state.launches) == len(machine.ran)
    before = len(machine.ran)
    assert answer(bisect(request_of_six)) == [3]
    assert len(machine.ran) == before


def test_it_is_kept_before_the_next_launch(
    machine: FakeMachine, request_of_six: BisectRequest
) -> None:
    """As a kill at any moment would find it."""
    kept: list[int] = []

    def look(line: str) -> None:
        if line.startswith("launch "):
            kept.append(len(recorded(request_of_six).state.launches))

    bisect(request_of_six, on_line=look)
    assert kept == list(range(1, len(machine.ran) + 1))


def test_an_environment_that_cannot_be_built_is_a_state_and_not_the_end(
    machine: FakeMachine, request_of_six: BisectRequest
) -> None:
    machine.unbuildable = (3,)
    outcome = bisect(request_of_six)
    assert answer(outcome) == [3, 4]
    assert outcome.search.unusable == {3: "could not be built: No matching distribution found"}
    (row,) = [one for one in outcome.export("").environments if one.label == "demo 1.3"]
    assert row.state == "not built"


def test_a_bad_end_that_fails_leaves_no_answer(
    machine: FakeMachine, request_of_six: BisectRequest
) -> None:
    machine.failing = (5,)
    outcome = bisect(request_of_six)
    assert outcome.search.ending is BisectionEnding.UNUSABLE
    assert outcome.exit_code is ExitCode.FAILED
    assert "ImportError" in outcome.export("").verdict
    machine.failing = ()
    assert answer(bisect(request_of_six)) == [3]


def test_a_budget_ends_it_without_an_answer(
    machine: FakeMachine, request_of_six: BisectRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(10_000))
    monkeypatch.setattr("torchscale.features.bisect.run.time.monotonic", lambda: float(next(clock)))
    outcome = bisect(replace(request_of_six, budget_seconds=5))
    assert len(machine.ran) == 5
    assert outcome.exit_code is ExitCode.UNABLE
    assert answer(bisect(replace(request_of_six, budget_seconds=500))) == [3]


def test_a_rate_is_better_when_it_is_higher(
    machine: FakeMachine, request_of_six: BisectRequest
) -> None:
    machine.seconds = lambda version: 80.0 if version >= 2 else 100.0
    rate = LaunchMetric("number", "([0-9.]+)", higher_is_better=True)
    outcome = bisect(replace(request_of_six, metric=rate))
    assert answer(outcome) == [2]
    (cost,) = outcome.export("").costs
    assert cost.ratio == pytest.approx(0.25, abs=0.01)
    assert outcome.export("").environments[0].mean == pytest.approx(100)


def test_a_number_that_changed_is_kept_and_the_same_call_goes_on(
    machine: FakeMachine, request_of_six: BisectRequest
) -> None:
    machine.seconds = lambda version: math.nan if version >= 2 else -2.5
    asked = replace(request_of_six, metric=LaunchMetric("change"))
    machine.stop_after = 5
    assert bisect(asked).interrupted
    kept = json.loads((asked.folder / FILE).read_text())["launches"]
    assert {(entry["value"], entry["number"]) for entry in kept} == {(None, "-2.5"), (None, "nan")}
    machine.stop_after = None
    lines: list[str] = []
    outcome = bisect(asked, on_line=lines.append)
    result = outcome.export("")
    assert outcome.exit_code is ExitCode.OK
    assert result.verdict == "The loss changed with demo 1.2, against demo 1.1: -2.5 → nan."
    assert any("nan" in line for line in lines)
    before = len(machine.ran)
    assert bisect(asked).export("").answers == (("demo 1.2",),)
    assert len(machine.ran) == before
    with pytest.raises(StoreError, match="another"):
        bisect(replace(asked, rule=ChangeRule(tolerance=0.1)))


@pytest.mark.parametrize("change", ["command", "alpha", "metric", "question"])
def test_a_folder_of_another_question_is_refused(
    machine: FakeMachine, request_of_six: BisectRequest, change: str
) -> None:
    bisect(request_of_six)
    other = {
        "command": replace(request_of_six, command=("python", "other.py")),
        "alpha": replace(request_of_six, limits=Limits(alpha=0.01)),
        "metric": replace(request_of_six, metric=LaunchMetric("cpu")),
        "question": replace(request_of_six, question=ask_versions("demo=1.0,1.5")),
    }[change]
    with pytest.raises(StoreError, match="another"):
        bisect(other)
    assert replace(other, directory=None).folder != replace(request_of_six, directory=None).folder


def test_a_damaged_file_is_refused_with_its_name(
    machine: FakeMachine, request_of_six: BisectRequest
) -> None:
    bisect(request_of_six)
    (request_of_six.folder / FILE).write_text("{")
    with pytest.raises(StoreError, match=FILE):
        bisect(request_of_six)


def test_no_secret_of_a_variable_is_printed(
    machine: FakeMachine, request_of_six: BisectRequest
) -> None:
    del machine
    hidden = "hf_abcdefghijklmnopqrstuvwxyz0123456789"
    question = ask(f"env:HF_TOKEN={hidden}", "env:A=1", directory=Path())
    outcome = recorded(replace(request_of_six, question=question))
    assert hidden not in outcome.export("").model_dump_json()
    outcome.state.write(request_of_six.cache.parent)
    assert hidden not in (request_of_six.cache.parent / FILE).read_text()


def test_packages_come_from_somewhere(request_of_six: BisectRequest) -> None:
    with pytest.raises(UsageError, match="where packages come from"):
        bisect(replace(request_of_six, sources=Sources()))
    assert not request_of_six.folder.exists()


def test_a_full_disk_ends_it_and_is_no_property_of_a_version(
    machine: FakeMachine, request_of_six: BisectRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.stop_after = 4
    bisect(request_of_six)

    def build(*_: object) -> Built:
        raise OutputError("cannot build demo: the disk of /cache is full")

    with monkeypatch.context() as full, pytest.raises(OutputError, match="is full"):
        full.setattr(Builder, "build", build)
        bisect(request_of_six)
    assert len(recorded(request_of_six).state.launches) == 4
    machine.stop_after = None
    assert answer(bisect(request_of_six)) == [3]


def test_what_is_built_again_is_told(
    machine: FakeMachine, request_of_six: BisectRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(_: Builder, environment: ProgramEnvironment, cancelled: Callable[[], bool]) -> Built:
        return replace(machine.build(environment, cancelled), note="built again, since it broke")

    monkeypatch.setattr(Builder, "build", build)
    lines: list[str] = []
    bisect(request_of_six, on_line=lines.append)
    assert lines.count("demo 1.0: built again, since it broke") == 1


def test_a_long_reason_is_cut_and_can_be_read_again(
    machine: FakeMachine, request_of_six: BisectRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    del machine
    failed = Launch(None, "failed", "x" * 100_000, 0.1)
    monkeypatch.setattr(CommandLauncher, "run", lambda *_: failed)
    bisect(request_of_six)
    assert {len(one.reason) for one in recorded(request_of_six).state.launches} == {2000}


@pytest.mark.slow
def test_launches_in_a_commit_see_their_own_repository_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "code"
    program = "import os\nprint('n', 1 + sum(name in os.environ for name in ('GIT_DIR', 'GIT_INDEX_FILE')))\n"
    commits(code, program, f"{program}#")
    monkeypatch.setenv("GIT_DIR", str(code / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(code / ".git" / "index"))
    outcome = bisect(
        BisectRequest(
            ask("git:v1", "git:v2", directory=code / "job"),
            (sys.executable, "train.py"),
            LaunchMetric("number", "n (.+)"),
            cache=tmp_path / "cache",
            directory=tmp_path / "folder",
            limits=Limits(most_launches=6),
        )
    )
    assert {one.value for one in outcome.state.launches} == {1.0}


LOOPS = 2_000_000


@pytest.mark.slow
def test_the_first_slow_one_of_twelve_real_versions(tmp_path: Path) -> None:
    """CPU time, which other programs on the machine change least; half of the work more from 1.5 on.
    1.9 cannot be built."""
    wheels = tmp_path / "wheels"
    write_versions(wheels, versions=12, first_slow=5, extra=0.5, loops=LOOPS)
    write_wheel(wheels, "demo", "1.9", "", requires=["absent==1"])
    outcome = bisect(
        BisectRequest(
            ask_versions("demo=" + ",".join(f"1.{version}" for version in range(12))),
            COMMAND,
            LaunchMetric("cpu"),
            Sources((wheels,)),
            cache=tmp_path / "cache",
            directory=tmp_path / "folder",
            limits=Limits(most_launches=400),
        )
    )
    assert answer(outcome) == [5]
    assert (tmp_path / "folder" / "launches" / "launch-000.log").exists()


@pytest.mark.slow
def test_a_kill_loses_no_launch(tmp_path: Path) -> None:
    """By the real command: it is killed with SIGKILL once three launches are kept, and goes on."""
    wheels = tmp_path / "wheels"
    write_versions(wheels, versions=3, first_slow=1, extra=1.0, loops=LOOPS)
    line = [
        sys.executable, "-m", "torchscale", "bisect", "demo==1.0", "demo==1.2",
        f"--wheels={wheels}", f"--cache={tmp_path / 'cache'}", f"--output-dir={tmp_path / 'folder'}",
        "--metric=cpu", "--json", "--", *COMMAND,
    ]  # fmt: skip
    state = tmp_path / "folder" / FILE
    first = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert wait_until(
            lambda: first.poll() is not None or _launches(state) >= 3, timeout_seconds=120
        )
        first.send_signal(signal.SIGKILL)
    finally:
        first.wait(timeout=60)
    kept = json.loads(state.read_text())["launches"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["answers"] == [["demo 1.1"]], result["environments"]
    assert json.loads(state.read_text())["launches"][: len(kept)] == kept


def _launches(state: Path) -> int:
    if not state.exists():
        return 0
    return len(json.loads(state.read_text())["launches"])
