"""What a record says twice, and differently: figures of such a launch are not shown.

Every file is of the right form when it gets here. A record that was damaged, edited by hand or
merged from two can still say that a rank ran twice, or that batches took a tenth of their steps.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.summary.machine_contradictions import machine_contradictions
from torchscale.catalog.backends import is_nccl
from torchscale.catalog.models import find_model
from torchscale.schema.cells.kinds import AnyCell, AnyRank, as_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.rank import RankRecord
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.signals import SignalDigest
from torchscale.schema.launch.steps import Digest, EpochSample, RankSteps, StepDigest
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.run.content import CellRun
from torchscale.schema.state import State

_SAME_TIME = 0.1
"""Share by which two measurements of one time may differ: they come from the same clock, a few
calls apart."""
_MOST_BETWEEN = 20.0
"""Between batches a rank writes its steps and decides whether to go on: milliseconds, which can
exceed a batch of tiny steps, but never by this factor and :data:`_BETWEEN_SECONDS` a batch."""
_BETWEEN_SECONDS = 2.0
_HANDOVER_SECONDS = 10.0
"""A process that waits for launches may have begun to import before the first one is counted."""
_ROUNDING = 1e-6
"""Rounding error of quantiles in a digest."""
_CLOSE_SECONDS = 1e-6
"""Values of a digest are rounded to 10 ns; clocks resolve no less than that."""
_MOST_PHASES = 2.0
"""Phases over the step that they add up to."""


def contradiction(cell_run: CellRun) -> str | None:
    """The first thing that a launch's record says against itself or against its cell; ``None``
    without any.

    Only launches that are ``ok`` are judged: of the others no figure is shown.
    """
    cell = cell_run.planned.cell
    for record in cell_run.launches:
        if record.state is State.OK:
            with np.errstate(
                all="ignore"
            ):  # of numbers that no measurement has, which is one of the things found
                found = next(_in_record(record, cell), None)
            if found is not None:
                return f"launch {record.launch}: {found}"
    return None


def _in_record(record: LaunchRecord, cell: AnyCell) -> Iterator[str]:
    ranks: Sequence[AnyRank] = record.payload.ranks
    yield from _about_ranks(ranks, cell.world_size)
    for rank in ranks:
        if cell.device not in ("auto", rank.device.kind):
            yield f"rank {rank.rank} computed on {rank.device.kind}, its cell on {cell.device}"
    if not record.nodes and len({rank.node_rank for rank in ranks}) > 1:
        yield "its ranks ran on several nodes, and it is a launch on one"
    if record.failures:
        yield (
            f"its state is ok, and rank {record.failures[0].rank} failed "
            f"({record.failures[0].type})"
        )
    if record.autopsy is not None:
        yield f"its state is ok, and it is explained as a failure: {record.autopsy.summary}"
    if record.nodes and sum(node.ranks for node in record.nodes) != cell.world_size:
        count = sum(node.ranks for node in record.nodes)
        yield f"{count} ranks on its nodes, its cell has {cell.world_size}"
    yield from machine_contradictions(record, cell)
    training, trained = as_kind(record.payload, TrainingResult), as_kind(cell, TrainingCell)
    if training is None and len(ranks) < cell.world_size:
        yield f"its state is ok, and it has records of {len(ranks)} of {cell.world_size} ranks"
    if training is not None and trained is not None:
        yield from _about_training(record, training, trained)


def _about_ranks(ranks: Sequence[AnyRank], world_size: int) -> Iterator[str]:
    times = Counter(rank.rank for rank in ranks)
    for rank in ranks:
        if times[rank.rank] > 1:
            yield f"rank {rank.rank} is in it {times[rank.rank]} times"
        if not 0 <= rank.rank < world_size:
            yield f"rank {rank.rank} of {world_size} ranks"
        if rank.world_size != world_size:
            yield f"rank {rank.rank} ran among {rank.world_size} ranks, its cell has {world_size}"
        if rank.device.kind == "cpu" and is_nccl(rank.backend):
            yield f"rank {rank.rank} computed on a CPU and communicated by {rank.backend}"
    yield from _about_processes(ranks)


_ALIKE: Mapping[str, Callable[[AnyRank], str]] = {
    "devices": lambda rank: rank.device.kind,
    "backends": lambda rank: rank.backend or "none",
    "versions of torch": lambda rank: rank.versions.torch,
}
"""What the ranks of a launch have in common: they join one process group, and nodes with other
software are refused."""


def _about_processes(ranks: Sequence[AnyRank]) -> Iterator[str]:
    """Ranks are processes of their own, each with a place on its node."""
    for name, value in _ALIKE.items():
        different = sorted({value(rank) for rank in ranks})
        if len(different) > 1:
            yield f"its ranks have different {name}: {', '.join(different)}"
    hosts: dict[int, str] = {}
    places: set[tuple[int, str, int]] = set()
    for rank in ranks:
        first = hosts.setdefault(rank.node_rank, rank.hostname)
        if rank.hostname != first:
            yield f"rank {rank.rank} ran on {rank.hostname}, others of its node on {first}"
        for what, number in (("local rank", rank.local_rank), ("pid", rank.pid)):
            if (rank.node_rank, what, number) in places:
                yield f"two ranks of one node have {what} {number}"
            places.add((rank.node_rank, what, number))


def _about_training(
    record: LaunchRecord, result: TrainingResult, cell: TrainingCell
) -> Iterator[str]:
    ranks, measured = result.ranks, np.array([rank.batches.total_seconds for rank in result.ranks])
    for rank in ranks:
        yield from _about_rank(rank, cell)
    yield from _about_walls(ranks, measured)
    yield from _about_likeness(ranks)
    if result.rank_steps and len(result.rank_steps) != len(ranks):
        yield f"steps of {len(result.rank_steps)} ranks, records of {len(ranks)}"
        return
    if result.rank_steps:
        yield from _about_rank_steps(ranks, measured, result.rank_steps)
    if result.steps is not None:
        yield from _about_digest(result.steps.seconds)
        yield from _about_phases(result.steps, (result.steps.seconds.mean,), ("steps",))
        if result.rank_steps:
            yield from _about_group(result.steps.seconds, result.rank_steps)
    if result.signals is not None:
        yield from _about_signals(result.signals, len(ranks))
        yield from _about_exchange(result.signals, result.steps)
    if cell.batch_size is not None:
        yield from _about_epochs(result.epochs, cell.global_batch_size)
    if ranks:
        yield from _about_seconds(record.seconds, ranks, measured)


def _about_walls(ranks: Sequence[RankRecord], measured: NDArray[np.float64]) -> Iterator[str]:
    """Batches, in seconds by rank, fill the measurement but for what lies between them."""
    walls = np.array([rank.host_load.wall_seconds for rank in ranks])
    between = _BETWEEN_SECONDS * np.array([len(rank.batches) for rank in ranks])
    for place in np.flatnonzero(walls < measured * (1 - _SAME_TIME)).tolist():
        which = f"rank {ranks[place].rank}"
        yield (
            f"{which}: its batches took {measured[place]:.4g} s, the measurement {walls[place]:.4g} "
            "s"
        )
    for place in np.flatnonzero(walls > measured * _MOST_BETWEEN + between).tolist():
        which = f"rank {ranks[place].rank}"
        yield (
            f"{which}: its batches took {measured[place]:.4g} s of a measurement of "
            f"{walls[place]:.4g} s"
        )


def _about_likeness(ranks: Sequence[RankRecord]) -> Iterator[str]:
    """Ranks decide together when a batch ends. Every one builds the whole model before a strategy
    divides it, and reads samples of one form."""
    if len({rank.batches.steps for rank in ranks}) > 1:
        yield "its ranks measured batches of different lengths"
    for name, numbers in (
        ("parameters of the model", {rank.parameters or 0 for rank in ranks}),
        ("tokens a step", {rank.tokens_per_step or 0 for rank in ranks}),
    ):
        if len(numbers) > 1:
            yield f"its ranks say different {name}: {', '.join(map(str, sorted(numbers)))}"


def _about_epochs(epochs: Sequence[EpochSample], global_batch: int) -> Iterator[str]:
    for epoch in epochs:
        if epoch.samples != epoch.steps * global_batch:
            yield (
                f"epoch {epoch.epoch} has {epoch.steps} steps of {global_batch} samples, and "
                f"{epoch.samples} samples"
            )


def _about_seconds(
    seconds: float, ranks: Sequence[RankRecord], measured: NDArray[np.float64]
) -> Iterator[str]:
    """A launch takes at least what its ranks do in it."""
    longest = float((measured + [rank.warmup.seconds for rank in ranks]).max())
    if seconds < longest * (1 - _SAME_TIME):
        yield f"it took {seconds:g} s, and its warm-up and batches {longest:.4g} s"
    for rank in ranks:
        setup = rank.setup
        if setup is None:
            continue
        start = setup.import_seconds + setup.process_group_seconds + setup.build_seconds
        if start > seconds * (1 + _SAME_TIME) + _HANDOVER_SECONDS:
            yield f"it took {seconds:g} s, and the start of rank {rank.rank} {start:.4g} s"


def _about_rank(rank: RankRecord, cell: TrainingCell) -> Iterator[str]:
    if cell.script is None and None in _always_measured(rank):
        yield f"rank {rank.rank} lacks what every rank of a built-in model measures"
        return
    asked = None if cell.batch_size is None else cell.per_device_batch_size
    if rank.samples_per_step is not None and rank.samples_per_step != asked:
        trained = f"rank {rank.rank} trained {rank.samples_per_step} samples a step"
        yield f"{trained}, its cell has {asked or 'none'}"
    if rank.losses_finite is False:
        yield f"its state is ok, and a loss of rank {rank.rank} was not finite"
    if rank.parameters_equal is False:
        yield f"its state is ok, and rank {rank.rank} held other parameters than the rest"
    if rank.parameters_changed is False:
        yield f"its state is ok, and no parameter of rank {rank.rank} changed"
    yield from _about_tokens(rank, cell)
    yield from _about_documents(rank, cell)
    yield from _about_start(rank)
    yield from _about_memory(rank)
    signals = rank.signals
    if signals is not None and signals.unsynchronized_seconds is not None:
        passes, wall = sum(signals.unsynchronized_seconds), signals.unsynchronized_wall_seconds
        if wall is not None and passes > wall * (1 + _SAME_TIME):
            yield (
                f"rank {rank.rank}: passes without synchronization took {passes:.4g} s of "
                f"{wall:.4g} s"
            )


def _always_measured(rank: RankRecord) -> tuple[object, ...]:
    """What only a rank of a user's script lacks."""
    return (
        rank.parameters,
        rank.samples_per_step,
        rank.setup,
        rank.losses_finite,
        rank.parameters_changed,
    )


