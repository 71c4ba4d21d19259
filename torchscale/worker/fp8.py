"""Matrix products of linear layers in fp8: forward in e4m3, gradients in e5m2, one scale per tensor
taken from its largest value at each step (Micikevicius et al., 2022, dynamic scaling). Weights stay
as they are."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

_FORWARD, _GRADIENT = torch.float8_e4m3fn, torch.float8_e5m2
_MULTIPLE = 16
"""The hardware multiplies fp8 matrices only where each dimension is a multiple of this."""


def use_fp8(module: nn.Module) -> int:
    """Make every linear layer whose sizes are multiples of 16 multiply in fp8, in place. Returns
    the number of layers.

    Raises:
        ValueError: the model has no such layer.
    """
    layers = fitting_layers(module, "fp8", _MULTIPLE)
    for layer in layers:
        layer.__class__ = Fp8Linear
    return len(layers)


def fitting_layers(module: nn.Module, precision: str, multiple: int) -> list[nn.Linear]:
    """The linear layers whose sizes are multiples of ``multiple``.

    Raises:
        ValueError: the model has no such layer.
    """
    layers = [
        part
        for part in module.modules()
        if type(part) is nn.Linear
        and part.in_features % multiple == 0
        and part.out_features % multiple == 0
    ]
    if not layers:
        raise ValueError(
            f"precision {precision}: the model has no torch.nn.Linear whose sizes are multiples of "
            f"{multiple}"
        )
    return layers


class Fp8Linear(nn.Linear):
    """A linear layer whose three products run in fp8; its result is of autocast's type."""

    def forward(self, input: Tensor) -> Tensor:
        """``input`` (…, in_features) → (…, out_features), in autocast's dtype."""
        kind = (
            torch.get_autocast_dtype(input.device.type)
            if torch.is_autocast_enabled(input.device.type)
            else input.dtype
        )
        flat = input.reshape(-1, self.in_features).to(kind)
        out = cast(Tensor, _Product.apply(flat, self.weight.to(kind)))  # type: ignore[no-untyped-call]
        out = out.reshape(*input.shape[:-1], self.out_features)
        return out if self.bias is None else out + self.bias.to(kind)


class _Product(torch.autograd.Function):
    """x (M, K) times the transpose of a weight (N, K)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:  # noqa: ANN401 - torch's own interface
        ctx.save_for_backward(x, weight)
        return _multiply(x, weight.t(), _FORWARD, _FORWARD, fast=True)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401 - torch's own interface
        (gradient,) = gradients
        x, weight = ctx.saved_tensors
        return (
            _multiply(gradient, weight, _GRADIENT, _FORWARD),
            _multiply(gradient.t(), x, _GRADIENT, _FORWARD),
        )


def _multiply(
    left: Tensor,
    right: Tensor,
    left_type: torch.dtype,
    right_type: torch.dtype,
    *,
    fast: bool = False,
) -> Tensor:
    """The product of two matrices, in fp8 if the sizes allow it; of their own type.

    ``fast`` adds up in the tensor cores' own width, which is faster on Hopper; gradients keep the
    width of fp32.
    """
    if any(size % _MULTIPLE for size in (*left.shape, right.shape[1])):
        return left @ right
    left_scale, right_scale = _scale(left, left_type), _scale(right, right_type)
    # The hardware wants the left one by rows and the right one by columns.
    rows = _cast(left, left_scale, left_type).contiguous()
    columns = _cast(right, right_scale, right_type).t().contiguous().t()
    product: Tensor = torch._scaled_mm(
        rows,
        columns,
        scale_a=left_scale.reciprocal(),
        scale_b=right_scale.reciprocal(),
        out_dtype=left.dtype,
        use_fast_accum=fast,
    )
    return product


def _scale(tensor: Tensor, kind: torch.dtype) -> Tensor:
    """The power of two that maps the largest absolute value near the largest of ``kind``, and not
    above it; 1e-12 avoids a division by zero. Powers of two are exact in every type, and a product
    with one rounds nothing."""
    factor = torch.finfo(kind).max / tensor.abs().amax().float().clamp(min=1e-12)
    return torch.exp2(torch.floor(torch.log2(factor)))


def _cast(tensor: Tensor, scale: Tensor, kind: torch.dtype) -> Tensor:
    largest = torch.finfo(kind).max
    # In the tensor's own type: an fp32 copy of every operand would double the traffic of the cast.
    return (tensor * scale.to(tensor.dtype)).clamp(-largest, largest).to(kind)
