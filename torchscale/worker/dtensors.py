"""Tensors that lie in parts on many ranks, without importing what makes them where there are none."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def as_dtensor(tensor: Tensor) -> DTensor | None:
    """``tensor`` if it is a part of one; ``None`` for a whole tensor."""
    module = sys.modules.get("torch.distributed.tensor")
    if module is None:  # slow to import, and nobody has: then there are none
        return None
    kind: type[DTensor] = module.DTensor
    return tensor if isinstance(tensor, kind) else None


def local_part(tensor: Tensor) -> Tensor:
    """What of ``tensor`` lies on this rank."""
    split = as_dtensor(tensor)
    return tensor if split is None else split.to_local()