def _about_tokens(rank: RankRecord, cell: TrainingCell) -> Iterator[str]:
    """Samples of a step have equally many tokens: of the models we know, as the option says."""
    tokens, samples = rank.tokens_per_step, rank.samples_per_step
    if tokens is None or samples is None:
        return
    length = cell.model_options.get("sequence_length")
    known = find_model(cell.model) is not None and isinstance(length, int)
    if tokens % samples or (known and tokens != samples * int(length or 0)):
        of = f" of {length} tokens" if known else ""
        yield f"rank {rank.rank} trained {tokens} tokens a step, in {samples} samples{of}"


def _about_documents(rank: RankRecord, cell: TrainingCell) -> Iterator[str]:
    """Where samples have different lengths, no more of them is computed than they have room for, and
    what is computed contains them."""
    use = rank.documents
    if (use is None) != (cell.lengths is None):
        has = "no documents" if use is None else "documents"
        yield f"rank {rank.rank} has {has}, against what its cell asks for"
        return
    length = cell.model_options.get("sequence_length")
    if use is None or not isinstance(length, int):
        return
    real, computed = use.real_tokens_per_step, use.computed_tokens_per_step
    room = cell.copy_batch_size * length
    if not 0 < real <= computed <= room:
        yield (
            f"rank {rank.rank} trained {real:g} tokens of documents a step, computed {computed:g}, "
            f"and has room for {room}"
        )
    pairs = use.document_pairs_per_step
    if not real <= pairs <= real * length * (1 + _ROUNDING):
        yield (
            f"rank {rank.rank}: {pairs:g} pairs of tokens a step are not of "
            f"{real:g} tokens in documents of at most {length}"
        )


