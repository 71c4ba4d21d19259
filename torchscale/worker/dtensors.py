"""Access to DTensors (tensors that are sharded over ranks) that does not import torch's DTensor
module itself."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def as_dtensor(tensor: Tensor) -> DTensor | None:
    """``tensor`` if it is a DTensor; ``None`` for a plain tensor."""
    module = sys.modules.get("torch.distributed.tensor")
    if module is None:  # slow to import; where no one has, there can be no DTensor
        return None
    kind: type[DTensor] = module.DTensor
    if isinstance(tensor, kind):
        return tensor
    return None


def local_part(tensor: Tensor) -> Tensor:
    """The local shard of a DTensor; a plain tensor as it is."""
    split = as_dtensor(tensor)
    if split is None:
        return tensor
    return split.to_local()
