from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tests.campaign import cases
from tests.factories import cells
from torchscale.worker.measure.flops import (
    TrafficCounter,
    UncountableError,
    count_by_length,
    count_flops,
)
from torchscale.worker.models import build_workload
from torchscale.worker.models.interface import Workload


def counted(name: str, **options: int) -> tuple[float, float]:
    """Forward and backward operations of one sample of a catalogued model."""
    cell = cells(models={"name": name, **options}, gpu_counts=[1])[0]
    found = count_flops(lambda: build_workload(cell))
    return found.forward, found.backward


def test_resnet_50_against_its_published_4_09_gmacs() -> None:
    forward, backward = counted("resnet50")
    assert forward == pytest.approx(2 * 4.09e9, rel=0.02)
    # Every product of the forward pass has two in the backward pass, but for the first layer:
    # images need no gradient.
    first_layer = 2 * 112 * 112 * 64 * 3 * 7 * 7
    assert backward == pytest.approx(2 * forward - first_layer, rel=1e-6)


# 2 N T + 4 L d S T forward and twice that backward (N: parameters in matrix products; Kaplan et
# al., 2020, and Narayanan et al., 2021, with attention's products over the whole square).
@pytest.mark.parametrize(
    ("name", "layers", "width", "vocabulary", "tokens", "head"),
    cases(
        [("gpt2", 12, 768, 50257, 1024, 0), ("bert-base", 12, 768, 30522, 512, 768 * 768)],
        [("bert-large", 24, 1024, 30522, 512, 1024 * 1024)],
    ),
)
def test_transformers_against_the_formula_of_their_shapes(
    name: str, layers: int, width: int, vocabulary: int, tokens: int, head: int
) -> None:
    products = 12 * layers * width**2 + vocabulary * width + head
    expected = 2 * products * tokens + 4 * layers * width * tokens * tokens
    forward, backward = counted(name)
    assert forward == pytest.approx(expected, rel=0.02)
    assert backward == pytest.approx(2 * expected, rel=0.02)
    assert forward + backward == pytest.approx(
        6 * products * tokens + 12 * layers * width * tokens * tokens, rel=0.02
    )


@pytest.mark.parametrize("name", ["tiny-decoder", "tiny-moe"])
def test_counts_at_two_lengths_give_those_at_others(name: str) -> None:
    """A document of n tokens: its linear part by n, attention by n²."""

    def build(tokens: int) -> Workload:
        cell = cells(models={"name": name, "sequence_length": tokens}, gpu_counts=[1])[0]
        return build_workload(cell)

    found = count_by_length(build, 96)
    assert found.attention_share is not None
    assert 0.02 < found.attention_share < 0.9
    for tokens in (10, 24, 77):
        other = count_flops(partial(build, tokens))
        share = tokens / 96
        parts = (1 - found.attention_share) * share + found.attention_share * share**2
        expected = (found.forward + found.backward) * parts
        assert other.forward + other.backward == pytest.approx(expected, rel=1e-6)


