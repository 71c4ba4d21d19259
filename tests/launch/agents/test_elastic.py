"""Launches under torchrun's agent, whose ranks are forks of a process that has imported torch."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.campaign import cases
from tests.factories import training_result
from tests.integration.conftest import FAST, MODELS
from tests.launch.tasks import LIMITS, SOUND, tasks
from torchscale.features.watch.hang.evidence import rank_processes
from torchscale.launch.agents import elastic
from torchscale.launch.agents.elastic import ElasticLauncher
from torchscale.launch.agents.forker import AgentForker, forks_ranks
from torchscale.launch.control import LaunchLimits, StopRequest
from torchscale.launch.environment import cpu_environment
from torchscale.launch.run import run_launch
from torchscale.schema.cells.kinds import AnyCell
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.task import LaunchTask
from torchscale.schema.state import State
from torchscale.util.processes.description import is_running
from torchscale.util.processes.names import AGENT_NAME
from torchscale.util.processes.subprocesses import find_token_processes, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.real]

HANGING = {"name": "faulty:build", "fault": "hang", "rank": 1, "step": 6}


class Started(ElasticLauncher):
    """A launcher whose process can be looked at."""

    @property
    def pid(self) -> int:
        """Of the process that forks agents."""
        assert self._process is not None
        return self._process.pid

    @property
    def token(self) -> str:
        """What all its processes carry."""
        assert self._process is not None
        return self._process.token


@contextmanager
def launcher(tmp_path: Path) -> Iterator[Started]:
    """One that leaves nothing behind."""
    started = Started(tmp_path / "channel")
    try:
        yield started
    finally:
        started.close()
        assert not (tmp_path / "channel").exists()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where launches of :func:`shared` find the models that tests write."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """One that imports torch once for all tests that launch in the same environment. It starts anew
    after a launch that failed: such tests come last."""
    with launcher(tmp_path_factory.mktemp("shared")) as started:
        yield started


def run(forks: ElasticLauncher, task: LaunchTask, directory: Path, **changes: Any) -> LaunchRecord:
    directory.mkdir()
    task = task.model_copy(update={"started_at": time.time()})
    options = {
        "limits": LIMITS,
        "extra_env": env(),
        "stop": StopRequest(),
        "on_progress": lambda progress: None,
        **changes,
    }
    with without_name_of_test():
        return forks.run(task, directory, **options)


@contextmanager
def without_name_of_test() -> Iterator[None]:
    """The environment without the variable that names the test: a launcher that several share would
    start anew for each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTEST_CURRENT_TEST", raising=False)
        yield


def env(*places: Path, **variables: str) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(map(str, (MODELS, *places))), **variables}


def write_model(place: Path, name: str, code: str) -> dict[str, object]:
    """A model like ``faulty:build`` that runs ``code`` when it is built."""
    indented = "\n".join(f"    {line}" for line in code.splitlines())
    (place / f"{name}.py").write_text(
        f"import os, sys\nfrom faulty import build as faulty\n\ndef build(**options):\n{indented}\n"
        "    return faulty(**options)\n"
    )
    return {"name": f"{name}:build", "fault": "none"}


def printed(directory: Path, rank: int = 0) -> list[str]:
    return (directory / f"rank-{rank}.stdout.log").read_text().splitlines()


