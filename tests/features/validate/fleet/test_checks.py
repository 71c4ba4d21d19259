"""The steps of a check: both sides of the channel in one process, each running a stand-in for its
part."""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.features.cluster.nodes.test_leader import SOON, Nodes
from torchscale.features.cluster.nodes.follower import Follower
from torchscale.features.cluster.nodes.messages import CheckStep
from torchscale.features.validate.fleet import checks
from torchscale.features.validate.fleet.checks import (
    RESULT,
    IsOver,
    RunPart,
    StepResult,
    node_place,
    run_step,
    take_part,
)
from torchscale.launch.control import StopRequest


@pytest.fixture
def three() -> Iterator[Nodes]:
    """Three nodes that have met."""
    nodes = Nodes(3)
    nodes.join(1)
    nodes.join(2)
    nodes.meet()
    yield nodes
    nodes.close()


def step(place: int = 0, nodes: int = 3) -> CheckStep:
    """Of the nodes' own checks."""
    return CheckStep(order=0, kind="node", node_rank=place, nodes=nodes)


def writes(text: str, problem: str = "") -> RunPart:
    """A part that sends ``text``."""

    def run(order: CheckStep, directory: Path, is_over: IsOver) -> str:
        del is_over
        (directory / RESULT).write_text(f"{text} at {order.node_rank}")
        return problem

    return run


def waits(order: CheckStep, directory: Path, is_over: IsOver) -> str:
    """A part that runs until it is to end."""
    del order, directory
    deadline = time.monotonic() + SOON
    while not is_over() and time.monotonic() < deadline:
        time.sleep(0.01)
    return "ended" if is_over() else "never told to end"


def follow(follower: Follower, part: RunPart) -> threading.Thread:
    """Take one order in a thread."""

    def take() -> None:
        order = follower.orders.get(timeout=SOON)
        assert isinstance(order, CheckStep)
        take_part(order, follower, part, StopRequest())

    thread = threading.Thread(target=take)
    thread.start()
    return thread


def run(nodes: Nodes, directory: Path, *parts: RunPart, together: bool) -> StepResult:
    """A step on all nodes, with a part for each."""
    threads = [follow(each, part) for each, part in zip(nodes.followers, parts[1:], strict=True)]
    layout = nodes.leader.layout(len(parts), 1)
    result = run_step(
        nodes.leader,
        layout,
        [step(nodes=len(parts))] * len(parts),
        parts[0],
        directory=directory,
        seconds=SOON,
        stop=StopRequest(),
        together=together,
    )
    for thread in threads:
        thread.join(SOON)
        assert not thread.is_alive()
    return result


def test_every_node_runs_its_part_and_sends_its_file(three: Nodes, tmp_path: Path) -> None:
    result = run(three, tmp_path, writes("zero"), writes("one"), writes("two"), together=False)
    assert result.problems == {}
    texts = {rank: path.read_text() for rank, path in result.files.items()}
    assert texts == {0: "zero at 0", 1: "one at 1", 2: "two at 2"}
    assert three.leader.available == 3


def test_a_failure_of_one_node_leaves_the_others_results(three: Nodes, tmp_path: Path) -> None:
    result = run(
        three, tmp_path, writes("zero"), writes("one", "no disk"), writes("two"), together=False
    )
    assert result.problems == {1: "no disk"}
    assert sorted(result.files) == [0, 1, 2]


def test_where_parts_need_each_other_one_that_fails_ends_the_others(
    three: Nodes, tmp_path: Path
) -> None:
    result = run(three, tmp_path, waits, writes("", "no GPU"), waits, together=True)
    assert result.problems == {0: "ended", 1: "no GPU", 2: "ended"}


def test_a_node_that_is_lost_is_named_and_the_others_answer(three: Nodes, tmp_path: Path) -> None:
    def leave(order: CheckStep, directory: Path, is_over: IsOver) -> str:
        del order, directory, is_over
        three.followers[0].close("its cable was pulled")
        return ""

    result = run(three, tmp_path, writes("zero"), leave, writes("two"), together=False)
    assert result.problems == {1: "its cable was pulled"}
    assert sorted(result.files) == [0, 2]
    assert three.leader.available == 2


@pytest.mark.slow
def test_a_program_that_fails_or_hangs_is_ended_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: queue.Queue[list[str]] = queue.Queue()
    monkeypatch.setattr(checks, "module_command", lambda *_: commands.get_nowait())
    place = node_place(step(), "127.0.0.1", "127.0.0.1")
    order = CheckStep(
        order=1, kind="collective", node_rank=0, nodes=2, backend="gloo", master_port=29999
    )
    commands.put([])
    commands.put([sys.executable, "-c", "raise ValueError('no such device')"])
    assert (
        checks.run_collective(order, place, tmp_path, timeout_seconds=SOON, is_over=lambda: False)
        == "ValueError: no such device"
    )
    commands.put([sys.executable, "-c", "import time; time.sleep(600)"])
    pairs = order.model_copy(update={"kind": "pairs", "partners": (), "gpu": 3})
    with monkeypatch.context() as short:
        short.setattr(checks, "_START_SECONDS", 0.2)
        problem = checks.run_pairs(
            pairs, place, tmp_path, timeout_seconds=0.1, is_over=lambda: False
        )
    assert problem == "no end within 0.3 s"
    assert json.loads((tmp_path / "task.json").read_text())["gpu"] == 3
    shows = "import os; raise ValueError([os.environ[name] for name in %r])"
    commands.put([sys.executable, "-c", shows % sorted(checks.PAIR_VARIABLES)])
    monkeypatch.setenv("TORCH_NCCL_BLOCKING_WAIT", "of the user")
    monkeypatch.delenv("TORCH_DIST_USE_NCCL2", raising=False)
    problem = checks.run_pairs(pairs, place, tmp_path, timeout_seconds=SOON, is_over=lambda: False)
    assert problem == "ValueError: ['0', 'of the user']"