class TwoLayers(nn.Module):
    """x (batch, 8) → 16 → 1, its mean as loss."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16, bias=False), nn.Linear(16, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.second(self.first(x))
        return hidden.mean()


TOKENS, WIDTH, HEAD, VOCABULARY, LAYERS = 16, 64, 16, 512, 2
SHAPE = {
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "intermediate_size": 96,
    "num_experts_per_tok": 2,
}
EXPERTS = {
    "mixtral": ({**SHAPE, "num_local_experts": 4}, 4, 96, 0),
    "qwen2_moe": (
        {
            **SHAPE,
            "num_experts": 6,
            "moe_intermediate_size": 48,
            "shared_expert_intermediate_size": 80,
        },
        6,
        48,
        3 * 80 + 1,
    ),
    "qwen3_moe": (
        {**SHAPE, "num_experts": 6, "moe_intermediate_size": 48, "head_dim": HEAD},
        6,
        48,
        0,
    ),
}
"""Type: its configuration, experts, their inner width, and what of a token passes through beside
them: the three products of a shared expert and its gate."""


@pytest.mark.parametrize("kind", list(EXPERTS))
def test_experts_count_for_the_tokens_that_go_to_them(kind: str, tmp_path: Path) -> None:
    """By the formula of the shapes, by the count on the meta device, and by what a real step
    computes where every expert takes its tokens one after the other."""
    content, experts, inner, beside = EXPERTS[kind]
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": kind, **content}))
    cell = cells(models={"name": f"hf:{path}", "sequence_length": TOKENS}, gpu_counts=[1])[0]
    found = count_flops(lambda: build_workload(cell))
    built = build_workload(cell)
    assert built.expected_flops == pytest.approx(found.forward, rel=1e-12)
    idle = LAYERS * (experts - 2) * 3 * WIDTH * inner
    total = sum(parameter.numel() for parameter in built.module.parameters())
    assert built.active_parameters == total - idle

    attention = WIDTH * HEAD * (4 + 2 + 2 + 4) + 2 * TOKENS * HEAD * 4
    routed = WIDTH * experts + 2 * 3 * WIDTH * inner + WIDTH * beside
    assert found.forward == 2 * TOKENS * (LAYERS * (attention + routed) + WIDTH * VOCABULARY)
    assert found.backward == 2 * found.forward
    assert (found.sample_bytes, found.fixed_bytes) == (None, None)

    workload = build_workload(cell)
    workload.module.set_experts_implementation("eager")  # type: ignore[operator]
    workload.module.set_attn_implementation("eager")  # type: ignore[operator]
    batch = workload.make_batch(3, torch.Generator().manual_seed(1))
    with FlopCounterMode(display=False) as forward:
        loss = workload.loss_of(workload.module(**batch), batch)
    with FlopCounterMode(display=False) as backward:
        loss.backward()  # type: ignore[no-untyped-call]
    assert (forward.get_total_flops(), backward.get_total_flops()) == (
        3 * found.forward,
        3 * found.backward,
    )


class Chosen(nn.Module):
    """Only positive rows are multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.layer(x[x[:, 0] > 0]).sum()
        return loss


def looking_at_values(expected_flops: float | None = None) -> Workload:
    return Workload(
        Chosen(),
        lambda size, generator: {"x": torch.zeros(size, 4)},
        expected_flops=expected_flops,
    )


def test_a_model_that_looks_at_values_says_so() -> None:
    with pytest.raises(UncountableError, match="its layers look at values"):
        count_flops(looking_at_values)


def test_a_formula_stands_in_where_nothing_can_be_counted() -> None:
    found = count_flops(lambda: looking_at_values(1000.0))
    assert (found.forward, found.backward, found.sample_bytes) == (1000.0, 2000.0, None)


def test_a_model_of_two_products_by_hand() -> None:
    def build() -> Workload:
        return Workload(
            TwoLayers(), lambda batch, generator: {"x": torch.rand(batch, 8, generator=generator)}
        )

    found = count_flops(build)
    assert found.forward == 2 * (8 * 16 + 16 * 1)
    assert found.backward == 2 * (8 * 16) + 2 * 2 * 16  # x needs no gradient
    assert found.sample_bytes is not None
    assert found.fixed_bytes is not None
    # Weights are read forward, the second one's again backward, and each one's gradient is written.
    assert found.fixed_bytes >= 4 * (128 + 16 + 16 + 128 + 16)
    assert found.sample_bytes >= 4 * (8 + 16 + 16 + 1 + 8 + 16 + 16)


def test_what_recomputation_repeats_are_the_blocks_alone() -> None:
    cell = cells(models="tiny-decoder", gpu_counts=[1])[0]
    found = count_flops(lambda: build_workload(cell))
    width, vocabulary, tokens = (
        128,
        2048,
        64,
    )  # the embedding takes no operations, the head one product
    assert found.blocks_forward == pytest.approx(found.forward - 2 * width * vocabulary * tokens)


def test_an_authors_own_figure_counts_three_times_over() -> None:
    def build() -> Workload:
        return Workload(
            TwoLayers(),
            lambda batch, generator: {"x": torch.rand(batch, 8)},
            flops_per_sample=100.0,
        )

    found = count_flops(build)
    assert (found.forward, found.backward, found.sample_bytes) == (100.0, 200.0, None)


def test_traffic_is_what_operators_read_and_write_and_views_move_nothing() -> None:
    a, b = torch.ones(10, 20), torch.ones(20, 30)
    with TrafficCounter() as moved:
        product = a @ b
        product.view(-1).unsqueeze(0)
    assert moved.total == 4 * (200 + 600 + 300)
    with TrafficCounter() as squared:
        a * a
    assert squared.total == 4 * (200 + 200)
