"""Access to DTensors (tensors that are sharded over ranks) that does not import torch's DTensor
module itself."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Placement


def as_dtensor(tensor: Tensor) -> DTensor | None:
    """``tensor`` if it is a DTensor; ``None`` for a plain tensor."""
    module = sys.modules.get("torch.distributed.tensor")
    if module is None:  # slow to import; where no one has, there can be no DTensor
        return None
    kind: type[DTensor] = module.DTensor
    if isinstance(tensor, kind):
        return tensor
    return None


@dataclass(frozen=True)
class Split:
    """How a parameter lies on a mesh.

    Attributes:
        is_local: Whether it is the rank's part as a plain tensor, as DistributedDataParallel holds
            it.
        mesh, placements: Over which ranks, and how.
        shape, stride: Of the whole parameter.
    """

    is_local: bool
    mesh: DeviceMesh
    placements: tuple[Placement, ...]
    shape: torch.Size
    stride: tuple[int, ...]

    def of_local(self, part: Tensor) -> Tensor:
        """A tensor that lies as the parameter does, of which ``part`` is this rank's."""
        from torch.distributed.tensor import DTensor  # noqa: PLC0415 - there is a split: it is imported

        return DTensor.from_local(
            part,
            self.mesh,
            self.placements,
            run_check=False,
            shape=self.shape,
            stride=self.stride,
        )


def split_of(parameter: nn.Parameter) -> Split | None:
    """How a parameter lies on a mesh; ``None`` for one that is whole on this rank."""
    split = as_dtensor(parameter)
    if split is not None:
        placements = tuple(split.placements)
        return Split(False, split.device_mesh, placements, split.shape, split.stride())
    spec = getattr(parameter, "_st_info", None)  # torch.distributed.tensor.parallel.ddp
    if spec is None:
        return None
    return Split(True, spec.mesh, tuple(spec.placements), spec.shape, spec.stride)


def local_part(tensor: Tensor) -> Tensor:
    """The local shard of a DTensor; a plain tensor as it is."""
    split = as_dtensor(tensor)
    if split is None:
        return tensor
    return split.to_local()