def _about_start(rank: RankRecord) -> Iterator[str]:
    """Warm-up begins with the first step, and consists of it, a second one and its batches."""
    warmup, setup = rank.warmup, rank.setup
    first = 0.0 if setup is None else setup.first_step_seconds
    if first > warmup.seconds * (1 + _SAME_TIME):
        yield f"rank {rank.rank}: its first step took {first:.4g} s of {warmup.seconds:.4g} s warm-up"
    steps, seconds = warmup.batches.total_steps, warmup.batches.total_seconds
    if steps > warmup.steps or seconds > warmup.seconds * (1 + _SAME_TIME):
        yield (
            f"rank {rank.rank}: batches of its warm-up have {steps} steps in {seconds:.4g} s, all "
            f"of it {warmup.steps} in {warmup.seconds:.4g} s"
        )


def _about_memory(rank: RankRecord) -> Iterator[str]:
    """An allocator holds what it gives out; a peak is not below what was there before."""
    use = rank.memory
    if rank.device.kind == "cpu" and use.peak_allocated_bytes is not None:
        yield f"rank {rank.rank} computed on a CPU, and has memory of a GPU"
    if (use.peak_allocated_bytes or 0) > (use.peak_reserved_bytes or math.inf):
        yield f"rank {rank.rank}: more memory was allocated than reserved"
    if use.peak_bytes is not None and use.peak_bytes < 0:
        yield f"rank {rank.rank}: the peak of its memory is below what it had before"


