"""Do all ranks hold the same parameters? Averaged gradients leave them equal to the bit; a lost reduction does not."""

from __future__ import annotations

import torch
from torch import nn

from torchscale.worker.ranks import Ranks

_INTEGER_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def fingerprint(module: nn.Module) -> torch.Tensor:
    """One integer per parameter: the wrapping sum of its bits, so that any order of summation gives the same."""
    sums = [
        parameter.detach().contiguous().view(_INTEGER_OF_SIZE[parameter.element_size()]).sum(dtype=torch.int64)
        for parameter in module.parameters()
    ]
    return torch.stack(sums).cpu() if sums else torch.zeros(0, dtype=torch.int64)


def differing_parameter(module: nn.Module, ranks: Ranks) -> str | None:
    """The first parameter that is not equal on all ranks, with how many are not; ``None`` if all are."""
    gathered = torch.stack(ranks.gather(fingerprint(module)))
    differs = (gathered != gathered[0]).any(dim=0)
    if not bool(differs.any()):
        return None
    names = [name for name, _ in module.named_parameters()]
    return f"{names[int(differs.int().argmax())]} ({int(differs.sum())} of {len(names)} parameters differ)"
