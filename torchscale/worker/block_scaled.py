"""Matrix products of linear layers in formats with a scale for each block of elements, by torchao:
mxfp8 (e4m3, a scale for 32; OCP Microscaling 1.0) and nvfp4 (e2m1, a scale for 16). All three
products of a layer run in the format; weights stay as they are.

torchao calls these prototypes, and moves them between releases: what is imported is in one place
here, and a release without it is an error that says so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchscale.catalog.devices import BLOCK_SCALED, TORCHAO
from torchscale.worker.fp8 import fitting_layers

_SIGNS = 16
"""Length of the random signs of nvfp4's Hadamard transform (torchao's block of it)."""

Product = Callable[[Tensor, Tensor], Tensor]
"""(M, K) times the transpose of a weight (N, K), both in bf16 → (M, N)."""


@dataclass(frozen=True)
class _Format:
    """How a format is made use of.

    Attributes:
        multiple: What each size of a product must be a multiple of.
        find: The product of torchao; imports it.
    """

    multiple: int
    find: Callable[[], Product]


def use_block_scaled(module: nn.Module, precision: str) -> int:
    """Make every linear layer whose sizes allow it multiply in ``precision``, in place. Returns the
    number of layers.

    Raises:
        ValueError: the model has no such layer, or this torchao no such products.
    """
    form = _FORMATS[precision]
    try:
        product = form.find()
    except ImportError as error:
        raise ValueError(
            f"precision {precision} needs the training products of torchao {TORCHAO}, and this "
            f"installation has none there ({error}); pip install 'torchao>={TORCHAO}'"
        ) from error
    layers = fitting_layers(module, precision, form.multiple)
    for layer in layers:
        layer.__class__ = BlockScaledLinear
        cast(BlockScaledLinear, layer).set_product(product, form.multiple)
    return len(layers)


class BlockScaledLinear(nn.Linear):
    """A linear layer whose products run in a block-scaled format, where there are enough rows."""

    _product: Product
    _multiple: int

    def set_product(self, product: Product, multiple: int) -> None:
        """The product to use, for inputs whose number of rows is a multiple of ``multiple``."""
        self._product, self._multiple = product, multiple

    def forward(self, input: Tensor) -> Tensor:
        """``input`` (…, in_features) → (…, out_features), in bf16."""
        flat = input.reshape(-1, self.in_features).to(torch.bfloat16)
        weight = self.weight.to(torch.bfloat16)
        multiply = self._product
        if len(flat) % self._multiple:
            multiply = functional.linear
        out = multiply(flat, weight).reshape(*input.shape[:-1], self.out_features)
        return out if self.bias is None else out + self.bias.to(out.dtype)


def _mxfp8() -> Product:
    """torchao's product with scales rounded up (cuBLAS's rule), and its own choice of kernels."""
    from torchao.prototype.moe_training.mxfp8_linear import _to_mxfp8_then_scaled_mm  # noqa: PLC0415 - optional
    from torchao.prototype.mx_formats.config import ScaleCalculationMode  # noqa: PLC0415 - optional
    from torchao.quantization.quantize_.common.kernel_preference import (  # noqa: PLC0415 - optional
        KernelPreference,
    )

    return functools.partial(
        _to_mxfp8_then_scaled_mm,
        kernel_preference=KernelPreference.AUTO,
        scale_calculation_mode=ScaleCalculationMode.RCEIL,
    )


def _nvfp4() -> Product:
    """torchao's product with a random Hadamard transform and stochastic rounding of gradients. The
    signs come from torch's current seed, which is equal on all ranks while models are built."""
    from torchao.prototype.moe_training.nvfp4_training.nvfp4_linear import (  # noqa: PLC0415 - optional
        nvfp4_linear,
    )

    signs = (torch.randint(2, (_SIGNS,)) * 2 - 1).tolist()
    return functools.partial(nvfp4_linear, sign_vector=tuple(signs))


_FORMATS = {
    "mxfp8": _Format(BLOCK_SCALED["mxfp8"], _mxfp8),
    "nvfp4": _Format(BLOCK_SCALED["nvfp4"], _nvfp4),
}
