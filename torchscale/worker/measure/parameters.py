"""Do ranks that should hold the same parameters hold them? Averaged gradients leave them equal to the bit; a lost
reduction does not."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from torchscale.worker.dtensors import as_dtensor, local_part
from torchscale.worker.ranks import Ranks

_INTEGER_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

Fingerprint = dict[str, int]
"""The wrapping sum of the bits (any order of summation gives the same) of each parameter, or part of one, by a key that
is equal on two ranks where they should hold the same."""


def fingerprint(module: nn.Module) -> Fingerprint:
    """Of what this rank holds; of a split parameter the part, named by its place."""
    keys, sums = [], []
    for name, parameter in module.named_parameters():
        local = local_part(parameter)
        integers = local.detach().contiguous().view(_INTEGER_OF_SIZE[local.element_size()])
        keys.append(_global_name(name) + _part(parameter))
        sums.append(integers.sum(dtype=torch.int64))
    return dict(zip(keys, torch.stack(sums).tolist(), strict=True)) if sums else {}


@dataclass(frozen=True)
class Comparison:
    """Of parameters that lie on several ranks.

    Attributes:
        compared: How many do; 0 where every rank has parts of its own.
        differing: The first that is not equal wherever it lies, with how many are not; ``None`` if all are.
    """

    compared: int
    differing: str | None

    @property
    def equal(self) -> bool | None:
        """``None`` where there was nothing to compare."""
        return None if self.compared == 0 else self.differing is None


def compare_parameters(module: nn.Module, ranks: Ranks) -> Comparison:
    """What every rank holds, against what the others hold of it."""
    values: dict[str, list[int]] = {}
    for one in ranks.gather_objects(fingerprint(module)):
        for key, value in one.items():
            values.setdefault(key, []).append(value)
    shared = {key: found for key, found in values.items() if len(found) > 1}
    differing = [key for key, found in shared.items() if len(set(found)) > 1]
    told = f"{differing[0]} ({len(differing)} of {len(shared)} parameters differ)" if differing else None
    return Comparison(len(shared), told)


def _part(parameter: nn.Parameter) -> str:
    """Which part of a split parameter this is; empty for a whole one."""
    split = as_dtensor(parameter)
    if split is None:
        return ""
    coordinate = split.device_mesh.get_coordinate() or ()
    sizes = split.device_mesh.shape
    places = [
        f"{placement} {index + 1} of {size}"
        for placement, index, size in zip(split.placements, coordinate, sizes, strict=True)
        if not placement.is_replicate()
    ]
    return f" [{', '.join(places)}]" if places else ""


def _global_name(name: str) -> str:
    """Stages of a pipeline are kept by number; the parameter's own name says which layer it is of."""
    number, _, rest = name.partition(".")
    return rest if number.isdigit() else name
