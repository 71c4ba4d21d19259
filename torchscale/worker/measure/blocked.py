"""How long a rank waits in collectives that its program waits for in Python: those of FSDP2, tensor
parallelism, ZeRO's optimizer and gradient clipping.

On a CPU alone: on a device such a wait returns at once, and the stream waits. DistributedDataParallel
waits in C++, and regions that were compiled wait within their own code; neither is seen.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch.distributed as dist
from torch.distributed import _functional_collectives as functional


class BlockedMeter:
    """Counts from :meth:`start` to :meth:`stop`.

    Attributes:
        seconds: So far.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0
        self._undo: list[Callable[[], None]] = []

    def start(self) -> None:
        """Time every wait from now on."""
        for owner, name in ((dist.Work, "wait"), (functional, "wait_tensor")):
            original = getattr(owner, name)
            setattr(owner, name, self._timed(original))
            self._undo.append(functools.partial(setattr, owner, name, original))

    def stop(self) -> None:
        """Leave torch as it was."""
        while self._undo:
            self._undo.pop()()

    def _timed(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(wait)
        def timed(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - as torch's
            self._depth += 1
            began = perf_counter()
            try:
                return wait(*args, **options)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self.seconds += perf_counter() - began

        return timed
