"""Runs the training steps of a cell in batches, and times the phases of each step."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from torchscale.catalog.backends import runs_on_device
from torchscale.catalog.devices import BLOCK_SCALED
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
from torchscale.worker.gradient_sync import GradientSyncWatch
from torchscale.worker.measure.clock import make_clock
from torchscale.worker.measure.exchanges import ExchangeMeter
from torchscale.worker.measure.experts import ExpertMeter
from torchscale.worker.measure.phases import Phase, PhaseMarks, compute_seconds, step_sample
from torchscale.worker.models import build_workload
from torchscale.worker.models.experts import expert_layers
from torchscale.worker.models.interface import BatchOfTensors
from torchscale.worker.optimizer import clip_gradients, make_optimizer
from torchscale.worker.parallel import parallelize
from torchscale.worker.parallel.blocks import captures_graphs
from torchscale.worker.precision import PrecisionPolicy
from torchscale.worker.process_group import Ranks


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
        marks: Marks between the phases of its steps.
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
        self.marks = PhaseMarks(
            make_clock(ranks.device, sync_cuda=cell.measurement.sync_cuda),
            self._exchanges,
            pairs_syncs=self._parallel.syncs_within_groups,
        )
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
                self.marks.mark_sync,
                buffers=not cell.compile,
            )
            self.watch.start()
            self.marks.has_watch = True
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
        self.marks.mark(Phase.OPTIMIZER, Phase.DATA)
        self.marks.end_step()
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
        self.marks.mark_sync(Phase.DATA, self._first_phase)
        if self._parallel.stages is not None:
            loss = self._parallel.stages.run(batch)
            self.marks.mark(Phase.BUBBLE, Phase.OPTIMIZER)
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
            self.marks.mark(Phase.FORWARD, Phase.GRADIENTS)
            self._precision.backward(loss if share == 1 else loss * share)
            if last and parallel.after_backward is not None:
                parallel.after_backward()
            self.marks.mark_sync(Phase.SYNC, Phase.OPTIMIZER if last else self._first_phase)
        loss = loss.detach().reshape(())
        # The output of a CUDA graph is overwritten by the next step, and losses are read after the
        # last one.
        if self._captures_graphs:
            return loss.clone()
        return loss

    @contextlib.contextmanager
    def _stage_forward(self) -> Iterator[None]:
        self.marks.mark(Phase.BUBBLE, Phase.FORWARD)
        yield
        self.marks.mark(Phase.FORWARD, Phase.BUBBLE)

    @contextlib.contextmanager
    def _stage_backward(self) -> Iterator[None]:
        self.marks.mark(Phase.BUBBLE, Phase.GRADIENTS)
        yield
        self.marks.mark(Phase.SYNC, Phase.BUBBLE)

    def clear_marks(self) -> None:
        """Drop the marks of steps whose times are not used, since a profiler recorded them."""
        self.marks.read()
        self._clear_meters()

    def run_batch(self, steps: int) -> TimedBatch:
        """Run contiguous steps that start together on all ranks; clocks and losses are read after
        the last step."""
        self._ranks.barrier()
        self.marks.mark(Phase.START, Phase.DATA)
        self.marks.end_step()
        losses = [self.step() for _ in range(steps)]
        times, parts, moments = self.marks.read()
        values: list[float] = torch.stack(losses).float().tolist()
        if self._parallel.stages is not None:
            values = self._parallel.stages.share_losses(values)
        samples = tuple(
            step_sample(self._steps_done + index, part, loss)
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
        self.marks.mark(Phase.START, Phase.DATA)
        with self._parallel.no_sync():
            for _ in range(steps + 1):
                self._forward_backward()
                self.optimizer.zero_grad(set_to_none=True)
                self.marks.mark(Phase.OPTIMIZER, Phase.DATA)
        self._clear_meters()
        _, parts, _ = self.marks.read()
        self._ranks.barrier()
        self.run_batch(1)
        compute = tuple(compute_seconds(part) for part in parts[1:])
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


@dataclass(frozen=True)
class UnsynchronizedWindow:
    """``seconds`` of each pass without gradient sync, and the wall time of the window with the
    discarded passes."""

    seconds: tuple[float, ...]
    wall_seconds: float


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


def _split_evenly(batch: BatchOfTensors, count: int) -> list[BatchOfTensors]:
    """``batch`` in ``count`` equal parts, which are views of it."""
    if count == 1:
        return [batch]
    parts = {name: tensor.chunk(count) for name, tensor in batch.items()}
    return [{name: parts[name][number] for name in parts} for number in range(count)]
