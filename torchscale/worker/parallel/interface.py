"""The interface of parallelism strategies: what each returns besides the model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.distributed import ProcessGroup

if TYPE_CHECKING:
    from torchscale.worker.models.interface import BatchOfTensors
    from torchscale.worker.parallel.pipeline import Stages

OptimizerMaker = Callable[[type[torch.optim.Optimizer], dict[str, object]], torch.optim.Optimizer]


@dataclass(frozen=True)
class Parallel:
    """A model as a strategy runs it, and which signals of the diagnosis the strategy supports.

    Attributes:
        module: What this rank holds of the model: its parameters are trained, counted and compared.
        model: What is called for the forward pass.
        autocast: Whether the forward pass runs under autocast for the cell's precision; else the
            strategy casts itself.
        no_sync: Context in which the backward pass leaves gradients unreduced, so that passes can
            be accumulated; ``None`` where the strategy has no such context.
        quiet: Whether a pass within ``no_sync`` runs no collective at all, so that it times a
            rank's compute.
        accumulating: Called with whether the next backward pass is the last of its step; ``None``
            where ``no_sync`` is enough.
        after_backward: Called after the last backward pass of a step: waits for gradients whose
            exchange the strategy began in it; ``None`` where there is none.
        gradients_first: Whether the gradient sync that the step waits for comes after the last
            gradient is computed, so that the time from there to the end of the backward pass is
            exposed synchronization.
        waits_in_python: Whether all that a step waits for, but the gradient sync of
            ``gradients_first``, passes Python, so that it can be timed on a CPU. Of a pipeline:
            what the forward passes of its stages wait for.
        syncs_within_groups: Whether gradients are exchanged within groups of ranks, each with a
            last one of its own: exposed synchronization then says who waited only where
            collectives are paired.
        updates_together: Whether ranks wait for each other in the optimizer's step, too: exposed
            synchronization alone then says nothing of compute.
        bucket_bytes: Gradients of a step as they are sent, known after a few steps; ``None``
            without buckets.
        bucket_ready_seconds: When each of these is ready in a step, after the first; ``None`` where
            it is not timed.
        make_optimizer: Makes the strategy's optimizer around the cell's; ``None`` for the cell's
            itself.
        stages: The pipeline that runs forward and backward passes itself.
        take: What this rank takes of a batch of whole samples; ``None`` for all of it.
        norm_groups: Groups of ranks that hold other parameters of the same model; gradient norms
            are summed over them.
    """

    module: nn.Module
    model: nn.Module
    autocast: bool = True
    no_sync: Callable[[], AbstractContextManager[None]] | None = None
    quiet: bool = False
    accumulating: Callable[[bool], None] | None = None
    after_backward: Callable[[], None] | None = None
    gradients_first: bool = False
    waits_in_python: bool = False
    updates_together: bool = False
    syncs_within_groups: bool = False
    bucket_bytes: Callable[[], tuple[int, ...]] | None = None
    bucket_ready_seconds: Callable[[], tuple[float, ...]] | None = None
    make_optimizer: OptimizerMaker | None = None
    stages: Stages | None = None
    take: Callable[[BatchOfTensors], BatchOfTensors] | None = None
    norm_groups: tuple[ProcessGroup, ...] = ()
