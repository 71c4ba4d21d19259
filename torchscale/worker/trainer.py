"""Runs the training steps of a cell in batches, and times the phases of each step."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from time import perf_counter
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from torchscale.catalog.backends import runs_on_device
from torchscale.catalog.devices import BLOCK_SCALED
from torchscale.schema.base import LARGEST
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.documents import DocumentStep
from torchscale.schema.launch.exchanges import ExchangeBatch
from torchscale.schema.launch.experts import ExpertStep
from torchscale.schema.launch.steps import Batch, StepSample
from torchscale.worker.block_scaled import use_block_scaled
from torchscale.worker.data import make_source, plan_documents
from torchscale.worker.data.documents import POOL_STEPS, DocumentMeter
from torchscale.worker.data.interface import Source
from torchscale.worker.fp8 import use_fp8
from torchscale.worker.measure.clock import make_clock
from torchscale.worker.measure.exchanges import ExchangeMeter, blocked_seconds
from torchscale.worker.measure.experts import ExpertMeter
from torchscale.worker.models import build_workload
from torchscale.worker.models.experts import expert_layers
from torchscale.worker.models.interface import BatchOfTensors
from torchscale.worker.optimizer import clip_gradients, make_optimizer
from torchscale.worker.parallel import parallelize
from torchscale.worker.parallel.blocks import captures_graphs
from torchscale.worker.precision import PrecisionPolicy
from torchscale.worker.process_group import Ranks


class Phase(Enum):
    """The phases of a step. A mark of the clock ends one and begins the next."""

    START = "start"
    DATA = "data_wait"
    BUFFERS = "buffer_sync"
    FORWARD = "forward"
    GRADIENTS = "backward"
    SYNC = "exposed_sync"
    BUBBLE = "bubble"
    BLOCKED = "blocked"
    OPTIMIZER = "optimizer"


@dataclass(frozen=True)
class TimedBatch:
    """A batch of contiguous steps.

    Attributes:
        batch: Its wall time.
        samples: Each step with its phases and its loss.
        exchanges: Its collectives and the waits for them; ``None`` where these pass no Python, and
            once there were very many.
        expert_tokens: This rank's tokens of all steps, per expert layer and expert; ``None`` for a
            model without experts.
    """

    batch: Batch
    samples: tuple[StepSample, ...]
    exchanges: ExchangeBatch | None = None
    expert_tokens: Tensor | None = None

    @property
    def losses_finite(self) -> bool:
        """Whether every loss was a finite number, of at most
        :data:`~torchscale.schema.base.LARGEST` (others are kept as ``None``)."""
        return all(sample.loss is not None for sample in self.samples)


class Trainer:
    """The cell's model, optimizer and data on this rank's device.

    Attributes:
        module: What this rank holds of the model. During the first forward pass
            DistributedDataParallel takes split parameters out of it.
        named_parameters: Those of ``module`` as it was before, by name.
        model: The module as the strategy runs it.
        parameters: Number of parameters of the whole model, over all ranks.
        optimizer: Over ``named_parameters``.
        source: The source of batches.
        tokens_per_step: Tokens of a step on this rank; ``None`` where samples have no tokens, and
            where they have different numbers of them.
        last_step_seconds: Mean step time of the last batch.
        watch: Marks gradient sync; ``None`` where there is none, or none that can be separated from
            compute.
        on_phase: Called with each phase that begins; for recordings.
        expert_layers: Those of the part of the model that this rank holds.
        active_parameters: Parameters of the whole model that a token is computed with; ``None``
            where that is all of them, or not known.
    """

    def __init__(
        self, cell: TrainingCell, ranks: Ranks, on_progress: Callable[[], None] | None = None
    ) -> None:
        torch.backends.cudnn.benchmark = cell.cudnn_benchmark and not cell.deterministic
        torch.backends.cudnn.deterministic = cell.deterministic
        torch.use_deterministic_algorithms(cell.deterministic)
        self._cell, self._ranks = cell, ranks
        torch.manual_seed(cell.seed)  # the same weights on every rank
        self._workload = build_workload(cell)
        if cell.precision == "fp8":
            use_fp8(self._workload.module)
        if cell.precision in BLOCK_SCALED:
            use_block_scaled(self._workload.module, cell.precision)
        self.parameters = sum(parameter.numel() for parameter in self._workload.module.parameters())
        self.active_parameters = self._workload.active_parameters
        # Dropout differs between tokens, but not between ranks that process the same ones.
        torch.manual_seed(cell.seed + cell.degrees.tokens_index(ranks.rank))
        self._parallel = parallelize(self._workload, cell, ranks)
        self.module, self.model = self._parallel.module.train(), self._parallel.model
        self.named_parameters = dict(self.module.named_parameters())
        self._precision = PrecisionPolicy(
            cell.precision, ranks.device, autocast=self._parallel.autocast
        )
        self.optimizer = make_optimizer(cell, self._parallel)
        self._clock = make_clock(ranks.device, sync_cuda=cell.measurement.sync_cuda)
        self._marked: list[Phase] = []
        self._noted: list[int] = []
        self.on_phase: Callable[[Phase], None] | None = None
        self._captures_graphs = captures_graphs(cell, ranks.device)
        stages = self._parallel.stages
        if stages is not None:
            stages.around_passes(self._stage_forward, self._stage_backward)
        needed = stages is None or stages.needs_data
        documents = plan_documents(self._workload, cell, ranks)
        self._documents = None if documents is None else DocumentMeter(documents)
        self.source: Source = make_source(
            self._workload,
            cell,
            ranks,
            documents=documents,
            needed=needed,
            on_progress=on_progress,
        )
        self.watch: GradientSyncWatch | None = None
        self._exchanges: ExchangeMeter | None = None
        if self._parallel.waits_in_python and _passes_python(cell, ranks):
            self._exchanges = ExchangeMeter()
            self._exchanges.start()
        needs_pairs = self._parallel.updates_together or self._parallel.syncs_within_groups
        is_apart = not needs_pairs or self._exchanges is not None
        # A mark of the synchronizing clock would stop the device in the middle of the backward
        # pass.
        if self._parallel.gradients_first and is_apart and not cell.measurement.sync_cuda:
            # The compiler would trace a forward hook; buffers are then sent within the forward
            # pass, without a mark.
            self.watch = GradientSyncWatch(
                self.module,
                self.named_parameters.values(),
                self._mark_sync,
                buffers=not cell.compile,
            )
            self.watch.start()
        self._first_phase = Phase.BUBBLE if stages is not None else Phase.FORWARD
        if self.watch is not None and self.watch.has_buffers:
            self._first_phase = Phase.BUFFERS
        self.expert_layers = expert_layers(self.module)
        self._experts = self._expert_meter()
        self._steps_done = 0
        self.last_step_seconds = math.inf
        self.tokens_per_step = self._tokens_per_step()

    def _tokens_per_step(self) -> int | None:
        tokens = self._workload.tokens_per_sample
        if tokens is None or self._documents is not None:
            return None
        return tokens * self._cell.per_device_batch_size

    @property
    def bucket_bytes(self) -> tuple[int, ...] | None:
        """Bytes of each gradient bucket; ``None`` where the strategy has no buckets."""
        if self._parallel.bucket_bytes is None:
            return None
        return self._parallel.bucket_bytes()

    @property
    def bucket_ready_seconds(self) -> tuple[float, ...] | None:
        """When each bucket of a step is ready, after the first; ``None`` where it is not timed."""
        ready = self._parallel.bucket_ready_seconds
        if ready is None:
            return None
        return ready()

    @property
    def cycle(self) -> int:
        """Steps after which samples of different lengths come again; 1 where all are alike."""
        return 1 if self._documents is None else POOL_STEPS

    def _expert_meter(self) -> ExpertMeter | None:
        # The stages of a pipeline hold other layers, each rank its own.
        if not self.expert_layers or self._parallel.stages is not None:
            return None
        sync = self._cell.measurement.sync_cuda
        return ExpertMeter(self.expert_layers, make_clock(self._ranks.device, sync_cuda=sync))

    def step(self) -> Tensor:
        """Run one optimizer step, with a mark after each phase. Returns the loss as a scalar on the
        device."""
        loss = self._forward_backward()
        if self._cell.gradient_clipping is not None:
            self._precision.unscale(self.optimizer)
            clip_gradients(
                self.named_parameters.values(),
                self._cell.gradient_clipping,
                self._parallel.norm_groups,
            )
        self._precision.optimizer_step(self.optimizer)
        self.optimizer.zero_grad(set_to_none=True)
        self._mark(Phase.OPTIMIZER, Phase.DATA)
        self._note_edge()
        if self._experts is not None:
            self._experts.end_step()
        return loss

    def _forward_backward(self) -> Tensor:
        """All forward and backward passes of a step; the mean loss over this rank's samples."""
        if self._captures_graphs:
            # Memory of the last step's graphs may be taken again. Once a step and not once a pass:
            # gradients that are being accumulated lie in it as well.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        batch = self.source.next_batch()
        if self._parallel.take is not None:
            batch = self._parallel.take(batch)
        self._mark_sync(Phase.DATA, self._first_phase)
        if self._parallel.stages is not None:
            loss = self._parallel.stages.run(batch)
            self._mark(Phase.BUBBLE, Phase.OPTIMIZER)
            if loss is None:
                return torch.zeros((), device=self._ranks.device)
            return loss.reshape(())
        pieces = self._cell.gradient_accumulation
        losses = [
            self._pass(piece, last=number == pieces, share=1 / pieces, weight=weight)
            for number, (piece, weight) in enumerate(self._split_batch(batch, pieces), start=1)
        ]
        if pieces == 1:
            return losses[0]
        return torch.stack(losses).mean()

    def _split_batch(
        self, batch: BatchOfTensors, pieces: int
    ) -> list[tuple[BatchOfTensors, float]]:
        """A step's batch by passes, and what the loss of each counts. With documents of different
        lengths each pass is as wide as its longest, and counts by the tokens that it predicts."""
        parts = _split_evenly(batch, pieces)
        if self._documents is None:
            return [(part, 1.0) for part in parts]
        passes = self._documents.begin_step().passes
        return [
            ({name: tensor[:, : one.width] for name, tensor in part.items()}, one.weight)
            for part, one in zip(parts, passes, strict=True)
        ]

    def _pass(
        self, batch: BatchOfTensors, *, last: bool, share: float, weight: float = 1.0
    ) -> Tensor:
        """One forward and one backward pass, whose loss counts ``weight``; gradients are
        synchronized in the last pass of a step only."""
        parallel = self._parallel
        if parallel.accumulating is not None and self._cell.gradient_accumulation > 1:
            parallel.accumulating(last)
        sync = (
            parallel.no_sync()
            if parallel.no_sync is not None and not last
            else contextlib.nullcontext()
        )
        with sync:
            if self._experts is not None:
                self._experts.begin_forward()
            with self._precision.forward_context():
                loss = self._workload.loss_of(self.model(**self._workload.inputs(batch)), batch)
            if weight != 1:
                loss = loss * weight
            if self._experts is not None:
                self._experts.end_forward()
            self._mark(Phase.FORWARD, Phase.GRADIENTS)
            self._precision.backward(loss if share == 1 else loss * share)
            if last and parallel.after_backward is not None:
                parallel.after_backward()
            self._mark_sync(Phase.SYNC, Phase.OPTIMIZER if last else self._first_phase)
        loss = loss.detach().reshape(())
        # The output of a CUDA graph is overwritten by the next step, and losses are read after the
        # last one.
        if self._captures_graphs:
            return loss.clone()
        return loss

    @contextlib.contextmanager
    def _stage_forward(self) -> Iterator[None]:
        self._mark(Phase.BUBBLE, Phase.FORWARD)
        yield
        self._mark(Phase.FORWARD, Phase.BUBBLE)

    @contextlib.contextmanager
    def _stage_backward(self) -> Iterator[None]:
        self._mark(Phase.BUBBLE, Phase.GRADIENTS)
        yield
        self._mark(Phase.SYNC, Phase.BUBBLE)

    def clear_marks(self) -> None:
        """Drop the marks of steps whose times are not used, since a profiler recorded them."""
        self._read()
        self._clear_meters()

    def run_batch(self, steps: int) -> TimedBatch:
        """Run contiguous steps that start together on all ranks; clocks and losses are read after
        the last step."""
        self._ranks.barrier()
        self._mark(Phase.START, Phase.DATA)
        self._note_edge()
        losses = [self.step() for _ in range(steps)]
        times, parts, moments = self._read()
        values: list[float] = torch.stack(losses).float().tolist()
        if self._parallel.stages is not None:
            values = self._parallel.stages.share_losses(values)
        samples = tuple(
            self._sample(index, part, loss)
            for index, (part, loss) in enumerate(zip(parts, values, strict=True))
        )
        expert_tokens = None
        if self._experts is not None:
            experts = self._experts.read()
            samples, expert_tokens = _with_experts(samples, experts.steps), experts.tokens
        if self._documents is not None:
            samples = _with_documents(samples, self._documents.read())
        if self.watch is not None and self._steps_done == 0:
            self.watch.settle()
        self._steps_done += steps
        self.last_step_seconds = times[-1] / steps
        exchanges = None
        if self._exchanges is not None:
            exchanges = self._exchanges.read_batch(moments)
        batch = Batch(steps=steps, seconds=times[-1])
        return TimedBatch(batch, samples, exchanges, expert_tokens)

    def run_unsynchronized(self, steps: int) -> UnsynchronizedWindow | None:
        """Run ``steps`` forward and backward passes without gradient sync, to time this rank's
        compute; ``None`` where the strategy cannot skip its collectives, and where samples have
        different lengths.

        Starts and ends together on all ranks. The first pass (it may still send buffers) and the
        whole training step that follows (it waits for the slowest rank) are discarded; no optimizer
        step is taken in between.
        """
        if self._parallel.no_sync is None or not self._parallel.quiet:
            return None
        if self._documents is not None:  # ranks would be compared by their samples
            return None
        began = perf_counter()
        self._ranks.barrier()
        self._mark(Phase.START, Phase.DATA)
        with self._parallel.no_sync():
            for _ in range(steps + 1):
                self._forward_backward()
                self.optimizer.zero_grad(set_to_none=True)
                self._mark(Phase.OPTIMIZER, Phase.DATA)
        self._clear_meters()
        _, parts, _ = self._read()
        self._ranks.barrier()
        self.run_batch(1)
        compute = tuple(_compute_seconds(part) for part in parts[1:])
        return UnsynchronizedWindow(compute, perf_counter() - began)

    def close(self) -> None:
        """Stop the loader's processes and free the model: ranks that still hold DDP's reducer at
        exit can abort."""
        self.source.close()
        if self._exchanges is not None:
            self._exchanges.stop()
        del (
            self.model,
            self.module,
            self.optimizer,
            self.source,
            self._parallel,
            self.watch,
            self._workload,
            self._experts,
            self.expert_layers,
            self.named_parameters,
        )

    def _clear_meters(self) -> None:
        if self._experts is not None:
            self._experts.clear()
        if self._documents is not None:
            self._documents.clear()

    def _mark(self, ended: Phase, begun: Phase) -> None:
        self._clock.mark()
        self._marked.append(ended)
        if self._exchanges is not None:
            self._noted.append(self._exchanges.count)
        if self.on_phase is not None:
            self.on_phase(begun)

    def _mark_sync(self, ended: Phase, begun: Phase) -> None:
        """A mark around an exchange of gradients or buffers, which is one of the paired waits where
        each group of ranks has a last one."""
        if self._exchanges is None or not self._parallel.syncs_within_groups:
            self._mark(ended, begun)
            return
        self._exchanges.end_sync()
        self._mark(ended, begun)
        if self.watch is not None and begun in (Phase.BUFFERS, Phase.SYNC):
            self._exchanges.begin_sync()

    def _note_edge(self) -> None:
        if self._exchanges is not None:
            self._exchanges.end_step()

    def _read(self) -> tuple[list[float], list[dict[Phase, float]], list[int]]:
        """Seconds of all marks since the first one, each step's seconds by phase, and the moments
        of the waits in them."""
        times, marked = self._clock.read(), self._marked
        noted, self._marked, self._noted = self._noted, [], []
        moments = [] if self._exchanges is None else self._exchanges.take()
        steps: list[dict[Phase, float]] = [{}]
        for number, (phase, since, until) in enumerate(
            zip(marked[1:], times, times[1:], strict=False)
        ):
            seconds = until - since
            if noted and phase in self._waiting_phases:
                waits = moments[noted[number] : noted[number + 1]]
                blocked = min(blocked_seconds(waits), seconds)
                steps[-1][Phase.BLOCKED] = steps[-1].get(Phase.BLOCKED, 0.0) + blocked
                seconds -= blocked
            steps[-1][phase] = steps[-1].get(phase, 0.0) + seconds
            if phase is Phase.OPTIMIZER:
                steps.append({})
        return times, steps[:-1], moments

    @property
    def _waiting_phases(self) -> tuple[Phase, ...]:
        """Phases from which waits are taken apart. What DistributedDataParallel waits for is a phase
        of its own."""
        phases = (Phase.FORWARD, Phase.GRADIENTS, Phase.OPTIMIZER)
        if self.watch is None:
            return (*phases, Phase.SYNC)
        return phases

    def _sample(self, index: int, part: dict[Phase, float], loss: float) -> StepSample:
        sync: float | None = part.get(Phase.SYNC, 0.0)
        backward = part.get(Phase.GRADIENTS)
        if backward is None:  # no mark between the last gradient and gradient sync
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
            blocked=part.get(Phase.BLOCKED),
            loss=loss if abs(loss) <= LARGEST else None,  # not NaN either
        )