def test_each_launch_has_processes_of_its_own_and_one_imports_for_all(tmp_path: Path) -> None:
    fixed: dict[str, Any] = {"benchmark": {**FAST, "measure_steps": 10}}
    wanted = tasks("tiny-resnet", "tiny-decoder", parallel={"strategy": ["ddp", "fsdp"]})
    wanted += tasks(
        {"name": "tiny-llama", "sequence_length": 16}, training={"precision": "bf16"}, **fixed
    )
    wanted += tasks(
        "faulty:dropping", **fixed
    )  # its losses depend on the state of the random generators
    (single,) = tasks(SOUND, world_size=1, **fixed)
    wanted = [single, *wanted[:2], single, *wanted[2:]]
    with launcher(tmp_path) as forks:
        records = [run(forks, task, tmp_path / str(number)) for number, task in enumerate(wanted)]
        token = forks.token
        assert [process.pid for process in find_token_processes(token)] == [forks.pid], (
            "ranks have left"
        )
    assert not find_token_processes(token)
    assert [record.state for record in records] == [State.OK] * 8, [
        record.reason for record in records
    ]
    assert [record.exit_code for record in records] == [0] * 8
    assert {(record.forked, record.grouped) for record in records} == {(True, False)}
    assert [record.cell_id for record in records] == [task.cell.id for task in wanted]
    ranks = [training_result(record).ranks for record in records]
    pids = [rank.pid for launch in ranks for rank in launch]
    assert len(set(pids)) == len(pids) == 14
    assert [len(launch) for launch in ranks] == [task.cell.world_size for task in wanted]
    assert {rank.world_size for launch in ranks[4:] for rank in launch} == {2}
    assert all(
        [rank.cpus for rank in launch] == [rank.cpus for rank in ranks[1]][: len(launch)]
        for launch in ranks
    )
    for task, launch in zip(wanted, ranks, strict=True):
        assert isinstance(task.cell, TrainingCell)
        # One rank, and shards, have nothing to be compared with.
        equal = True if task.cell.strategy.name == "ddp" and task.cell.world_size > 1 else None
        assert {rank.parameters_equal for rank in launch} == {equal}
        assert None not in [rank.memory.peak_bytes for rank in launch], (
            "memory is that of the launch alone"
        )
    # What starting costs is paid once.
    setups = [launch[0].setup for launch in ranks]
    assert setups[0] is not None and setups[3] is not None
    assert setups[0].import_seconds > 3 * setups[3].import_seconds
    assert all((tmp_path / str(number) / "torchrun.log").exists() for number in range(8))
    assert not list(tmp_path.glob("*/logs"))
    assert (
        json.loads((tmp_path / "7" / "task.json").read_text())["cell"]["model"] == "faulty:dropping"
    )

    # Nothing of the cells before shows in the losses.
    with launcher(tmp_path) as forks:
        alone = run(forks, wanted[-1], tmp_path / "alone")
    assert [rank.first_loss for rank in training_result(alone).ranks] == [
        rank.first_loss for rank in ranks[-1]
    ]


def test_ranks_find_what_a_torchrun_command_sets(
    tmp_path: Path, place: Path, shared: Started
) -> None:
    shown = (
        "import json, torch.distributed as dist; print(json.dumps([dict(os.environ), "
        "dist.is_torchelastic_launched()]))"
    )
    model = write_model(place, "telling", shown)
    (task,) = tasks(model)
    (tmp_path / "command").mkdir()
    with without_name_of_test():
        command = run_launch(
            task.model_copy(update={"started_at": time.time()}),
            tmp_path / "command",
            limits=LIMITS,
            extra_env=env(place),
            stop=StopRequest(),
            on_progress=lambda progress: None,
        )
    forked = run(shared, task, tmp_path / "forked", extra_env=env(place))
    assert (command.state, command.forked) == (State.OK, False), command.reason
    assert forked.state is State.OK, forked.reason
    module, channel = forked.command[-2:]
    assert module == "torchscale.worker.launcher.elastic_launcher"
    assert Path(channel).name == "channel"
    for rank in range(2):
        theirs, is_launched = json.loads(printed(tmp_path / "command", rank)[0])
        mine, is_mine_launched = json.loads(printed(tmp_path / "forked", rank)[0])
        assert is_launched is is_mine_launched is True
        own = {"TORCHELASTIC_SIGNALS_TO_HANDLE"}  # of the command, which its ranks inherit
        assert set(theirs) - set(mine) - {"_"} <= own
        changing = {
            "TORCHELASTIC_RUN_ID",
            "TORCHELASTIC_ERROR_FILE",
            "MASTER_PORT",
            "TORCHSCALE_LAUNCH_TOKEN",
        }
        of_ranks = [
            name
            for name in theirs
            if name.startswith(("TORCH", "RANK", "LOCAL", "GROUP", "ROLE", "MASTER"))
        ]
        assert {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "LOCAL_RANK"} <= set(of_ranks)
        for name in set(of_ranks) - changing - own:
            assert mine[name] == theirs[name], name


