"""How a cell's precision becomes autocast, gradient scaling and matmul settings."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from torchscale.catalog.devices import BLOCK_SCALED
from torchscale.config.choices import Precision

_AUTOCAST_DTYPE = {
    "fp16": torch.float16,
    **dict.fromkeys(("bf16", "fp8", *BLOCK_SCALED), torch.bfloat16),
}


class PrecisionPolicy:
    """fp32 and tf32 run without autocast; fp16 and bf16 run under autocast, fp16 with a gradient
    scaler; fp8, mxfp8 and nvfp4 run under bf16 autocast with matrix products of their type.

    Sets torch's process-wide matmul precision: fp32 means full fp32, also in cuDNN, which would
    take TF32 by default.
    """

    def __init__(
        self, precision: Precision, device: torch.device, *, autocast: bool = True
    ) -> None:
        tf32 = precision == "tf32"
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = tf32
        self._device_type = device.type
        self._dtype = _AUTOCAST_DTYPE.get(precision) if autocast else None
        self._scaler = torch.amp.GradScaler(device.type) if precision == "fp16" else None

    def forward_context(self) -> AbstractContextManager[object]:
        """Context of the forward pass: autocast, or nothing for fp32 and tf32."""
        if self._dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self._device_type, dtype=self._dtype)

    def backward(self, loss: Tensor) -> None:
        """Run the backward pass of ``loss``, scaled for fp16."""
        scaled = loss if self._scaler is None else self._scaler.scale(loss)
        scaled.backward()  # type: ignore[no-untyped-call]

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Undo the loss scaling of fp16 in the gradients, before they are clipped."""
        if self._scaler is not None:
            self._scaler.unscale_(optimizer)

    def optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """One optimizer step; with fp16 it is skipped when gradients overflowed."""
        if self._scaler is None:
            optimizer.step()
        else:
            self._scaler.step(optimizer)
            self._scaler.update()
