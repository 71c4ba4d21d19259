"""The collective of `validate`."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.mark.integration
def test_two_real_ranks_and_a_corrupted_one(tmp_path: Path) -> None:
    from torchscale.features.validate.run.probe import check_collective, probe_node

    facts = probe_node(tmp_path)
    found = check_collective(facts, timeout_seconds=120)
    assert found.error is None
    assert (found.backend, found.world_size, found.wrong_elements) == ("gloo", 2, 0)
    assert found.elements == 3 * (1 + 1000 + 262_144)
    assert found.seconds is not None
    assert found.seconds > 0


def test_a_wrong_element_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    import torch.distributed as dist

    from torchscale.worker.machine.collective_check import check_all_reduce

    def corrupted(values: torch.Tensor) -> None:
        values += (values + 1) % 129  # what rank 1 has
        if values.numel() > 500:
            values[3] += 1

    monkeypatch.setattr(dist, "all_reduce", corrupted)
    assert check_all_reduce(0, 2, torch.device("cpu")) == (3 * 263_145, 6)


@pytest.mark.parametrize("world_size", [1, 2, 8, 16])
def test_sums_over_many_ranks_are_exact_in_every_dtype(
    world_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    import torch.distributed as dist

    from torchscale.worker.machine.collective_check import check_all_reduce

    inputs: dict[tuple[torch.dtype, int], list[torch.Tensor]] = {}
    monkeypatch.setattr(
        dist, "all_reduce", lambda values: inputs.setdefault(key(values), []).append(values.clone())
    )

    def key(values: torch.Tensor) -> tuple[torch.dtype, int]:
        return values.dtype, values.numel()

    for rank in range(world_size):
        check_all_reduce(rank, world_size, torch.device("cpu"))

    def add(values: torch.Tensor) -> None:
        values.zero_()
        for other in inputs[
            key(values)
        ]:  # one after the other, as a ring does, in the dtype itself
            values += other

    monkeypatch.setattr(dist, "all_reduce", add)
    elements, wrong = check_all_reduce(0, world_size, torch.device("cpu"))
    assert (elements, wrong) == (3 * 263_145, 0)


@pytest.mark.parametrize("world_size", [2, 256, 257, 1000, 1024, 5000])
def test_every_rank_brings_something_and_their_sum_stays_exact(world_size: int) -> None:
    """A rank that brings zeros everywhere could be left out unnoticed."""
    import torch

    from torchscale.worker.machine.collective_check import _LARGEST_EXACT, _input

    base = torch.arange(1000)
    brought = torch.stack([_input(base, rank, world_size) for rank in range(world_size)])
    assert brought.any(dim=1).all()
    assert int(brought.sum(dim=0).max()) <= _LARGEST_EXACT
