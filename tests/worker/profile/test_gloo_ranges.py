"""Collectives of CPU ranks as ranges: each from its call to its completion, whoever calls it;
nothing afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel

from torchscale.schema.profiles.nvtx_names import CollectiveName
from torchscale.worker.measure.phases import Phase
from torchscale.worker.profile.gloo_ranges import gloo_ranges
from torchscale.worker.profile.phase_ranges import PhaseRanges


class Log:
    """An NVTX that writes down what is marked."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.open: set[int] = set()

    def mark(self, text: str) -> None:
        self.texts.append(text)

    def push(self, text: str) -> None:
        self.texts.append(text)

    def pop(self) -> None:
        self.texts.append("pop")

    def start(self, text: str) -> int:
        self.texts.append(text)
        self.open.add(len(self.texts))
        return len(self.texts)

    def end(self, handle: int) -> None:
        self.open.remove(handle)
        self.texts.append(f"end {self.texts[handle - 1].partition(',')[0]}")

    @property
    def collectives(self) -> list[CollectiveName]:
        """Those that were called, in order."""
        return [name for text in self.texts if (name := CollectiveName.parse(text)) is not None]


@pytest.fixture(autouse=True)
def group(tmp_path: Path) -> Iterator[None]:
    """A process group of one rank."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def world() -> dist.ProcessGroup:
    """The group of all ranks."""
    assert dist.group.WORLD is not None
    return dist.group.WORLD


def train(model: nn.Module) -> None:
    model(torch.ones(4, 8)).sum().backward()


def test_ddps_reducer_is_seen(group: None) -> None:
    log = Log()
    model = DistributedDataParallel(nn.Linear(8, 8))
    with gloo_ranges(log, PhaseRanges(log)):
        train(model)
        train(model)
    reduced = [name for name in log.collectives if name.op == "allreduce_"]
    assert [name.payload_bytes for name in reduced] == [4 * (64 + 8)] * 2
    assert [name.sequence for name in log.collectives] == list(range(1, len(log.collectives) + 1))
    assert {name.group for name in log.collectives} == {"0 [0]"}
    assert not log.open, "every range has ended"


@pytest.mark.filterwarnings(
    "ignore:.*is deprecated:FutureWarning"
)  # newer names are not in all versions
def test_waits_interrupt_the_phase_and_end_what_has_no_future() -> None:
    """FSDP2 calls these two, and waits for them."""
    log = Log()
    phases = PhaseRanges(log)
    with gloo_ranges(log, phases):
        phases.begin(Phase.FORWARD)
        dist.all_gather_into_tensor(torch.empty(8), torch.ones(8))
        dist.reduce_scatter_tensor(torch.empty(8), torch.ones(8))
        phases.end()
    assert {name.op for name in log.collectives} == {"_allgather_base_", "_reduce_scatter_base_"}
    assert not log.open
    phase = "torchscale.forward"
    assert log.texts.count(phase) == log.texts.count(f"end {phase}") > len(log.collectives)
    reduced = next(
        place for place, text in enumerate(log.texts) if text == "end c10d::_reduce_scatter_base_"
    )
    assert log.texts[reduced - 1 : reduced + 2] == [
        f"end {phase}",
        "end c10d::_reduce_scatter_base_",
        phase,
    ]


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")
def test_functional_collectives_are_seen_once() -> None:
    log = Log()
    with gloo_ranges(log, PhaseRanges(log)):
        summed = functional.all_reduce(torch.ones(16), "sum", world())
        gathered = functional.all_gather_tensor(torch.ones(16), 0, world())
        assert float(summed.sum()) == float(gathered.sum()) == 16
    assert [(name.op, name.payload_bytes) for name in log.collectives] == [
        ("all_reduce", 64),
        ("all_gather_into_tensor", 64),
    ]
    assert not log.open


def test_nothing_is_marked_afterwards() -> None:
    log, wait = Log(), dist.Work.wait
    with gloo_ranges(log, PhaseRanges(log)):
        dist.barrier()
    count = len(log.texts)
    assert count
    dist.all_reduce(torch.ones(4))
    functional.all_reduce(torch.ones(4), "sum", world()).sum().item()
    assert len(log.texts) == count
    assert dist.Work.wait is wait


def test_one_range_at_a_time_and_collections_beside_it() -> None:
    log = Log()
    phases = PhaseRanges(log)
    with phases.collections_marked():
        phases.begin(Phase.DATA)  # of waits for data there is a range of the loader
        phases.begin(Phase.FORWARD)
        phases._note_collection("start", {})
        phases._note_collection("stop", {})
        phases.begin(Phase.GRADIENTS)
        with phases.interrupted():
            assert log.texts[-1] == "end torchscale.backward"
        phases.end()
        phases.end()
    assert log.texts == [
        "torchscale.forward", "torchscale.gc", "end torchscale.gc", "end torchscale.forward", "torchscale.backward",
        "end torchscale.backward", "torchscale.backward", "end torchscale.backward",
    ]  # fmt: skip