def test_no_launch_collects_what_imports_have_made(
    tmp_path: Path, place: Path, shared: Started
) -> None:
    """The collector is off during imports. Objects that it has not seen by then would be gone over
    in the steps of every launch."""
    code = (
        "import gc\nprint(gc.isenabled(), *(len(gc.get_objects(generation)) for generation in "
        "range(3)), flush=True)"
    )
    (task,) = tasks(write_model(place, "counting", code), world_size=1)
    record = run(shared, task, tmp_path / "launch", extra_env=env(place))
    assert record.state is State.OK, record.reason
    enabled, *counts = printed(tmp_path / "launch")[0].split()
    assert enabled == "True"
    youngest, young, old = map(int, counts)
    assert youngest + young < 0.1 * old, counts


@contextmanager
def started_before(tmp_path: Path, channel: str, **variables: str) -> Iterator[AgentForker]:
    """A process that has been started before there is a launcher."""
    with without_name_of_test():
        environment = cpu_environment(1, {**env(), **variables})
    forker = AgentForker(tmp_path / channel, environment)
    try:
        yield forker
    finally:
        forker.close()


def test_a_process_that_was_started_before_forks_the_launches(tmp_path: Path) -> None:
    (task,) = tasks(SOUND)
    with started_before(tmp_path, "channel") as forker:
        forks = ElasticLauncher(tmp_path / "channel", forker)
        assert not forks.was_used
        try:
            records = [run(forks, task, tmp_path / name) for name in ("first", "second")]
            assert forker.poll() is None
            assert [process.pid for process in find_token_processes(forker.token)] == [forker.pid]
        finally:
            forks.close()
        assert forker.poll() is not None
    assert [record.state for record in records] == [State.OK] * 2, records[0].reason


@pytest.mark.parametrize(
    ("channel", "variables"), [("channel", {"OTHER": "1"}), ("elsewhere", {})], ids=str
)
def test_a_process_that_was_started_for_something_else_is_ended(
    tmp_path: Path, channel: str, variables: dict[str, str]
) -> None:
    (task,) = tasks(SOUND, world_size=1)
    with started_before(tmp_path, channel, **variables) as forker:
        forks = ElasticLauncher(tmp_path / "channel", forker)
        try:
            record = run(forks, task, tmp_path / "launch")
        finally:
            forks.close()
        assert record.state is State.OK, record.reason
        assert forker.poll() is not None
        assert not find_token_processes(forker.token)


def test_what_ranks_read_from_standard_input_is_nothing(
    tmp_path: Path, place: Path, shared: Started
) -> None:
    (task,) = tasks(write_model(place, "reading", "print(repr(sys.stdin.read()))"), world_size=1)
    record = run(shared, task, tmp_path / "launch", extra_env=env(place))
    assert record.state is State.OK, record.reason
    assert printed(tmp_path / "launch") == ["''"]


def test_threads_of_a_model_hold_up_neither_its_launch_nor_its_end(
    tmp_path: Path, place: Path, shared: Started
) -> None:
    code = (
        "import "
        "threading\nthreading.Thread(target=threading.Event().wait).start()\nprint(threading.active_count() > 1)"
    )
    threaded, plain = tasks(write_model(place, "threaded", code), SOUND, world_size=1)
    records = [
        run(shared, task, tmp_path / str(number), extra_env=env(place))
        for number, task in enumerate((threaded, plain))
    ]
    assert [record.state for record in records] == [State.OK] * 2, [
        record.reason for record in records
    ]
    assert printed(tmp_path / "0") == ["True"]
    assert records[0].seconds < LIMITS.stall_seconds


