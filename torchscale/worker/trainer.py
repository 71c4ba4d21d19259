"""A cell's training step, and batches of it with the times of their phases."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from torchscale.schema.cell import Cell
from torchscale.schema.record import Batch, StepSample
from torchscale.worker.data import make_source
from torchscale.worker.data.interface import Source
from torchscale.worker.fp8 import use_fp8
from torchscale.worker.measure.clock import make_clock
from torchscale.worker.models import build_workload
from torchscale.worker.models.interface import BatchOfTensors
from torchscale.worker.optimizer import clip_gradients, make_optimizer
from torchscale.worker.parallel import parallelize
from torchscale.worker.precision import PrecisionPolicy
from torchscale.worker.ranks import Ranks


class Phase(Enum):
    """What a mark of the clock ends."""

    START = "start"
    DATA = "data_wait"
    BUFFERS = "buffer_sync"
    FORWARD = "forward"
    GRADIENTS = "backward"
    SYNC = "exposed_sync"
    BUBBLE = "bubble"
    OPTIMIZER = "optimizer"


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
        module: What this rank holds of the model: its parameters are counted and compared.
        model: The module as the strategy runs it.
        parameters: Of the whole model, wherever they lie.
        optimizer: Over the parameters of ``module``.
        source: Where batches come from.
        tokens_per_step: This rank's share; ``None`` where samples have no tokens.
        last_step_seconds: Mean of the last batch.
        watch: Marks the exchange; ``None`` where there is none, or none that can be told.
    """

    def __init__(self, cell: Cell, ranks: Ranks, on_progress: Callable[[], None] | None = None) -> None:
        torch.backends.cudnn.benchmark = cell.cudnn_benchmark and not cell.deterministic
        torch.backends.cudnn.deterministic = cell.deterministic
        torch.use_deterministic_algorithms(cell.deterministic)
        self._cell, self._ranks = cell, ranks
        torch.manual_seed(cell.seed)  # the same weights on every rank
        self._workload = build_workload(cell)
        if cell.precision == "fp8":
            use_fp8(self._workload.module)
        self.parameters = sum(parameter.numel() for parameter in self._workload.module.parameters())
        # Dropout differs between samples, and is the same on ranks that share them.
        torch.manual_seed(cell.seed + cell.degrees.data_index(ranks.rank))
        self._parallel = parallelize(self._workload, cell, ranks)
        self.module, self.model = self._parallel.module.train(), self._parallel.model
        self._precision = PrecisionPolicy(cell.precision, ranks.device, autocast=self._parallel.autocast)
        self.optimizer = make_optimizer(cell, self._parallel)
        self._clock = make_clock(ranks.device, sync_cuda=cell.measurement.sync_cuda)
        self._marked: list[Phase] = []
        stages = self._parallel.stages
        if stages is not None:
            stages.around_passes(self._stage_forward, self._stage_backward)
        needed = stages is None or stages.needs_data
        self.source: Source = make_source(self._workload, cell, ranks, needed=needed, on_progress=on_progress)
        self.watch: ExchangeWatch | None = None
        # A mark of the strict clock would stop the device in the middle of the backward pass.
        if self._parallel.gradients_first and not cell.measurement.sync_cuda:
            # A compiler would trace a hook of the forward pass; buffers are then sent within it, unmarked.
            self.watch = ExchangeWatch(self.module, self._mark, buffers=not cell.compile)
            self.watch.start()
        self._steps_done = 0
        self.last_step_seconds = math.inf
        tokens = self._workload.tokens_per_sample
        self.tokens_per_step = None if tokens is None else tokens * cell.per_device_batch_size

    @property
    def bucket_bytes(self) -> tuple[int, ...] | None:
        """Gradients of a step as they are sent; ``None`` where the strategy has no buckets."""
        return None if self._parallel.bucket_bytes is None else self._parallel.bucket_bytes()

    def step(self) -> Tensor:
        """One optimizer step, a mark after each phase; returns the loss on the device, unread."""
        loss = self._forward_backward()
        if self._cell.gradient_clipping is not None:
            self._precision.unscale(self.optimizer)
            clip_gradients(self.module, self._cell.gradient_clipping, self._parallel.norm_groups)
        self._precision.optimizer_step(self.optimizer)
        self.optimizer.zero_grad(set_to_none=True)
        self._mark(Phase.OPTIMIZER)
        return loss

    def _forward_backward(self) -> Tensor:
        """All passes of a step; the mean loss of what this rank's copy of the model saw."""
        batch = self.source.next_batch()
        self._mark(Phase.DATA)
        if self._parallel.stages is not None:
            loss = self._parallel.stages.run(batch)
            self._mark(Phase.BUBBLE)
            return torch.zeros((), device=self._ranks.device) if loss is None else loss.reshape(())
        pieces = self._cell.gradient_accumulation
        losses = [
            self._pass(piece, last=number == pieces, share=1 / pieces)
            for number, piece in enumerate(_pieces(batch, pieces), start=1)
        ]
        return losses[0] if pieces == 1 else torch.stack(losses).mean()

    def _pass(self, batch: BatchOfTensors, *, last: bool, share: float) -> Tensor:
        """One forward and one backward pass; gradients are exchanged in the last of a step alone."""
        parallel = self._parallel
        if parallel.accumulating is not None and self._cell.gradient_accumulation > 1:
            parallel.accumulating(last)
        quiet = parallel.no_sync() if parallel.no_sync is not None and not last else contextlib.nullcontext()
        with quiet:
            with self._precision.forward_context():
                loss = self._workload.loss_of(self.model(**self._workload.inputs(batch)), batch)
            self._mark(Phase.FORWARD)
            self._precision.backward(loss if share == 1 else loss * share)
            self._mark(Phase.SYNC)
        return loss.detach().reshape(())

    @contextlib.contextmanager
    def _stage_forward(self) -> Iterator[None]:
        self._mark(Phase.BUBBLE)
        yield
        self._mark(Phase.FORWARD)

    @contextlib.contextmanager
    def _stage_backward(self) -> Iterator[None]:
        self._mark(Phase.BUBBLE)
        yield
        self._mark(Phase.SYNC)

    def forget_marks(self) -> None:
        """After steps whose times nobody reads, because a recording tells them."""
        self._read()

    def run_batch(self, steps: int) -> TimedBatch:
        """Run contiguous steps that start together on all ranks; clocks and losses are read afterwards."""
        self._ranks.align()
        self._mark(Phase.START)
        losses = [self.step() for _ in range(steps)]
        times, parts = self._read()
        values: list[float] = torch.stack(losses).float().tolist()
        if self._parallel.stages is not None:
            values = self._parallel.stages.share_losses(values)
        samples = tuple(
            self._sample(index, part, loss) for index, (part, loss) in enumerate(zip(parts, values, strict=True))
        )
        if self.watch is not None and self._steps_done == 0:
            self.watch.settle()
        self._steps_done += steps
        self.last_step_seconds = times[-1] / steps
        return TimedBatch(Batch(steps=steps, seconds=times[-1]), samples)

    def run_alone(self, steps: int) -> AloneWindow | None:
        """Forward and backward without any exchange, to time this rank's own compute; ``None`` where the strategy
        cannot do without its exchange.

        Starts and ends together on all ranks. The first pass (it may still send buffers) and the whole training step
        that follows (it absorbs what the ranks drifted apart) are discarded; no optimizer step is taken in between.
        """
        if self._parallel.no_sync is None or not self._parallel.quiet:
            return None
        began = time.perf_counter()
        self._ranks.align()
        self._mark(Phase.START)
        with self._parallel.no_sync():
            for _ in range(steps + 1):
                self._forward_backward()
                self.optimizer.zero_grad(set_to_none=True)
                self._mark(Phase.OPTIMIZER)
        _, parts = self._read()
        self._ranks.align()
        self.run_batch(1)
        own = tuple(_own_seconds(part) for part in parts[1:])
        return AloneWindow(own, time.perf_counter() - began)

    def close(self) -> None:
        """Let go of the model and of the loader's processes: ranks that still hold DDP's reducer at exit can abort."""
        self.source.close()
        del self.model, self.module, self.optimizer, self.source, self._parallel, self.watch, self._workload

    def _mark(self, phase: Phase) -> None:
        self._clock.mark()
        self._marked.append(phase)

    def _read(self) -> tuple[list[float], list[dict[Phase, float]]]:
        """Times of all marks since the start, and each step's seconds by phase."""
        times, marked = self._clock.read(), self._marked
        self._marked = []
        steps: list[dict[Phase, float]] = [{}]
        for phase, since, until in zip(marked[1:], times, times[1:], strict=False):
            steps[-1][phase] = steps[-1].get(phase, 0.0) + until - since
            if phase is Phase.OPTIMIZER:
                steps.append({})
        return times, steps[:-1]

    def _sample(self, index: int, part: dict[Phase, float], loss: float) -> StepSample:
        sync: float | None = part.get(Phase.SYNC, 0.0)
        backward = part.get(Phase.GRADIENTS)
        if backward is None:  # no mark between the gradients and their exchange
            backward, sync = part.get(Phase.SYNC, 0.0), None
        return StepSample(
            step=self._steps_done + index,
            seconds=math.fsum(part.values()),
            data_wait=part[Phase.DATA],
            forward=part.get(Phase.FORWARD, 0.0),
            backward=backward,
            optimizer=part[Phase.OPTIMIZER],
            bubble=part.get(Phase.BUBBLE),
            exposed_sync=sync,
            buffer_sync=part.get(Phase.BUFFERS),
            loss=loss if math.isfinite(loss) else None,
        )


