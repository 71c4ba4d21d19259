"""The state of training as a checkpoint has it: parameters, buffers and optimizer states."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)

from torchscale.worker.dtensors import Split, local_part, split_of
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
    splits = _local_splits(trainer)
    found = get_state_dict(trainer.module, trainer.optimizer, options=_OPTIONS)
    model, optimizer = (dict[str, Any](part) for part in found)
    for name, split in splits.items():
        shape = model[name].shape
        model[name] = split.of_local(model[name])
        for entry in _states_of(name, optimizer):
            if optimizer[entry].shape == shape:  # its count of steps is a single number
                optimizer[entry] = split.of_local(optimizer[entry])
    return {"model": model, "optimizer": optimizer}


def set_state(trainer: Trainer, state: State) -> None:
    """Continue with ``state``."""
    model, optimizer = dict(state["model"]), dict(state["optimizer"])
    for name in _local_splits(trainer):
        model[name] = local_part(model[name])
        for entry in _states_of(name, optimizer):
            optimizer[entry] = local_part(optimizer[entry])
    set_state_dict(
        trainer.module,
        trainer.optimizer,
        model_state_dict=model,
        optim_state_dict=optimizer,
        options=_OPTIONS,
    )


def _local_splits(trainer: Trainer) -> dict[str, Split]:
    """How each parameter that DistributedDataParallel holds in part lies over ranks, by its name in
    the state. As plain tensors they would be saved as one and the same entry by ranks that hold
    different parts. They are put back into the module: a forward pass takes them out of it."""
    splits = {}
    for path, parameter in trainer.named_parameters.items():
        split = split_of(parameter)
        if split is not None and split.is_local:
            splits[parameter.data_ptr()] = split
            parent, _, name = path.rpartition(".")
            holder = trainer.module.get_submodule(parent)
            delattr(holder, name)
            setattr(holder, name, parameter)
    if not splits:
        return {}
    named: dict[str, Any] = get_model_state_dict(trainer.module)
    return {
        name: splits[tensor.data_ptr()]
        for name, tensor in named.items()
        if tensor.data_ptr() in splits
    }


def _states_of(parameter: str, optimizer: Mapping[str, object]) -> list[str]:
    """Names of the optimizer's states of a parameter."""
    return [
        name
        for name, value in optimizer.items()
        if name.startswith(f"state.{parameter}.") and isinstance(value, Tensor)
    ]


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


def buffers_of(trainer: Trainer, state: State) -> frozenset[str]:
    """Paths of the buffers, such as BatchNorm's running statistics, in a state. Each rank has its
    own, and a checkpoint holds those of one rank: a load gives them to all."""
    places = {buffer.data_ptr() for buffer in trainer.module.buffers()}
    return frozenset(path for path, tensor in _tensors(state) if tensor.data_ptr() in places)


def digest(state: State, left_out: frozenset[str] = frozenset()) -> str:
    """Equal for states of equal bits on this rank, apart from what is at the paths ``left_out``."""
    found = hashlib.blake2b(digest_size=16)
    for name, value in _leaves(state):
        if name in left_out:
            continue
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
