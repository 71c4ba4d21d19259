"""Samples through torch's loader: who gets which, in what order, and that it is what the device
would have had."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from typing import cast

import psutil
import pytest
import torch
from torch import nn

from torchscale.config.sections.data import DataSettings
from torchscale.schema.cells.training import Loader
from torchscale.schema.launch.rank import DataUse
from torchscale.worker.data.interface import SampleShare
from torchscale.worker.data.loader import LoadedData, LoaderSource, Pool
from torchscale.worker.data.synthetic import SyntheticSource, sample_pool
from torchscale.worker.models.interface import BatchOfTensors, Workload

CPU = torch.device("cpu")


class Numbers:
    """Samples that are their own numbers."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitems__(self, numbers: list[int]) -> BatchOfTensors:
        return {"x": torch.tensor(numbers)}


def settings(**changes: object) -> Loader:
    data = DataSettings().model_dump(include=set(Loader.model_fields))
    return Loader(**{**data, "workers": 0, **changes})


def source(
    share: SampleShare, count: int = 20, *, shuffle_seed: int | None = None, workers: int = 0
) -> LoaderSource:
    use = DataUse(source="shards", path="here", size_bytes=1)
    data = LoadedData(Numbers(count), shuffle_seed=shuffle_seed, use=use)
    return LoaderSource(
        data, share=share, settings=settings(workers=workers), device=CPU, channels_last=False
    )


def taken(found: LoaderSource, steps: int) -> list[list[int]]:
    return [found.next_batch()["x"].tolist() for _ in range(steps)]


def test_copies_together_take_consecutive_samples_and_an_epoch_begins_again() -> None:
    one, two = (source(SampleShare(3, index, 2)) for index in range(2))
    assert taken(one, 4) == [[0, 1, 2], [6, 7, 8], [12, 13, 14], [0, 1, 2]]
    assert taken(two, 4) == [
        [3, 4, 5],
        [9, 10, 11],
        [15, 16, 17],
        [3, 4, 5],
    ]  # 18 and 19 do not fill a step


def test_an_order_of_its_own_for_every_epoch_and_the_same_for_all_copies() -> None:
    epochs = []
    for _ in range(2):
        shares = [source(SampleShare(2, index, 2), shuffle_seed=7) for index in range(2)]
        by_epoch = [[batch for one in shares for batch in taken(one, 5)] for _ in range(2)]
        epochs.append([sorted(batches) for batches in by_epoch])
    assert epochs[0] == epochs[1]  # the seed decides
    first, second = ([number for batch in epoch for number in batch] for epoch in epochs[0])
    assert sorted(first) == sorted(second) == list(range(20))
    assert epochs[0][0] != epochs[0][1]


def test_loader_processes_give_the_same_and_end_when_told() -> None:
    before = set(multiprocessing.active_children())
    found = source(SampleShare(3, 0, 1), workers=2)
    assert taken(found, 3) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert len(set(multiprocessing.active_children()) - before) == 2
    found.close()
    assert not set(multiprocessing.active_children()) - before


def test_how_often_the_data_was_gone_through() -> None:
    found = source(SampleShare(5, 0, 2))
    taken(found, 3)
    use = found.use()
    assert use is not None
    assert use.epochs == pytest.approx(1.5)


def test_too_few_samples_for_a_step() -> None:
    with pytest.raises(ValueError, match="the data has 4 samples, fewer than the 6 of one step"):
        source(SampleShare(3, 0, 2), count=4)


def test_the_host_gives_the_samples_that_the_device_would_have() -> None:
    def make_batch(size: int, generator: torch.Generator) -> BatchOfTensors:
        return {"x": torch.randn(size, 3, 4, 4, generator=generator)}

    workload = Workload(nn.Identity(), make_batch)
    share = SampleShare(2, index=1, copies=2)
    samples = sample_pool(workload, share, 3)
    device = SyntheticSource(samples, device=CPU, channels_last=True)
    pool = LoadedData(Pool(samples, share))
    host = LoaderSource(pool, share=share, settings=settings(), device=CPU, channels_last=True)
    for _ in range(6):
        one, two = device.next_batch()["x"], host.next_batch()["x"]
        assert torch.equal(one, two)
        assert two.is_contiguous(memory_format=torch.channels_last)
    assert host.use() is None


LOADS = """
import sys
sys.path[:0] = {path!r}
from tests.worker.data.test_loader import *
found = source(SampleShare(2, 0, 1), workers=2)
found.next_batch()
print(*(process.pid for process in multiprocessing.active_children()), flush=True)
import time; time.sleep(120)
"""


def test_loader_processes_end_with_the_process_that_is_killed() -> None:
    """torch's own check of the parent takes five seconds."""
    program = subprocess.Popen(
        [sys.executable, "-c", LOADS.format(path=sys.path)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert program.stdout is not None
    pids = [int(pid) for pid in program.stdout.readline().split()]
    loaders = [psutil.Process(pid) for pid in pids]
    program.kill()
    program.stdout.close()
    program.wait()
    assert len(loaders) == 2
    _, alive = psutil.wait_procs(loaders, timeout=3.0)
    for process in alive:
        process.kill()
    assert alive == []


class Unsendable(Numbers):
    """Samples that no process can hand to another, as when there is no shared memory for them."""

    def __getitems__(self, numbers: list[int]) -> BatchOfTensors:
        return {"x": cast(torch.Tensor, lambda: numbers)}


@pytest.mark.timeout(60)
def test_a_batch_that_cannot_be_handed_over_is_an_error_and_no_endless_wait(
    capfd: pytest.CaptureFixture[str],
) -> None:
    use = DataUse(source="shards", path="here", size_bytes=1)
    data = LoadedData(Unsendable(20), shuffle_seed=None, use=use)
    found = LoaderSource(
        data,
        share=SampleShare(2, 0, 1),
        settings=settings(workers=1),
        device=CPU,
        channels_last=False,
    )
    with pytest.raises(
        RuntimeError, match=r"DataLoader worker \(pid\(s\) \d+\) exited unexpectedly"
    ):
        found.next_batch()
    assert "pickle" in capfd.readouterr().err
