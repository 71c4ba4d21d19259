"""Routed experts: where tokens go, what experts compute, and the loss that balances them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from torchscale.worker.models import experts
from torchscale.worker.models.experts import (
    ExpertLayer,
    ExpertRouter,
    Experts,
    expert_layers,
    has_grouped_products,
    read_counts,
)

HIDDEN, EXPERTS, CHOSEN, INNER = 16, 4, 2, 32


def layer(
    *, balance: float = 0.01, skew: float = 0.0, shared: nn.Module | None = None
) -> ExpertLayer:
    torch.manual_seed(0)
    made = ExpertLayer(HIDDEN, EXPERTS, CHOSEN, INNER, shared, balance=balance, skew=skew)
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.2)
    return made


def tokens(samples: int = 3, length: int = 10) -> Tensor:
    return torch.randn(samples, length, HIDDEN, generator=torch.Generator().manual_seed(1))


def one_by_one(made: ExpertLayer, x: Tensor) -> Tensor:
    """Each token through its experts, as the definition says it."""
    rows = []
    for token in x.flatten(0, 1):
        probabilities = (made.router.weight @ token).softmax(0)
        best = probabilities.topk(CHOSEN)
        weights = best.values / best.values.sum()
        row = torch.zeros(HIDDEN)
        for weight, number in zip(weights, best.indices, strict=True):
            gate, up, down = (
                getattr(made.experts, name)[number] for name in ("gate", "up", "down")
            )
            row = row + weight * ((functional.silu(token @ gate) * (token @ up)) @ down)
        rows.append(row)
    return torch.stack(rows).view_as(x)


def test_each_token_gets_the_weighted_output_of_its_experts() -> None:
    made, x = layer(), tokens()
    out, _ = made(x)
    assert torch.allclose(out, one_by_one(made, x), atol=1e-5)


def test_shared_experts_see_every_token() -> None:
    shared = nn.Linear(HIDDEN, HIDDEN)
    made, x = layer(shared=shared), tokens()
    out, _ = made(x)
    assert torch.allclose(out, one_by_one(made, x) + made.shared(x), atol=1e-5)  # type: ignore[misc]


def test_counts_are_those_of_the_last_pass() -> None:
    made, x = layer(), tokens()
    made(tokens(samples=1))
    made(x)
    assert made.tokens is not None
    chosen = made.router(x)[2].flatten()
    assert made.tokens.tolist() == [int((chosen == number).sum()) for number in range(EXPERTS)]
    assert made.computed == 3 * 10 * CHOSEN == int(made.tokens.sum())


def test_an_expert_without_tokens_has_a_gradient_of_zero() -> None:
    """A parameter without one would make DistributedDataParallel wait for it."""
    made = Experts(HIDDEN, EXPERTS, INNER)
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    counts = torch.tensor([5, 0, 2, 0])
    made(torch.randn(7, HIDDEN), counts, None).sum().backward()
    for parameter in made.parameters():
        assert parameter.grad is not None
        used = parameter.grad.flatten(1).abs().sum(dim=1) > 0
        assert used.tolist() == [True, False, True, False]


def test_grouped_products_are_those_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch also has them for CPUs, where they are no faster: enough to hold them against the
    loop."""
    if not hasattr(functional, "grouped_mm"):
        pytest.skip("this torch has no grouped products for CPUs")
    results = []
    for grouped in (False, True):
        monkeypatch.setattr(experts, "has_grouped_products", lambda *_, found=grouped: found)
        made, x = layer(), tokens().requires_grad_()
        out, _ = made(x)
        out.square().sum().backward()
        assert x.grad is not None
        results.append([out, x.grad, *(one.grad for one in made.experts.parameters())])
    for looped, multiplied in zip(*results, strict=True):
        assert torch.allclose(looped, multiplied, atol=1e-5)


def test_grouped_products_are_for_bf16_on_devices() -> None:
    assert not has_grouped_products(torch.device("cpu"), torch.bfloat16)
    assert not has_grouped_products(torch.device("cuda", 0), torch.float32)


@pytest.mark.parametrize("skew", [0.25, 1.0, 1.6, 2.0])
def test_a_skewed_router_sends_its_share_to_expert_0(skew: float) -> None:
    made = layer(skew=skew)
    made(tokens(length=40))
    assert made.tokens is not None
    even = 3 * 40 * CHOSEN / EXPERTS
    assert made.tokens[0] == skew * even
    assert made.tokens.sum() == 3 * 40 * CHOSEN


def test_even_experts_cost_the_weight_of_the_loss_and_uneven_ones_more() -> None:
    """Σ f·P is 1 where every expert gets its share, and experts ÷ chosen where the same few get
    all."""
    made = layer(balance=0.5)
    even = torch.full((1, 8, EXPERTS), 1 / EXPERTS)
    counts = torch.full((1, EXPERTS), 8 * CHOSEN / EXPERTS)
    assert made._balance_loss(even, counts) == pytest.approx(0.5)
    certain = torch.zeros(1, 8, EXPERTS)
    certain[..., :CHOSEN] = 1 / CHOSEN
    full = torch.tensor([[8.0] * CHOSEN + [0.0] * (EXPERTS - CHOSEN)])
    assert made._balance_loss(certain, full) == pytest.approx(0.5 * EXPERTS / CHOSEN)


def test_the_loss_of_a_batch_is_the_mean_of_its_parts() -> None:
    """So that it does not depend on how many ranks share a batch."""
    made, x = layer(), tokens(samples=4)
    _, whole = made(x)
    halves = [made(part)[1] for part in x.chunk(2)]
    assert whole.item() == pytest.approx(torch.stack(halves).mean().item(), rel=1e-6)


def test_the_loss_moves_the_router_towards_balance() -> None:
    made, x = layer(balance=1.0), tokens(samples=1, length=200)
    with torch.no_grad():
        made.router.weight[0] += 0.4 * x.mean(dim=(0, 1)) + 0.3
    optimizer = torch.optim.SGD(made.router.parameters(), lr=0.5)
    peaks = []
    for _ in range(30):
        _, balance = made(x)
        assert made.tokens is not None
        peaks.append(int(made.tokens.max()))
        balance.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert peaks[-1] < peaks[0]


def test_routing_is_in_fp32_whatever_the_precision() -> None:
    router = ExpertRouter(HIDDEN, EXPERTS, CHOSEN, 0.0)
    nn.init.normal_(router.weight)
    plain = router(tokens())
    with torch.autocast("cpu", torch.bfloat16):
        cast = router(tokens())
    for one, other in zip(plain, cast, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


def test_layers_are_found_in_their_order() -> None:
    first, second = layer(), layer()
    module = nn.Sequential(nn.Linear(2, 2), first, nn.Sequential(second))
    assert expert_layers(module) == [first, second]


def test_counts_without_values_are_even() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    assert read_counts(torch.tensor([1, 2, 4]), 7) == [1, 2, 4]
    with FakeTensorMode():
        assert read_counts(torch.zeros(3), 7) == [3, 2, 2]
