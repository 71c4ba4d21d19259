"""A sweep over agents: what they are sent, and real ones that measure."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.factories import experiment
from tests.features.cluster.engines.local_engine import SOON, LineEngine, ProcessEngine
from tests.features.cluster.engines.test_fleet import node
from tests.integration.conftest import CATALOGUED, FAST
from torchscale.config.secrets import hidden_environment, hide_secrets
from torchscale.errors import ExitCode, MachineError, OutputError
from torchscale.features.cluster.engines.sweep import (
    EngineSweep,
    read_experiment,
    write_experiment,
)
from torchscale.features.machine.measure import measure_collectives
from torchscale.features.validate.fleet.node_part import FleetOptions
from torchscale.features.validate.fleet.run import JoinedNodes, validate_fleet
from torchscale.measure.benchmark import BenchmarkOutcome, benchmark
from torchscale.observer import SilentObserver
from torchscale.schema.state import State
from torchscale.util.processes.subprocesses import wait_until
from torchscale.util.redaction import redact_text

PASSWORD = "hunter2-of-these-tests"  # noqa: S105 - of nobody


def test_an_experiment_reaches_agents_with_its_secrets() -> None:
    given = hide_secrets(
        experiment(
            models=[{"name": "mine:Model", "API_KEY": PASSWORD, "size": 3}],
            launch={"env": {"DB_TOKEN": PASSWORD + "2", "PLAIN": "1"}},
        )
    )
    assert given.hidden
    read = read_experiment(write_experiment(given))
    assert read == given
    assert hidden_environment(read) == hidden_environment(given)
    assert PASSWORD in str(hidden_environment(read))


def test_an_agent_knows_what_is_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    given = hide_secrets(
        experiment(
            models=[{"name": "mine:Model", "API_KEY": PASSWORD}],
            launch={"env": {"DB_TOKEN": "of-the-db-alone"}},
        )
    )
    content = write_experiment(given)
    monkeypatch.setattr("torchscale.util.redaction._noted", set())
    assert PASSWORD in redact_text(f"the word is {PASSWORD}")
    read_experiment(content)
    assert PASSWORD not in redact_text(f"the word is {PASSWORD}")
    assert "of-the-db-alone" not in redact_text("the word is of-the-db-alone")


@pytest.fixture
def examined() -> Iterator[LineEngine]:
    """A node without torch."""
    engine = LineEngine(node(problem="no torch here"))
    yield engine
    engine.close()
    engine.end()


def test_agents_end_where_there_is_no_plan(examined: LineEngine, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"node 0 \(host0\): no torch here"):
        benchmark(experiment(), output_dir=tmp_path / "run", node=EngineSweep(examined))
    assert examined.is_closed


def test_agents_end_where_the_plan_is_interrupted(
    examined: LineEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("torchscale.measure.benchmark.plan_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        benchmark(experiment(), output_dir=tmp_path / "run", node=EngineSweep(examined))
    assert examined.is_closed


def test_agents_end_where_collectives_are_not_planned(examined: LineEngine, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="no torch here"):
        measure_collectives(
            experiment(measure=["collectives"]),
            output_dir=tmp_path / "run",
            node=EngineSweep(examined),
        )
    assert examined.is_closed


def test_agents_end_where_the_folder_cannot_be_written(
    examined: LineEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = SimpleNamespace(plan=None, require_cells=lambda **_: None)
    monkeypatch.setattr("torchscale.measure.benchmark.plan_run", lambda *_, **__: planned)
    (tmp_path / "run").write_text("a file")
    with pytest.raises(OutputError):
        benchmark(experiment(), output_dir=tmp_path / "run", node=EngineSweep(examined))
    assert examined.is_closed


def test_agents_end_where_a_check_does_not_begin(
    examined: LineEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise TimeoutError("not done within 5 s")

    monkeypatch.setattr("torchscale.features.cluster.engines.fleet.EngineFleet.begin", fails)
    with pytest.raises(TimeoutError):
        validate_fleet(JoinedNodes(examined), FleetOptions())
    assert examined.is_closed


class Agents:
    """Real agents, and a sweep over them."""

    def __init__(self, directory: Path, mark: str) -> None:
        self.directory, self.mark = directory, mark
        self.engine = ProcessEngine(
            2, directory, {**os.environ, "TORCHSCALE_TEST_MARK": mark, "TMPDIR": str(directory)}
        )
        self.run = directory / "run"
        self.notes = Noting()

    def measure(self, **benchmarked: Any) -> BenchmarkOutcome:
        """Measure two cells over both."""
        config = experiment(
            models=[CATALOGUED],
            batch_sizes=[8, 16],
            gpu_counts=[2],
            device="cpu",
            benchmark={**FAST, "repeats": 1, **benchmarked},
            launch={"nodes": 2, "devices_per_node": 1, "threads_per_rank": 1},
        )
        return benchmark(
            config, output_dir=self.run, node=EngineSweep(self.engine), observer=self.notes
        )

    def once_measuring(self, do: Callable[[], object]) -> threading.Thread:
        """Do something once the first launch measures."""

        def wait() -> None:
            paths = self.run.glob
            assert wait_until(
                lambda: any(
                    '"measuring"' in path.read_text()
                    for path in paths("cells/*/launch-0/progress.jsonl")
                ),
                timeout_seconds=120,
            )
            do()

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        return thread

    def left(self) -> list[int]:
        """Living processes of the agents."""
        found = []
        for process in psutil.process_iter():
            try:
                marked = process.environ().get("TORCHSCALE_TEST_MARK") == self.mark
                if marked and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process.pid)
            except (psutil.Error, OSError):
                continue
        return found


class Noting(SilentObserver):
    """Keeps what is noted."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    """Two real agents, which leave nothing."""
    made = Agents(tmp_path, f"{tmp_path.name}{os.getpid()}")
    yield made
    made.engine.close()
    assert wait_until(lambda: not made.left(), timeout_seconds=SOON)


@pytest.mark.slow
def test_a_node_that_dies_is_lost_and_measures_again(agents: Agents) -> None:
    killing = agents.once_measuring(lambda: agents.engine.kill(1))
    outcome = agents.measure(min_seconds=3, max_seconds=6, max_steps=1_000_000)
    killing.join(SOON)
    first, second = outcome.summary.everything
    assert first.state is State.NODE_LOST
    assert second.state is State.OK
    assert agents.engine.opened == [0, 1, 1]
    said = "\n".join(agents.notes.said)
    assert "was lost: it ended with -9" in said
    assert ") joined" in said
    assert outcome.exit_code is ExitCode.FAILED
    records = [path.read_text() for path in agents.run.glob("cells/*/launch-0/record.json")]
    assert len(records) == 2
    assert not agents.left()


@pytest.mark.slow
def test_an_interrupted_sweep_ends_its_agents(agents: Agents) -> None:
    stopping = agents.once_measuring(lambda: os.kill(os.getpid(), signal.SIGINT))
    outcome = agents.measure(min_seconds=60, max_seconds=60, max_steps=1_000_000)
    stopping.join(SOON)
    assert outcome.interrupted
    assert not agents.left()
    assert agents.engine.opened == [0, 1]
