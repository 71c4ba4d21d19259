"""Compares parameters between ranks that should hold the same: averaged gradients leave them equal
to the bit, a missing reduction does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from torchscale.worker.dtensors import local_part, split_of
from torchscale.worker.process_group import Ranks

_INTEGER_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

Fingerprint = dict[str, int]
"""The wrapping sum of the bits (any order of summation gives the same) of each parameter, or part
of one, by a key that is equal on two ranks where they should hold the same."""


def fingerprint(parameters: Mapping[str, nn.Parameter]) -> Fingerprint:
    """Fingerprint of the parameters that this rank holds, by name; of a sharded parameter the local
    shard."""
    keys, sums = [], []
    for name, parameter in parameters.items():
        local = local_part(parameter)
        integers = local.detach().contiguous().view(_INTEGER_OF_SIZE[local.element_size()])
        keys.append(_global_name(name) + _part(parameter))
        sums.append(integers.sum(dtype=torch.int64))
    if sums:
        return dict(zip(keys, torch.stack(sums).tolist(), strict=True))
    return {}


@dataclass(frozen=True)
class Comparison:
    """Result of comparing parameters that lie on several ranks.

    Attributes:
        compared: Number of parameters on several ranks; 0 where every rank holds different shards.
        differing: The first parameter that differs between ranks, with the number of such; ``None``
            if all are equal.
    """

    compared: int
    differing: str | None

    @property
    def equal(self) -> bool | None:
        """``None`` where there was nothing to compare."""
        if self.compared == 0:
            return None
        return self.differing is None


def compare_parameters(parameters: Mapping[str, nn.Parameter], ranks: Ranks) -> Comparison:
    """Compare the parameters of every rank, by name, with those of the others. Call it on every
    rank."""
    values: dict[str, list[int]] = {}
    for of_rank in ranks.gather_objects(fingerprint(parameters)):
        for key, value in of_rank.items():
            values.setdefault(key, []).append(value)
    shared = {key: sums for key, sums in values.items() if len(sums) > 1}
    differing = [key for key, sums in shared.items() if len(set(sums)) > 1]
    description = None
    if differing:
        description = f"{differing[0]} ({len(differing)} of {len(shared)} parameters differ)"
    return Comparison(len(shared), description)


def _part(parameter: nn.Parameter) -> str:
    """Which shard of a sharded parameter this is; empty for a whole one."""
    split = split_of(parameter)
    if split is None:
        return ""
    coordinate = split.mesh.get_coordinate() or ()
    sizes = split.mesh.shape
    shards = [
        f"{placement} {index + 1} of {size}"
        for placement, index, size in zip(split.placements, coordinate, sizes, strict=True)
        if not placement.is_replicate()
    ]
    if shards:
        return f" [{', '.join(shards)}]"
    return ""


def _global_name(name: str) -> str:
    """Stages of a pipeline are kept by number; the parameter's own name says which layer it is
    of."""
    number, _, rest = name.partition(".")
    if number.isdigit():
        return rest
    return name
