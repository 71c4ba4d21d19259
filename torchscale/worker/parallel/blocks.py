"""Finds the repeated blocks of a model, which are sharded, recomputed and compiled one by one."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from torchscale.config.choices import Checkpointing, CompileMode
from torchscale.schema.cells.training import TrainingCell

_KEPT = (
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    "convolution",
    "_scaled_mm",
    "_grouped_mm",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_cudnn_attention",
)
"""Operators whose results selective checkpointing keeps: the expensive ones."""
_GRAPH_MODES = ("reduce-overhead", "max-autotune")
"""Modes whose options contain ``triton.cudagraphs`` (torch._inductor.list_mode_options)."""


def repeated_blocks(module: nn.Module) -> list[nn.Module]:
    """The outermost lists of alike modules: layers of a transformer, stages of a ResNet; empty if
    there are none."""
    blocks: list[nn.Module] = []
    for child in module.children():
        members: list[nn.Module] = []
        if isinstance(child, nn.ModuleList | nn.ModuleDict | nn.Sequential):
            members = list(child.children())
        alike = len({type(member) for member in members}) == 1
        if alike and (len(members) > 1 or isinstance(child, nn.ModuleDict)) and _trains(members):
            blocks += members
        else:
            blocks += repeated_blocks(child)
    return blocks


def checkpoint_blocks(blocks: Sequence[nn.Module], kind: Checkpointing) -> None:
    """Recompute the blocks' activations in the backward pass: all of them, or all but those of
    expensive operators.

    Raises:
        ValueError: ``blocks`` is empty.
    """
    if kind == "none":
        return
    if not blocks:
        raise ValueError(
            f"activation_checkpointing: {kind} needs a model with repeated blocks, and this one "
            "has none; "
            "set it to none"
        )
    options: dict[str, Any] = {"use_reentrant": False}
    if kind == "selective":
        kept = [
            getattr(torch.ops.aten, name).default for name in _KEPT if hasattr(torch.ops.aten, name)
        ]
        options["context_fn"] = functools.partial(
            create_selective_checkpoint_contexts, functools.partial(_policy, kept)
        )
    for block in blocks:
        _recompute(block, options)


def compile_mode(cell: TrainingCell) -> CompileMode | None:
    """The compiler's mode, or ``None`` where the cell is not compiled."""
    if cell.compile is False:
        return None
    if cell.compile is True:
        return "default"
    return cell.compile


def captures_graphs(cell: TrainingCell, device: torch.device) -> bool:
    """Whether the compiler's mode runs the model as CUDA graphs, whose outputs the next step
    overwrites."""
    return device.type == "cuda" and compile_mode(cell) in _GRAPH_MODES


def compile_blocks(blocks: Iterable[nn.Module], mode: CompileMode) -> None:
    """Compile each block in place, so that what wraps it stays as it is."""
    for block in blocks:
        block.compile(mode=mode)


def _recompute(block: nn.Module, options: dict[str, Any]) -> None:
    # The forward function and not the module is wrapped: names of parameters stay, and hooks of
    # whoever shards the block run once.
    forward = block.forward

    def recomputed(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the block takes and gives
        return checkpoint(forward, *args, **options, **kwargs)

    block.forward = recomputed


def _policy(
    kept: Sequence[object], context: object, operator: object, *args: object, **kwargs: object
) -> object:
    del context, args, kwargs
    if operator in kept:
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


def _trains(members: Iterable[nn.Module]) -> bool:
    return any(parameter.requires_grad for member in members for parameter in member.parameters())
