"""A cell's training step, and batches of it with the times of their phases."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torchscale.schema.cell import Cell
from torchscale.schema.record import Batch, StepSample
from torchscale.worker.data.interface import Source
from torchscale.worker.data.synthetic import SyntheticSource
from torchscale.worker.measure.clock import make_clock
from torchscale.worker.models import build_workload
from torchscale.worker.models.interface import loss_of
from torchscale.worker.parallel import parallelize
from torchscale.worker.precision import PrecisionPolicy
from torchscale.worker.ranks import Ranks

_MARKS_PER_STEP = 4


@dataclass(frozen=True)
class TimedBatch:
    """A batch of contiguous steps: its wall time, and each step with its phases and its loss."""

    batch: Batch
    samples: tuple[StepSample, ...]

    @property
    def losses_finite(self) -> bool:
        """Whether every loss was a finite number (others are kept as ``None``)."""
        return all(sample.loss is not None for sample in self.samples)


class Trainer:
    """The cell's model, optimizer and data on this rank's device.

    Attributes:
        module: The bare module, whose parameters are counted and compared.
        model: The module as the strategy runs it.
        optimizer: Over the parameters of the bare module.
        source: Where batches come from.
        tokens_per_step: Of this rank; ``None`` where samples have no tokens.
    """

    def __init__(self, cell: Cell, ranks: Ranks) -> None:
        torch.backends.cudnn.benchmark = cell.cudnn_benchmark
        self._ranks = ranks
        self._precision = PrecisionPolicy(cell.precision, ranks.device)
        torch.manual_seed(cell.seed)  # the same weights on every rank
        workload = build_workload(cell)
        torch.manual_seed(cell.seed + ranks.rank)  # different dropout
        layout = torch.channels_last if cell.channels_last else torch.preserve_format
        self.module = workload.module.to(ranks.device, memory_format=layout).train()  # type: ignore[call-overload]
        model = parallelize(self.module, cell, ranks)
        self.model: nn.Module = torch.compile(model) if cell.compile else model  # type: ignore[assignment]
        self.optimizer = _make_optimizer(cell, self.module)
        self.source: Source = SyntheticSource(
            workload,
            batch_size=cell.per_device_batch_size,
            seed=cell.seed + ranks.rank,
            device=ranks.device,
            channels_last=cell.channels_last,
        )
        self._clock = make_clock(ranks.device, sync_cuda=cell.measurement.sync_cuda)
        self._steps_done = 0
        tokens = workload.tokens_per_sample
        self.tokens_per_step = None if tokens is None else tokens * cell.per_device_batch_size

    def step(self) -> Tensor:
        """One optimizer step, a mark after each phase; returns the loss on the device, unread."""
        batch = self.source.next_batch()
        self._clock.mark()
        with self._precision.forward_context():
            loss = loss_of(self.model(**batch))
        self._clock.mark()
        self._precision.backward(loss)
        self._clock.mark()
        self._precision.optimizer_step(self.optimizer)
        self.optimizer.zero_grad(set_to_none=True)
        self._clock.mark()
        return loss.detach().reshape(())

    def run_batch(self, steps: int) -> TimedBatch:
        """Run contiguous steps that start together on all ranks; clocks and losses are read afterwards."""
        self._ranks.align()
        self._clock.mark()
        losses = [self.step() for _ in range(steps)]
        marks = self._clock.read()
        values: list[float] = torch.stack(losses).float().tolist()
        samples = tuple(
            self._sample(index, marks[index * _MARKS_PER_STEP :][: _MARKS_PER_STEP + 1], loss)
            for index, loss in enumerate(values)
        )
        self._steps_done += steps
        return TimedBatch(Batch(steps=steps, seconds=marks[-1]), samples)

    def close(self) -> None:
        """Let go of the model: ranks that still hold DDP's reducer at exit can abort."""
        del self.model, self.module, self.optimizer, self.source

    def _sample(self, index: int, marks: list[float], loss: float) -> StepSample:
        """A step from the mark that ended the one before it and the marks of its own phases."""
        start, data, forward, backward, end = marks
        return StepSample(
            step=self._steps_done + index,
            seconds=end - start,
            data_wait=data - start,
            forward=forward - data,
            backward=backward - forward,
            optimizer=end - backward,
            loss=loss if math.isfinite(loss) else None,
        )


def _make_optimizer(cell: Cell, module: nn.Module) -> torch.optim.Optimizer:
    if cell.optimizer == "sgd":
        return torch.optim.SGD(module.parameters(), lr=cell.learning_rate, momentum=0.9)
    if cell.optimizer == "adam":
        return torch.optim.Adam(module.parameters(), lr=cell.learning_rate)
    return torch.optim.AdamW(module.parameters(), lr=cell.learning_rate)
