"""Marks where the exchange of gradients and buffers begins and ends within the passes of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from torchscale.worker.measure.phases import Phase


class GradientSyncWatch:
    """Marks the end of buffer sync, before the forward pass, and the start of exposed gradient
    sync: the last gradient.

    In the first step every parameter is watched, to find the one whose gradient comes last;
    afterwards only that one, which costs one call per step. The order of gradients follows the
    model's graph and is equal in every step.
    """

    def __init__(
        self,
        module: nn.Module,
        parameters: Iterable[nn.Parameter],
        mark: Callable[[Phase, Phase], None],
        *,
        buffers: bool,
    ) -> None:
        self._module, self._mark = module, mark
        self._last: nn.Parameter | None = None
        self._watched = [parameter for parameter in parameters if parameter.requires_grad]
        self.has_buffers = buffers and next(module.buffers(), None) is not None
        self._handles: list[RemovableHandle] = []

    def start(self) -> None:
        """Register the hooks on the watched parameters, and before the forward pass."""
        for parameter in self._watched:
            handle = parameter.register_post_accumulate_grad_hook(self._note)  # type: ignore[no-untyped-call]
            self._handles.append(handle)
        if self.has_buffers:
            ended = Phase.BUFFERS, Phase.FORWARD
            self._handles.append(
                self._module.register_forward_pre_hook(lambda *_: self._mark(*ended))
            )

    def stop(self) -> None:
        """Remove all hooks; marks already taken stay."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def settle(self) -> None:
        """Watch only the parameter whose gradient came last."""
        self.stop()
        self._watched = [] if self._last is None else [self._last]
        self.start()

    def _note(self, parameter: Tensor) -> None:
        self._last = cast(nn.Parameter, parameter)
        self._mark(Phase.GRADIENTS, Phase.SYNC)