@dataclass(frozen=True)
class UnsynchronizedWindow:
    """``seconds`` of each pass without gradient sync, and the wall time of the window with the
    discarded passes."""

    seconds: tuple[float, ...]
    wall_seconds: float


class GradientSyncWatch:
    """Marks the end of buffer sync, before the forward pass, and the start of exposed gradient
    sync: the last gradient.

    In the first step every parameter is watched, to find the one whose gradient comes last;
    afterwards only that one, which costs one call per step. The order of gradients follows the
    model's graph and is equal in every step.
    """

    def __init__(
        self,
        module: nn.Module,
        parameters: Iterable[nn.Parameter],
        mark: Callable[[Phase, Phase], None],
        *,
        buffers: bool,
    ) -> None:
        self._module, self._mark = module, mark
        self._last: nn.Parameter | None = None
        self._watched = [parameter for parameter in parameters if parameter.requires_grad]
        self.has_buffers = buffers and next(module.buffers(), None) is not None
        self._handles: list[RemovableHandle] = []

    def start(self) -> None:
        """Register the hooks on the watched parameters, and before the forward pass."""
        for parameter in self._watched:
            handle = parameter.register_post_accumulate_grad_hook(self._note)  # type: ignore[no-untyped-call]
            self._handles.append(handle)
        if self.has_buffers:
            ended = Phase.BUFFERS, Phase.FORWARD
            self._handles.append(
                self._module.register_forward_pre_hook(lambda *_: self._mark(*ended))
            )

    def stop(self) -> None:
        """Remove all hooks; marks already taken stay."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def settle(self) -> None:
        """Watch only the parameter whose gradient came last."""
        self.stop()
        self._watched = [] if self._last is None else [self._last]
        self.start()

    def _note(self, parameter: Tensor) -> None:
        self._last = cast(nn.Parameter, parameter)
        self._mark(Phase.GRADIENTS, Phase.SYNC)


def _passes_python(cell: TrainingCell, ranks: Ranks) -> bool:
    """Whether waits of eager code block the host, so that they can be timed there: those of gloo,
    also where ranks share a GPU."""
    blocks = not runs_on_device(ranks.backend)
    return blocks and ranks.world_size > 1 and not cell.compile


def _with_experts(
    samples: tuple[StepSample, ...], experts: tuple[ExpertStep, ...]
) -> tuple[StepSample, ...]:
    pairs = zip(samples, experts, strict=True)
    return tuple(sample.model_copy(update={"experts": step}) for sample, step in pairs)


def _with_documents(
    samples: tuple[StepSample, ...], documents: tuple[DocumentStep, ...]
) -> tuple[StepSample, ...]:
    pairs = zip(samples, documents, strict=True)
    return tuple(sample.model_copy(update={"documents": step}) for sample, step in pairs)


def _compute_seconds(part: dict[Phase, float]) -> float:
    return math.fsum(part.get(phase, 0.0) for phase in (Phase.FORWARD, Phase.GRADIENTS, Phase.SYNC))


def _split_evenly(batch: BatchOfTensors, count: int) -> list[BatchOfTensors]:
    """``batch`` in ``count`` equal parts, which are views of it."""
    if count == 1:
        return [batch]
    parts = {name: tensor.chunk(count) for name, tensor in batch.items()}
    return [{name: parts[name][number] for name in parts} for number in range(count)]