@dataclass(frozen=True)
class AloneWindow:
    """``seconds`` of each pass without exchange, and the wall time of the window with all it discards."""

    seconds: tuple[float, ...]
    wall_seconds: float


class ExchangeWatch:
    """Marks where a step's exchanges begin and end: buffers sent before the forward pass, the last gradient computed.

    In the first step every parameter is watched, to learn whose gradient comes last; afterwards that one alone, so that
    it costs one call a step. The order of gradients is the order of the model's graph, equal in every step.
    """

    def __init__(self, module: nn.Module, mark: Callable[[Phase], None], *, buffers: bool) -> None:
        self._module, self._mark = module, mark
        self._last: nn.Parameter | None = None
        self._watched = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self._has_buffers = buffers and next(module.buffers(), None) is not None
        self._handles: list[RemovableHandle] = []

    def start(self) -> None:
        """Mark from now on."""
        for parameter in self._watched:
            handle = parameter.register_post_accumulate_grad_hook(self._note)  # type: ignore[no-untyped-call]
            self._handles.append(handle)
        if self._has_buffers:
            self._handles.append(self._module.register_forward_pre_hook(lambda *_: self._mark(Phase.BUFFERS)))

    def stop(self) -> None:
        """Mark no longer."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def settle(self) -> None:
        """From now on watch the last parameter only."""
        self.stop()
        self._watched = [] if self._last is None else [self._last]
        self.start()

    def _note(self, parameter: Tensor) -> None:
        self._last = cast(nn.Parameter, parameter)
        self._mark(Phase.GRADIENTS)


def _own_seconds(part: dict[Phase, float]) -> float:
    return math.fsum(part.get(phase, 0.0) for phase in (Phase.FORWARD, Phase.GRADIENTS, Phase.SYNC))


def _pieces(batch: BatchOfTensors, count: int) -> list[BatchOfTensors]:
    """A batch in equal parts, which are views of it."""
    if count == 1:
        return [batch]
    parts = {name: tensor.chunk(count) for name, tensor in batch.items()}
    return [{name: parts[name][number] for name in parts} for number in range(count)]
