"""The state of training as a checkpoint has it: parameters, buffers and optimizer states."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)

from torchscale.worker.memory.model_memory import plain_parts
from torchscale.worker.process_group import Ranks
from torchscale.worker.trainer import Trainer

State = dict[str, Any]
"""What torch.distributed.checkpoint saves: this rank's part, by names that are those of the whole
model."""

_OPTIONS = StateDictOptions(flatten_optimizer_state_dict=True)
"""Groups of parameters are then named by parameter. Numbered, those of two pipeline stages would be
the same entries of the checkpoint."""
_TENSOR_OVERHEAD = 4096
"""Bytes that a tensor's entry takes in a file beside its values, at most: torch.save's header, and
the padding around it (measured: 1.2 KiB)."""


def state_of(trainer: Trainer) -> State:
    """The state of this rank's part; its tensors are those that are trained."""
    model, optimizer = get_state_dict(trainer.module, trainer.optimizer, options=_OPTIONS)
    return {"model": model, "optimizer": optimizer}


def set_state(trainer: Trainer, state: State) -> None:
    """Continue with ``state``."""
    set_state_dict(
        trainer.module,
        trainer.optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
        options=_OPTIONS,
    )


def state_bytes(state: State, ranks: Ranks) -> tuple[int, int]:
    """Bytes of the whole model's state in a checkpoint, each tensor once however many ranks hold it;
    and with what files take beside the values. Call it on every rank."""
    sizes = {name: tensor.nbytes for name, tensor in _tensors(state)}
    whole: dict[str, int] = {}
    for of_rank in ranks.gather_objects(sizes):
        whole |= of_rank
    entries = len(whole) * ranks.world_size
    values = sum(whole.values())
    return values, values + entries * _TENSOR_OVERHEAD


def digest(state: State) -> str:
    """Equal for states of equal bits on this rank."""
    found = hashlib.blake2b(digest_size=16)
    for name, value in _leaves(state):
        found.update(name.encode())
        if not isinstance(value, Tensor):
            found.update(repr(value).encode())
            continue
        for part in plain_parts(value):
            bits = part.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            found.update(bits.numpy().data)
    return found.hexdigest()


def spoil(state: State) -> None:
    """Overwrite every tensor, so that what is there after a load came from it."""
    with torch.no_grad():
        for _, tensor in _tensors(state):
            for part in plain_parts(tensor):
                part.zero_()


def tensors_of(state: State) -> list[Tensor]:
    """Its tensors, in no particular order."""
    return [tensor for _, tensor in _tensors(state)]


def _tensors(state: State) -> Iterator[tuple[str, Tensor]]:
    for name, value in _leaves(state):
        if isinstance(value, Tensor):
            yield name, value


def _leaves(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """Every value that is no container, with its path."""
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from _leaves(value[key], f"{name}/{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{name}/{index}")
    else:
        yield name, value
