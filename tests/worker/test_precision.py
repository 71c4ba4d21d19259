from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from torchscale.config.choices import Precision
from torchscale.worker.precision import PrecisionPolicy

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def torch_settings() -> Iterator[None]:
    """The policy sets switches of the whole process."""
    yield
    PrecisionPolicy("fp32", CPU)


@pytest.mark.parametrize(
    ("precision", "matmul", "tf32"),
    [
        ("fp32", "highest", False),
        ("tf32", "high", True),
        ("fp16", "highest", False),
        ("bf16", "highest", False),
    ],
)
def test_tf32_is_on_where_it_is_asked_for_and_nowhere_else(
    precision: Precision, matmul: str, tf32: bool
) -> None:
    """fp32 that is silently TF32 would look like a fast GPU: torch turns it on in cuDNN unless told
    otherwise."""
    PrecisionPolicy("fp32" if tf32 else "tf32", CPU)
    PrecisionPolicy(precision, CPU)
    assert torch.get_float32_matmul_precision() == matmul
    assert torch.backends.cuda.matmul.allow_tf32 is tf32
    assert torch.backends.cudnn.allow_tf32 is tf32


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("fp32", torch.float32), ("fp16", torch.float16), ("bf16", torch.bfloat16)],
)
def test_the_forward_pass_computes_in_its_precision(
    precision: Precision, dtype: torch.dtype
) -> None:
    layer = nn.Linear(4, 4)
    with PrecisionPolicy(precision, CPU).forward_context():
        assert layer(torch.randn(2, 4)).dtype is dtype
    assert layer.weight.dtype is torch.float32


def test_fp16_skips_a_step_whose_gradients_overflow_and_takes_the_next() -> None:
    policy = PrecisionPolicy("fp16", CPU)
    layer = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    before = layer.weight.clone()
    policy.backward(layer(torch.full((1, 4), 1e35)).sum())
    policy.optimizer_step(optimizer)
    assert torch.equal(layer.weight, before)
    optimizer.zero_grad()
    policy.backward(layer(torch.ones(1, 4)).sum())
    policy.optimizer_step(optimizer)
    torch.testing.assert_close(layer.weight, before - 0.1)


def test_bf16_needs_no_scaling() -> None:
    policy = PrecisionPolicy("bf16", CPU)
    weight = nn.Parameter(torch.ones(3))
    policy.backward((weight * 2).sum())
    assert weight.grad is not None
    assert weight.grad.tolist() == [2.0, 2.0, 2.0]
