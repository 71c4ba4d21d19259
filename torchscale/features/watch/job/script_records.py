"""What the ranks of a user's program would have written of themselves: their records and steps,
from what their collectors saw."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import add
from pathlib import Path

import numpy as np

from torchscale.analysis.exchanges.steps import JobSteps, Matrix, WaitsBy
from torchscale.analysis.training.result import training_result
from torchscale.features.watch.job.host_load import HostLoadSamples
from torchscale.features.watch.job.stream import RankStream
from torchscale.schema.cells.kinds import as_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.rank import MemoryUse, RankRecord
from torchscale.schema.launch.steps import BatchTimes, OwnStep, StepSample, StopRule, Warmup
from torchscale.schema.launch.task import LaunchTask
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.node.environment import DeviceInfo, Versions
from torchscale.util.cpu import cpu_name
from torchscale.util.files import atomic_write_model, atomic_write_text
from torchscale.version import __version__

WATCHED = "watch"
"""Below the directory of a launch: what the collectors wrote, and ``watch.json``."""
FLOPS_UNKNOWN = "the model of a script of your own is not known, and its operations not counted"
_STAGED_SHARE = 0.5
"""Of the time that ranks are blocked in sends and receives: beyond it they are stages of a
pipeline, and what they are blocked for is its bubble."""
_DECIMALS = 9
"""Nanoseconds, as the collector has them."""


@dataclass(frozen=True)
class MeasuredProgram:
    """A program whose steps were measured.

    Attributes:
        table: The measured steps.
        batches: Of each row.
        warmup: Of each row: the steps before.
        ended_by: What ended the measurement.
        streams: The ranks, in the order of rows.
        load: Readings of the host.
        task: Its launch, where a sweep started it.
        per_column: Steps that each column is the mean of.
    """

    table: JobSteps
    batches: Sequence[BatchTimes]
    warmup: Sequence[Warmup]
    ended_by: StopRule
    streams: Sequence[RankStream]
    load: HostLoadSamples
    task: LaunchTask | None = None
    per_column: int = 1

    @property
    def step_seconds(self) -> float:
        """Mean step of the group, as of any launch: of each batch the slowest rank counts."""
        steps = self.batches[0].total_steps
        slowest = (
            max(seconds) for seconds in zip(*(one.seconds for one in self.batches), strict=True)
        )
        return math.fsum(slowest) / steps

    def write(self, directory: Path) -> TrainingResult:
        """Write ``rank-R.json`` and ``steps-rank-R.jsonl`` of every rank; what is in them.

        Raises:
            OutputError: a file cannot be written.
        """
        records, series = self.records(), [*map(self._samples, range(len(self.streams)))]
        for row, (record, lines) in enumerate(zip(records, series, strict=True)):
            atomic_write_text(
                directory / f"steps-rank-{row}.jsonl",
                "".join(line.model_dump_json(exclude_none=False) + "\n" for line in lines),
                durable=False,
            )
            atomic_write_model(directory / f"rank-{row}.json", record, durable=False)
        return training_result(records, series, per_sample=self.per_column)

    def records(self) -> list[RankRecord]:
        """Of every rank."""
        return [self._record(row, stream) for row, stream in enumerate(self.streams)]

    @property
    def _hosts(self) -> list[str]:
        return [stream.facts.host for stream in self.streams]

    @property
    def _knows_waits(self) -> bool:
        """Whether arrivals at collectives were seen: with a flight recorder, and where a call is an
        arrival."""
        facts = [stream.facts for stream in self.streams]
        on_host = all(one.device == "cpu" and one.has_recorder for one in facts)
        return on_host and self.table.waits_by is WaitsBy.CALLS and len(facts) > 1

    def _samples(self, row: int) -> list[StepSample]:
        table = self.table
        waited = float(table.wait.sum() + table.transfer.sum())
        bubble = float(table.bubble.sum())
        staged = bubble > _STAGED_SHARE * (bubble + waited)
        calm, compute = table.calm, table.own
        if not self._knows_waits:
            compute = compute + table.bubble
            if table.waits_by is WaitsBy.CALLS:  # by lengths, own times hold what was waited
                compute = compute + table.wait + table.transfer

        def of_row(matrix: Matrix) -> list[float]:
            return [round(max(0.0, value), _DECIMALS) for value in matrix[row].tolist()]

        own = self._own_steps(of_row, compute, calm, staged=staged)
        data, bubbles, wall = of_row(table.data), of_row(table.bubble), table.wall[row].tolist()
        return [
            StepSample(
                step=table.first + step * self.per_column + 1,
                seconds=wall[step],
                data_wait=data[step],
                forward=None,
                backward=None,
                optimizer=None,
                bubble=bubbles[step] if staged else None,
                own=own[step],
            )
            for step in range(len(table))
        ]

    def _own_steps(
        self,
        of_row: Callable[[Matrix], list[float]],
        compute: Matrix,
        calm: Matrix,
        *,
        staged: bool,
    ) -> list[OwnStep]:
        """What a rank does itself in each step, and what it waits for where that is known."""
        both = of_row(compute), of_row(calm)
        if not self._knows_waits:
            return [OwnStep(compute=one, calm=two) for one, two in zip(*both, strict=True)]
        table = self.table
        transfers = of_row(table.transfer)
        if not staged:
            transfers = list(map(add, transfers, of_row(table.bubble)))
        columns = (*both, of_row(table.wait), transfers, of_row(table.blame))
        return [
            OwnStep(compute=one, calm=two, wait=wait, transfer=transfer, blame=blame)
            for one, two, wait, transfer, blame in zip(*columns, strict=True)
        ]

    def _record(self, row: int, stream: RankStream) -> RankRecord:
        facts, use, table = stream.facts, stream.use, self.table
        # Each rank's first step has a start of its own: ends alone are common.
        start = float(table.end_ns[0]) * 1e-9 - float(table.wall[row, 0]) * self.per_column
        end = float(table.end_ns[-1]) * 1e-9
        cpus, asked, threads = facts.cpus, None, 1
        if self.task is not None:
            threads = self.task.threads_per_rank
            asked = self.task.cpu_sets[row] if self.task.cpu_sets is not None else None
        samples, samples_unknown = self._samples_per_step()
        return RankRecord(
            rank=row,
            local_rank=self._hosts[:row].count(facts.host),
            node_rank=list(dict.fromkeys(self._hosts)).index(facts.host),
            world_size=facts.world_size,
            pid=facts.pid,
            hostname=facts.host,
            device=self._device(row, stream, cpus),
            backend=facts.backend or None,
            threads=facts.threads or threads,
            cpus=cpus,
            versions=Versions(torchscale=__version__, python=facts.python, torch=facts.torch),
            parameters=None,
            samples_per_step=samples,
            tokens_per_step=None,
            setup=None,
            warmup=self.warmup[row],
            batches=self.batches[row],
            stop_rule=self.ended_by,
            memory=MemoryUse(
                peak_allocated_bytes=use.peak_allocated_bytes,
                peak_reserved_bytes=use.peak_reserved_bytes,
                resident_peak_bytes=use.peak_memory_bytes or None,
            ),
            host_load=self.load.between(
                start, end, pid=facts.pid, cpus=cpus, pinned=_is(cpus, asked)
            ),
            first_loss=None,
            last_loss=None,
            losses_finite=None,
            parameters_changed=None,
            parameters_equal=None,
            flops_unknown=FLOPS_UNKNOWN if row == 0 else "",
            samples_unknown=samples_unknown if row == 0 else "",
            measured_from=start,
            measured_until=end,
        )

    def _samples_per_step(self) -> tuple[int | None, str]:
        """A rank's samples of a step, or why they are not known."""
        if self.task is None:
            return None, "the batch size of a watched program is not known"
        cell = as_kind(self.task.cell, TrainingCell)
        if cell is None or cell.batch_size is None:
            return None, "the script is not told its batch size ({batch_size})"
        passes = round(float(np.median(self.table.passes)))
        if passes > 1:
            return None, (
                f"the script makes {passes} backward passes in each optimizer step, so that it is "
                "not known whether its batch size is that of a pass or of the step"
            )
        return cell.per_device_batch_size, ""

    def _device(self, row: int, stream: RankStream, cpus: Sequence[int]) -> DeviceInfo:
        use = stream.use
        if use.device_index is not None:
            return DeviceInfo(
                kind="cuda",
                index=use.device_index,
                name=use.device_name,
                uuid=use.device_uuid or None,
            )
        if stream.facts.device == "cpu":
            return DeviceInfo(kind="cpu", index=cpus[0] if cpus else 0, name=cpu_name())
        if self.task is None:
            return DeviceInfo(kind="cuda", index=row, name="cuda")
        indices = self.task.device_indices
        index = indices[row] if row < len(indices) else row
        return DeviceInfo(kind=self.task.device, index=index, name=self.task.device)


def _is(cpus: Sequence[int], asked: Sequence[int] | None) -> bool:
    """Whether a rank is bound to the cores that it was given."""
    return asked is not None and sorted(cpus) == sorted(asked)