@contextmanager
def once_at_work(directory: Path, act: Callable[[], None]) -> Iterator[None]:
    """Acts while the launch in ``directory`` is in its steps: a second after the first of its
    warm-up."""
    reached: list[bool] = []

    def wait_and_act() -> None:
        reached.append(wait_until((directory / "progress.jsonl").exists, timeout_seconds=60))
        time.sleep(1.0)
        act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert reached == [True]


def test_the_parent_of_the_ranks_is_an_agent_and_a_stop_request_ends_them_all(
    tmp_path: Path,
) -> None:
    (task,) = tasks(HANGING)
    stop = StopRequest()
    seen: dict[int, psutil.Process] = {}
    parents: set[str] = set()
    with launcher(tmp_path) as forks:

        def look_and_stop() -> None:
            seen.update(rank_processes(forks.pid))
            parents.update(psutil.Process(process.ppid()).name() for process in seen.values())
            stop.count = 1

        with once_at_work(tmp_path / "launch", look_and_stop):
            record = run(
                forks, task, tmp_path / "launch", stop=stop, extra_env=env(RANK="7")
            )  # of what started us
    assert record.state is State.INTERRUPTED
    assert set(seen) == {0, 1}
    assert parents == {AGENT_NAME}
    assert not any(map(is_running, seen.values()))


@pytest.mark.parametrize("name", cases(["launcher"], ["agent"]))
def test_a_process_above_the_ranks_that_is_killed_is_named_and_the_next_launch_runs(
    tmp_path: Path, name: str
) -> None:
    hanging, sound = tasks(HANGING, SOUND)
    seen: dict[int, psutil.Process] = {}
    with launcher(tmp_path) as forks:

        def kill() -> None:
            seen.update(rank_processes(forks.pid))
            (agent,) = psutil.Process(forks.pid).children()
            os.kill(agent.pid if name == "agent" else forks.pid, signal.SIGKILL)

        with once_at_work(tmp_path / "first", kill):
            first = run(forks, hanging, tmp_path / "first")
        assert not any(map(is_running, seen.values()))
        second = run(forks, sound, tmp_path / "second")
    program = "torchrun" if name == "agent" else "the process that starts torchrun's agent"
    assert (first.state, first.reason) == (State.KILLED, f"{program} was killed by SIGKILL")
    assert second.state is State.OK, second.reason


def test_a_dead_rank_ends_the_others(tmp_path: Path, place: Path, shared: Started) -> None:
    """Also one that would not notice."""
    code = (
        "import time\nif os.environ['RANK'] == '1':\n    os.kill(os.getpid(), 9)\ntime.sleep(600)"
    )
    (task,) = tasks(write_model(place, "alone", code))
    began = time.monotonic()
    record = run(shared, task, tmp_path / "launch", extra_env=env(place))
    assert time.monotonic() - began < LIMITS.stall_seconds
    assert record.state is State.KILLED
    assert record.reason.startswith("rank 1 was killed by SIGKILL")
    assert record.exit_code == 1


@pytest.mark.parametrize("world_size", cases([1], [2]))
def test_ranks_that_leave_with_0_are_not_waited_for(
    tmp_path: Path, place: Path, shared: Started, world_size: int
) -> None:
    """torchrun's agent takes what functions return for their end."""
    (task,) = tasks(write_model(place, "leaving", "os._exit(0)"), world_size=world_size)
    began = time.monotonic()
    record = run(shared, task, tmp_path / "launch", extra_env=env(place))
    assert time.monotonic() - began < LIMITS.stall_seconds
    assert record.state is State.INCOMPLETE
    assert "exited before the measurement was complete, without an error" in record.reason
    assert record.exit_code == 0