def _about_rank_steps(
    ranks: Sequence[RankRecord], measured: NDArray[np.float64], steps: RankSteps
) -> Iterator[str]:
    """A rank's steps fill its batches."""
    counts, totals = np.array(steps.count), np.array([rank.batches.total_steps for rank in ranks])
    for place in np.flatnonzero(counts != totals).tolist():
        yield (
            f"rank {ranks[place].rank} measured {totals[place]} steps, and has the times of "
            f"{counts[place]}"
        )
    of_steps = counts * np.array(steps.mean)
    for place in np.flatnonzero(
        np.abs(measured - of_steps) > _SAME_TIME * np.maximum(measured, of_steps)
    ).tolist():
        which = f"rank {ranks[place].rank}"
        yield (
            f"{which}: its batches took {measured[place]:.4g} s, the steps in them "
            f"{of_steps[place]:.4g} s"
        )
    for place, found in _out_of_order(steps, len(ranks)):
        yield f"steps of rank {ranks[place].rank}: {found}"
    for place, rank in enumerate(ranks):
        yield from _about_batches(rank, steps.minimum[place], steps.maximum[place])
    names = [f"steps of rank {rank.rank}" for rank in ranks]
    yield from _about_phases(steps, steps.mean, names)


def _about_batches(rank: RankRecord, shortest: float, longest: float) -> Iterator[str]:
    """A batch takes what its steps take, each between the shortest and the longest."""
    least, most = shortest * (1 - _SAME_TIME), longest * (1 + _SAME_TIME)
    for steps, seconds in zip(rank.batches.steps, rank.batches.seconds, strict=True):
        if not steps * least <= seconds <= steps * most:
            yield (
                f"rank {rank.rank}: a batch of {steps} steps took {seconds:.4g} s, and steps take "
                f"{shortest:.4g} to {longest:.4g} s"
            )


def _about_phases(
    steps: StepDigest | RankSteps, mean: Sequence[float], which: Sequence[str]
) -> Iterator[str]:
    """The phases of a step add up to it. Small differences are a flag of the cell; phases that take
    twice the step are of other steps."""
    total = np.zeros(len(mean))
    for name in ("data_wait", "forward", "backward", "optimizer", "sync", "bubble", "compute"):
        value = getattr(steps, f"mean_{name}")
        column = value if isinstance(value, tuple) else (value,)
        if column:
            total += [seconds or 0.0 for seconds in column]
    for place in np.flatnonzero(total > _MOST_PHASES * np.array(mean)).tolist():
        yield (
            f"{which[place]}: {mean[place]:.4g} s on the average, their phases {total[place]:.4g} s"
        )


def _about_group(group: Digest, ranks: RankSteps) -> Iterator[str]:
    """A step of the group takes what its slowest rank takes."""
    if {group.count} != set(ranks.count):
        yield f"{group.count} steps of the group, {max(ranks.count)} of its ranks"
    longest, slowest = max(ranks.maximum), max(ranks.mean)
    if abs(group.maximum - longest) > _ROUNDING * longest:
        yield f"the longest step took {group.maximum:.4g} s, that of its ranks {longest:.4g} s"
    if not slowest * (1 - _ROUNDING) <= group.mean <= sum(ranks.mean) * (1 + _ROUNDING):
        yield (
            f"steps of the group took {group.mean:.4g} s on the average, those of its slowest rank "
            f"{slowest:.4g} s"
        )


