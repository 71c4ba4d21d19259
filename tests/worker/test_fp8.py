"""Products in fp8. They run on CPUs too, slowly: what they give can be checked there."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torchscale.worker.fp8 import Fp8Linear, use_fp8


def pair(bias: bool = True) -> tuple[nn.Linear, nn.Linear]:
    """A linear layer, and an equal one in fp8."""
    torch.manual_seed(0)
    plain = nn.Linear(64, 48, bias=bias).to(torch.bfloat16)
    other = nn.Linear(64, 48, bias=bias).to(torch.bfloat16)
    other.load_state_dict(plain.state_dict())
    use_fp8(other)
    return plain, other


def relative_error(found: torch.Tensor | None, wanted: torch.Tensor | None) -> float:
    assert found is not None
    assert wanted is not None
    difference = found.detach().float() - wanted.detach().float()
    return float(difference.norm() / wanted.detach().float().norm())


@pytest.mark.parametrize("bias", [True, False])
def test_forward_and_gradients_are_those_of_the_layer_to_fp8s_precision(bias: bool) -> None:
    """e4m3 keeps 3 bits after the leading one, e5m2 2: relative errors of a few per cent."""
    plain, fp8 = pair(bias)
    inputs = [torch.randn(4, 8, 64, dtype=torch.bfloat16, requires_grad=True) for _ in range(2)]
    with torch.no_grad():
        inputs[1].copy_(inputs[0])
    outputs = [layer(x) for layer, x in zip((plain, fp8), inputs, strict=True)]
    assert outputs[1].shape == (4, 8, 48)
    weights = torch.randn_like(outputs[0])
    for output in outputs:
        (output * weights).sum().backward()
    assert 0.005 < relative_error(outputs[1], outputs[0]) < 0.06
    assert 0.005 < relative_error(inputs[1].grad, inputs[0].grad) < 0.1
    assert 0.005 < relative_error(fp8.weight.grad, plain.weight.grad) < 0.1
    if bias:
        assert relative_error(fp8.bias.grad, plain.bias.grad) < 0.01


def test_a_batch_that_the_hardware_does_not_take_is_multiplied_as_usual() -> None:
    plain, fp8 = pair()
    x = torch.randn(5, 64, dtype=torch.bfloat16)
    assert torch.equal(fp8(x), nn.functional.linear(x, plain.weight) + plain.bias)


def test_layers_of_other_sizes_stay_and_a_model_without_any_is_refused() -> None:
    model = nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 10), nn.LayerNorm(10))
    assert use_fp8(model) == 1
    assert [type(part) for part in model] == [Fp8Linear, nn.Linear, nn.LayerNorm]
    assert list(model.state_dict()) == [
        "0.weight",
        "0.bias",
        "1.weight",
        "1.bias",
        "2.weight",
        "2.bias",
    ]
    with pytest.raises(
        ValueError, match=r"fp8: the model has no torch.nn.Linear whose sizes are multiples of 16"
    ):
        use_fp8(nn.Sequential(nn.Linear(3, 3)))


def test_it_trains_under_autocast() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))
    use_fp8(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(64, 32), torch.randn(64, 16)
    losses = []
    for _ in range(30):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(model(x).float(), y)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


@pytest.mark.parametrize("value", [0.0, 1e-30, 1e30])
def test_extreme_values_stay_finite(value: float) -> None:
    _, fp8 = pair()
    assert torch.isfinite(fp8(torch.full((16, 64), value, dtype=torch.bfloat16))).all()
