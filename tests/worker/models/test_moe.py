"""Decoders with experts: both kinds of attention, dense layers, and sizes that do not fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.factories import cells
from torchscale.catalog.experts import shape_of_options
from torchscale.catalog.models import MODELS
from torchscale.worker.measure.flops import count_flops
from torchscale.worker.models import build_workload, moe
from torchscale.worker.models.experts import expert_layers
from torchscale.worker.models.interface import Workload

LATENT = {"kv_rank": 24, "query_rank": 40, "rope_size": 16, "dense_layers": 1, "dense_size": 200}


def build(**options: Any) -> Workload:
    torch.manual_seed(0)
    return moe.build("tiny-moe", {**MODELS["tiny-moe"].options, **options})


@pytest.mark.parametrize(
    "options",
    [{}, {"num_layers": 3, "shared_experts": 2}, LATENT, {**LATENT, "query_rank": 0}],
    ids=["grouped", "shared", "latent", "latent without query rank"],
)
def test_counted_parameters_and_flops_are_those_of_the_formula(options: dict[str, int]) -> None:
    given = {**MODELS["tiny-moe"].options, **options}
    shape = shape_of_options(given)
    workload = build(**options)
    parameters = sum(parameter.numel() for parameter in workload.module.parameters())
    assert parameters == shape.parameters
    idle = sum(
        (part.router.experts - part.router.chosen) * one[0].numel()
        for part in expert_layers(workload.module)
        for one in part.experts.parameters()
    )
    assert workload.active_parameters == parameters - idle
    counted = count_flops(lambda: build(**options))
    assert counted.forward == shape.forward_flops(64)
    assert counted.backward == 2 * counted.forward
    assert counted.sample_bytes is None


@pytest.mark.parametrize("options", [{}, LATENT], ids=["grouped", "latent"])
def test_no_token_sees_a_later_one(options: dict[str, int]) -> None:
    workload = build(**options)
    batch = workload.make_batch(1, torch.Generator().manual_seed(0))
    logits: list[torch.Tensor] = []
    workload.module.head.register_forward_hook(lambda *call: logits.append(call[-1].detach()))  # type: ignore[union-attr]
    workload.module(**batch)
    batch["input_ids"][0, -1] += 1
    workload.module(**batch)
    one, two = logits
    assert torch.allclose(one[0, :-1], two[0, :-1], atol=1e-5)
    assert not torch.allclose(one[0, -1], two[0, -1], atol=1e-5)


def test_it_learns_its_samples() -> None:
    workload = build()
    batch = workload.make_batch(2, torch.Generator().manual_seed(0))
    optimizer = torch.optim.AdamW(workload.module.parameters(), lr=3e-3)
    losses = []
    for _ in range(25):
        loss = workload.module(**batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


def test_the_loss_holds_that_for_load_balancing() -> None:
    """Two layers whose experts get about their even share: 1 each, times the weight."""
    batch = build().make_batch(4, torch.Generator().manual_seed(0))
    without, with_it = (build(balance=weight).module(**batch).item() for weight in (0.0, 1.0))
    assert with_it - without == pytest.approx(2.0, abs=0.2)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"num_kv_heads": 3}, "num_kv_heads 3 does not divide num_heads 4"),
        ({"head_size": 7}, "head_size 7 is not an even number"),
        ({"kv_rank": 8}, "rope_size 0 is not an even number"),
        ({"experts_per_token": 9}, "experts_per_token 9 is not between 1 and the num_experts 8"),
        ({"dense_layers": 2, "dense_size": 8}, "dense_layers 2 leaves none of the 2 layers"),
        ({"dense_layers": 1}, "dense_layers 1 need a dense_size"),
        ({"skew": 5.0}, "skew 5 is not between 0 and 4"),
    ],
)
def test_sizes_that_do_not_fit_are_named(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        build(**options)


def test_a_cell_names_it() -> None:
    cell = cells(models={"name": "tiny-moe", "num_experts": 4, "skew": 2}, gpu_counts=1)[0]
    found = build_workload(cell)
    assert (found.experts, found.tokens_per_sample) == (4, 64)
    assert expert_layers(found.module)[0].router.skew == 2.0
