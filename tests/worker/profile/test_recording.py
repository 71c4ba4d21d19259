"""Recording for nsys with a fake CUDA: what each process asks of the profiler, and in which
order."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from torchscale.config.choices import ProfileTarget, Tool
from torchscale.schema.profiles.recording import RecordedRank
from torchscale.schema.profiles.request import RecordRequest
from torchscale.worker.process_group import Ranks
from torchscale.worker.profile import recording as module
from torchscale.worker.rank_files import RankFiles

STEPS = 5


class Cuda:
    """Logs what is asked of CUDA, in order; its events too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        self.events = 0
        runtime = SimpleNamespace(
            cudaProfilerStart=lambda: self.log.append("start"),
            cudaProfilerStop=lambda: self.log.append("stop"),
        )
        monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
        monkeypatch.setattr(
            torch.cuda, "synchronize", lambda device: self.log.append("synchronize")
        )
        monkeypatch.setattr(torch.cuda, "Event", self.event)
        monkeypatch.setattr(torch.cuda.nvtx, "mark", self.log.append)
        monkeypatch.setattr(torch.cuda.nvtx, "range_push", self.log.append)
        monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: self.log.append("pop"))
        monkeypatch.setattr(
            torch.cuda.nvtx, "range_start", lambda name: self.log.append(f"start {name}")
        )
        monkeypatch.setattr(torch.cuda.nvtx, "range_end", lambda handle: None)

    def event(self) -> SimpleNamespace:
        """An event with a number of its own."""
        number, self.events = self.events, self.events + 1
        return SimpleNamespace(
            record=lambda: self.log.append(f"record {number}"),
            synchronize=lambda: self.log.append(f"wait {number}"),
        )


def ranks(number: int) -> Ranks:
    return Ranks(
        rank=number,
        local_rank=number,
        world_size=2,
        device=torch.device("cuda", number),
        backend=None,
    )


def recorded(number: int, monkeypatch: pytest.MonkeyPatch, directory: Path) -> list[str]:
    """What one rank asks of CUDA while it is recorded."""
    cuda = Cuda(monkeypatch)
    trainer: Any = SimpleNamespace(
        source=None,
        step=lambda: cuda.log.append("train"),
        clear_marks=lambda: None,
        marks=SimpleNamespace(on_phase=None),
    )
    step_seconds = 0.5
    request = RecordRequest(
        tool=Tool.NSYS,
        target=ProfileTarget.SYNC_STALLS,
        directory=str(directory),
        seconds=1,
        max_steps=STEPS,
    )
    files = RankFiles(directory, number)
    module._for_nsys(trainer, request, ranks(number), files, steps=STEPS, step_seconds=step_seconds)
    return cuda.log


@pytest.mark.parametrize("number", [0, 1])
def test_every_process_starts_settles_and_marks_and_one_ends(
    number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = recorded(number, monkeypatch, tmp_path)
    first = log.index(f"torchscale.rank {number}/2")
    assert log[0] == "start"
    assert log[:first].count("train") == 3
    assert (
        log[first - 1] == "synchronize"
    )  # nothing of the steps before runs in the first marked one
    steps = [entry for entry in log if entry.startswith("torchscale.step")]
    assert steps == [f"torchscale.step {step}" for step in range(STEPS)]
    assert log.count(f"torchscale.rank {number}/2") == STEPS
    last = log.index(f"torchscale.step {STEPS - 1}")
    assert log[last : last + 4] == [f"torchscale.step {STEPS - 1}", "train", "synchronize", "pop"]
    assert log.count("stop") == (number == 0)
    done = RecordedRank.model_validate_json(
        (tmp_path / f"recorded-rank-{number}.json").read_bytes()
    )
    assert (done.rank, done.steps) == (number, STEPS)


def test_the_host_is_at_most_two_steps_ahead_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Cuda(monkeypatch)
    for step in module.paced(4, torch.device("cuda", 0)):
        cuda.log.append(f"step {step}")
    assert cuda.log == [
        "step 0", "record 0", "step 1", "record 1", "wait 0", "step 2", "record 0", "wait 1", "step 3", "record 1"
    ]  # fmt: skip
    assert list(module.paced(3, torch.device("cpu"))) == [0, 1, 2]
    assert len(cuda.log) == 10


@pytest.mark.parametrize(("seconds", "steps"), [(10.0, 3), (0.5, 3), (0.1, 15), (1e-4, 500)])
def test_settling_takes_a_time_and_some_steps(seconds: float, steps: int) -> None:
    assert module._settle_steps(seconds, 1.5) == steps
