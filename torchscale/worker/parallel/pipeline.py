"""Pipeline parallelism: each rank holds consecutive layers; micro-batches pass from rank to rank
(GPipe, 1F1B, interleaved 1F1B)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.nn.parallel import DistributedDataParallel

from torchscale.config.strategies.model_parallel import Schedule
from torchscale.worker.models.interface import BatchOfTensors, PipelineSplit

ContextMaker = Callable[[], AbstractContextManager[object]]


def stages_of(rank: int, ranks: int, stages: int) -> list[int]:
    """The stages that one of ``ranks`` pipeline ranks holds: every ``ranks``-th, beginning with its
    own number."""
    return list(range(rank, stages, ranks))


def layers_of(stage: int, stages: int, layers: int) -> range:
    """The consecutive layers of a stage. Where layers do not divide evenly, the first stages have
    one more.

    Raises:
        ValueError: ``layers`` is less than ``stages``.
    """
    if layers < stages:
        raise ValueError(
            f"{layers} layers are too few for {stages} pipeline stages; lower the pipeline degree"
        )
    each, remainder = divmod(layers, stages)
    begin = stage * each + min(stage, remainder)
    return range(begin, begin + each + (stage < remainder))


def cut(
    module: nn.Module, how: PipelineSplit, mine: list[int], stages: int
) -> dict[int, nn.Module]:
    """This rank's stages of ``module``, by number."""
    return {
        stage: how.stage(
            module, layers_of(stage, stages, how.layers), stage == 0, stage == stages - 1
        )
        for stage in mine
    }


class Stages:
    """This rank's part of a pipeline. Runs the forward and backward passes of a step over all
    micro-batches.

    Attributes:
        is_first: Whether batches enter here.
        is_last: Whether the loss is computed here.
    """

    def __init__(
        self,
        parts: Mapping[int, nn.Module],
        how: PipelineSplit,
        *,
        stages: int,
        group: dist.ProcessGroup,
        device: torch.device,
        schedule: Schedule,
        micro_batches: int,
    ) -> None:
        self._how, self._group = how, group
        self._stages = [
            PipelineStage(part, number, stages, device, group=group)
            for number, part in parts.items()
        ]
        for stage in self._stages:
            _settle_buckets(stage)
        self.is_first, self.is_last = 0 in parts, stages - 1 in parts
        if schedule == "interleaved":
            self._schedule: Any = ScheduleInterleaved1F1B(
                [*self._stages], micro_batches, loss_fn=how.loss
            )
        else:
            kind = ScheduleGPipe if schedule == "gpipe" else Schedule1F1B
            self._schedule = kind(self._stages[0], micro_batches, loss_fn=how.loss)
        # The outputs are not used; concatenating them would cost time and memory.
        takes = inspect.signature(self._schedule.step).parameters
        self._options = {"return_outputs": False} if "return_outputs" in takes else {}

    @property
    def needs_data(self) -> bool:
        """Whether this rank takes batches: the first stage their inputs, the last one their
        targets."""
        return self.is_first or self.is_last

    def around_passes(self, forward: ContextMaker, backward: ContextMaker) -> None:
        """Run each stage's forward and backward pass of a micro-batch within these contexts from
        now on."""
        for stage in self._stages:
            stage.forward_one_chunk = _within(forward, stage.forward_one_chunk)  # type: ignore[method-assign]
            stage.backward_one_chunk = _within(backward, stage.backward_one_chunk)  # type: ignore[method-assign]

    def run(self, batch: BatchOfTensors) -> Tensor | None:
        """Run the forward and backward passes of one step. Returns the mean loss on the last rank,
        ``None`` elsewhere."""
        inputs: tuple[Tensor, ...] = ()
        if self.is_first:
            inputs = (batch[self._how.input_key],)
        losses: list[Tensor] = []
        loss_arguments = (
            {"target": batch[self._how.target_key], "losses": losses} if self.is_last else {}
        )
        self._schedule.step(*inputs, **loss_arguments, **self._options)
        if self.is_last:
            return torch.stack([loss.detach() for loss in losses]).mean()
        return None

    def share_losses(self, losses: list[float]) -> list[float]:
        """Broadcast the last rank's losses to every rank of the pipeline."""
        shared = torch.tensor(losses, dtype=torch.float64)
        dist.broadcast(
            shared,
            group=self._group,
            src=dist.get_global_rank(self._group, dist.get_world_size(self._group) - 1),
        )
        return [float(loss) for loss in shared]


def _settle_buckets(stage: PipelineStage) -> None:
    """Let DDP order its buckets after the first backward pass of a micro-batch. It does so in the
    next forward pass, and fails where backward passes of several micro-batches came before that, as
    in GPipe (torch 2.13: "rebuilt parameter indices size is not same as original")."""
    module, backward = stage.submod, stage.backward_one_chunk
    if not isinstance(module, DistributedDataParallel):
        return

    def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - torch's own interface, which differs by version
        result = backward(*args, **kwargs)
        module.reducer._rebuild_buckets()
        return result

    stage.backward_one_chunk = run  # type: ignore[method-assign]


def _within(context: ContextMaker, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - torch's own interface, which differs by version
        with context():
            return function(*args, **kwargs)

    return run