def _about_exchange(signals: SignalDigest, steps: StepDigest | None) -> Iterator[str]:
    """What a step waits for others is a part of it; shares of the waiting are shares."""
    if signals.blame is not None and not all(
        -_ROUNDING <= share <= 1 + _ROUNDING for share in signals.blame
    ):
        yield "signals: blame holds shares that are not between 0 and 1"
    if steps is None:
        return
    longest = steps.seconds.maximum * (1 + _SAME_TIME)
    parts = {
        "exposed_p95": signals.exposed_p95 or 0.0,
        "transfer": max(signals.transfer or (0.0,)),
        "wait": max((max(row, default=0.0) for row in signals.wait or ()), default=0.0),
        "compute": max((max(row, default=0.0) for row in signals.compute), default=0.0),
        "data_wait": max((max(row, default=0.0) for row in signals.data_wait), default=0.0),
    }
    for name, seconds in parts.items():
        if seconds > longest:
            yield f"signals: {name} of {seconds:.4g} s, the longest step took {longest:.4g} s"


def _about_digest(digest: Digest) -> Iterator[str]:
    """Contradictions within the digest of the group's steps."""
    for _, found in _out_of_order(digest, 1):
        yield f"steps: {found}"
    kept = digest.values
    outside = bool(kept) and (
        kept[0] < digest.minimum - _CLOSE_SECONDS or kept[-1] > digest.maximum + _CLOSE_SECONDS
    )
    if outside:
        yield "steps: its values are not between the shortest and the longest step"
    if kept and (len(kept) > digest.count or list(kept) != sorted(kept)):
        yield f"steps: its values are not those of {digest.count} steps in ascending order"


_ASCENDING = ("minimum", "p50", "p95", "p99", "maximum")


def _out_of_order(steps: Digest | RankSteps, count: int) -> Iterator[tuple[int, str]]:
    """Digests, so many, whose quantiles do not ascend, or whose mean is not between their extremes:
    which, and what it says."""
    names = (*_ASCENDING, "mean")
    table = np.array([getattr(steps, name) for name in names]).reshape(len(names), count)
    quantiles, mean = table[:-1], table[-1]
    least, most = quantiles[0], quantiles[-1]
    outside = (mean < least * (1 - _ROUNDING)) | (mean > most * (1 + _ROUNDING))
    if not (outside | (quantiles[:-1] > quantiles[1:] * (1 + _ROUNDING))).any():
        return
    columns = dict(zip(names, table, strict=True))
    for name, following in itertools.pairwise(_ASCENDING):
        value, larger = columns[name], columns[following]
        for place in np.flatnonzero(value > larger * (1 + _ROUNDING)).tolist():
            yield (
                int(place),
                f"{name} {value[place]:.4g} s is above {following} {larger[place]:.4g} s",
            )
    for place in np.flatnonzero(outside).tolist():
        yield (
            int(place),
            f"mean {mean[place]:.4g} s is not between {least[place]:.4g} and {most[place]:.4g} s",
        )


def _about_signals(signals: SignalDigest, ranks: int) -> Iterator[str]:
    by_rank: dict[str, Sequence[object] | None] = {
        "compute": signals.compute,
        "data_wait": signals.data_wait,
        "wait": signals.wait,
        "blame": signals.blame,
        "long_steps": signals.long_steps,
        "long_step_seconds_by_rank": signals.long_step_seconds_by_rank,
    }
    for name, series in by_rank.items():
        if series is not None and len(series) != ranks:
            yield f"signals.{name} of {len(series)} ranks, records of {ranks}"
    p50, p95 = signals.exposed_p50, signals.exposed_p95
    if p50 is not None and p95 is not None and p50 > p95 * (1 + _ROUNDING):
        yield "signals: exposed_p50 is above exposed_p95"
    windows = signals.windows
    if windows is not None:
        lengths = {len(windows.steps), len(windows.wall_us)}
        lengths.update(len(row) for row in (*windows.compute_us, *windows.quiet_us))
        if len(lengths) > 1 or {len(windows.compute_us), len(windows.quiet_us)} != {ranks}:
            yield "signals.windows: its series differ in length"
