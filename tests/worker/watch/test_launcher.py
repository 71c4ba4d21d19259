"""What torchrun sees of its ranks: torch's own classes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchscale.features.watch.ends.files import EndFiles, read_waits
from torchscale.worker.watch import ends, launcher, waits


@pytest.fixture(autouse=True)
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(ends._Ends, "folder", str(tmp_path))
    waits.note_waits(str(tmp_path))
    yield tmp_path
    waits.note_waits("")


@pytest.fixture
def failure(monkeypatch: pytest.MonkeyPatch) -> Any:
    from torch.distributed.elastic.multiprocessing import errors

    monkeypatch.setattr(errors.ProcessFailure, "__post_init__", errors.ProcessFailure.__post_init__)
    launcher._watch_failures(errors)
    return errors.ProcessFailure


class Context:
    """As torch's, which makes the failure."""

    envs = {1: {"RANK": "5", "WORLD_SIZE": "8", "TORCHELASTIC_RESTART_COUNT": "2"}}  # noqa: RUF012

    def capture(self, failure: Any) -> Any:
        return failure(local_rank=1, pid=4711, exitcode=-9, error_file="/nowhere")


def test_an_exit_is_left_with_the_rank_and_attempt(job: Path, failure: Any) -> None:
    made = Context().capture(failure)

    assert made.message == "Signal 9 (SIGKILL) received by PID 4711"  # torch's own
    (end,) = EndFiles(job).of_attempt(2)
    assert (end.kind, end.pid, end.exit_code) == ("exited", 4711, -9)
    assert (end.rank, end.local_rank, end.world_size) == (5, 1, 8)


def test_without_variables_the_local_rank_is_known(job: Path, failure: Any) -> None:
    failure(local_rank=1, pid=4711, exitcode=3, error_file="/nowhere")
    (end,) = EndFiles(job).of_attempt(0)
    assert (end.rank, end.local_rank, end.exit_code) == (None, 1, 3)


def test_an_error_of_torch_is_torchs(job: Path, failure: Any, tmp_path: Path) -> None:
    reply = tmp_path / "reply"
    reply.write_text("no JSON")
    with pytest.raises(json.JSONDecodeError):
        failure(local_rank=0, pid=1, exitcode=1, error_file=str(reply))


def _agent(seen: list[Any], job: Path) -> Any:
    class Agent:
        def _rendezvous(self, group: Any) -> str:
            holder = getattr(group.spec.rdzv_handler, "_state_holder", None)
            if holder is not None:
                holder.sync()
            seen.extend(read_waits(job))
            if group.fails:
                raise RuntimeError("no")
            return "done"

    return SimpleNamespace(SimpleElasticAgent=Agent)


class Holder:
    """As torch's, which holds what all nodes share."""

    def __init__(self) -> None:
        self.state = SimpleNamespace(participants={})

    def sync(self) -> bool:
        self.state.participants["here"] = 0
        return True


@pytest.mark.parametrize("fails", [False, True], ids=["met", "failed"])
def test_a_rendezvous_is_noted_while_it_waits(job: Path, *, fails: bool) -> None:
    seen: list[Any] = []
    module = _agent(seen, job)
    launcher._watch_rendezvous(module)
    holder = Holder()
    handler = SimpleNamespace(
        _settings=SimpleNamespace(min_nodes=2, max_nodes=4),
        _store=SimpleNamespace(host="head", port=29400),
        _state_holder=holder,
    )
    spec = SimpleNamespace(rdzv_handler=handler, local_world_size=8)
    group = SimpleNamespace(spec=spec, fails=fails)
    if fails:
        with pytest.raises(RuntimeError, match="no"):
            module.SimpleElasticAgent()._rendezvous(group)
    else:
        assert module.SimpleElasticAgent()._rendezvous(group) == "done"

    (wait,) = seen
    assert (wait.what, wait.address) == ("rendezvous", "head:29400")
    assert (wait.least_nodes, wait.most_nodes, wait.joined_nodes) == (2, 4, 1)
    assert read_waits(job) == []
    assert "sync" not in vars(holder)


def test_a_fixed_rendezvous_has_its_node_and_address(job: Path) -> None:
    seen: list[Any] = []
    module = _agent(seen, job)
    launcher._watch_rendezvous(module)
    handler = SimpleNamespace(master_addr="head", master_port=29500, rank=1, world_size=2)
    group = SimpleNamespace(spec=SimpleNamespace(rdzv_handler=handler), fails=False)
    module.SimpleElasticAgent()._rendezvous(group)

    (wait,) = seen
    assert (wait.address, wait.node, wait.least_nodes) == ("head:29500", 1, 2)


def test_a_rank_is_no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(launcher, "after_import", lambda name, _: asked.append(name))
    monkeypatch.setenv("LOCAL_RANK", "0")
    launcher.watch_launcher()
    assert asked == []
    monkeypatch.delenv("LOCAL_RANK")
    launcher.watch_launcher()
    assert len(asked) == 2