def test_a_launch_runs_in_the_environment_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one launch alone needs is set in its processes; where anything else changes, torch is
    imported anew."""
    monkeypatch.delenv("OF_THE_USER", raising=False)
    (task,) = tasks(
        write_model(
            tmp_path, "told", "print(*map(os.environ.get, ('OF_THE_USER', 'OF_THE_CELL')))"
        ),
        world_size=1,
    )
    wanted = cases([("a", "1"), ("a", "2"), ("a", ""), ("", "1")], [("b", "1")])
    pids = []
    with launcher(tmp_path) as forks:
        for number, (users, cells) in enumerate(wanted):
            monkeypatch.setattr(elastic, "cell_environment", of_cell(cells))
            monkeypatch.setattr("torchscale.launch.torchrun.cell_environment", of_cell(cells))
            variables = env(tmp_path, **({"OF_THE_USER": users} if users else {}))
            record = run(forks, task, tmp_path / str(number), extra_env=variables)
            assert record.state is State.OK, record.reason
            pids.append(forks.pid)
    told = [printed(tmp_path / str(number))[0].split() for number in range(len(wanted))]
    assert told == [[users or "None", cells or "None"] for users, cells in wanted]
    assert pids[0] == pids[1] == pids[2]
    assert len(set(pids[2:])) == len(pids[2:])


def code_command(module: str, *arguments: str) -> list[str]:
    return [
        sys.executable,
        "-c",
        f"import runpy; runpy.run_module('{module}', run_name='__main__')",
        *arguments,
    ]


def of_cell(value: str) -> Callable[[AnyCell], dict[str, str]]:
    return lambda cell: {"OF_THE_CELL": value} if value else {}


def test_a_users_module_is_imported_by_each_rank_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may read the rank when it is imported; and the process that imports torch must not find a
    module there."""
    (tmp_path / "torch.py").write_text(
        "raise ImportError('the working directory was searched first')\n"
    )
    (tmp_path / "mine.py").write_text(
        "import os\nfrom pathlib import Path\nfrom faulty import build\n"
        "Path(__file__).with_name('imported-' + os.environ['RANK']).write_text(str(os.getpid()))\n"
    )
    monkeypatch.chdir(tmp_path)
    (task,) = tasks({"name": "mine:build", "fault": "none"})
    with launcher(tmp_path) as forks:
        record = run(forks, task, tmp_path / "launch")
    assert record.state is State.OK, record.reason
    imported = [int((tmp_path / f"imported-{number}").read_text()) for number in (0, 1)]
    assert imported == [rank.pid for rank in training_result(record).ranks]


def test_without_shared_memory_ranks_are_no_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert forks_ranks("cpu")
    assert not forks_ranks("cuda")

    def get_context(method: str) -> Any:
        raise OSError(38, "Function not implemented", method)

    monkeypatch.setattr("multiprocessing.get_context", get_context)
    assert not forks_ranks("cpu")


@pytest.mark.campaign
@pytest.mark.parametrize("fault", ["raise", "kill", "leave", "segfault", "nan"])
def test_a_failure_tells_its_cause(tmp_path: Path, fault: str) -> None:
    good, bad = tasks(SOUND, {"name": "faulty:build", "fault": fault, "rank": 1, "step": 6})
    with launcher(tmp_path) as forks:
        assert run(forks, good, tmp_path / "good").state is State.OK
        token = forks.token
        record = run(forks, bad, tmp_path / "bad")
    expected = {
        "raise": State.CRASHED,
        "kill": State.KILLED,
        "leave": State.INCOMPLETE,
        "segfault": State.CRASHED,
        "nan": State.INVALID,
    }
    assert record.state is expected[fault]
    if fault == "raise":
        assert "the fault that was asked for" in record.reason
        assert "the fault that was asked for" in record.log_tail
    assert not find_token_processes(token)


@pytest.mark.campaign
@pytest.mark.parametrize("named", [True, False])
def test_a_hang_is_ended_and_located(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """Also where the command line does not name the module, as before Python 3.11."""
    if not named:
        monkeypatch.setattr(elastic, "module_command", code_command)
    good, bad = tasks(SOUND, HANGING)
    with launcher(tmp_path) as forks:
        run(forks, good, tmp_path / "good")
        token = forks.token
        record = run(
            forks, bad, tmp_path / "bad", limits=LaunchLimits(timeout_seconds=60, stall_seconds=6)
        )
    assert record.state is State.TIMEOUT
    assert "rank 1 never called it; it is in faulty.py" in record.reason
    assert not find_token_processes(token)
