"""The steps of a job that are measured, taken as its ranks write them."""

from __future__ import annotations

from torchscale.analysis.exchanges.steps import JobSteps
from torchscale.config.script import ScriptSteps
from torchscale.features.watch.analysis.script_measurement import ScriptMeasurement
from torchscale.features.watch.analysis.step_log import joined, part_of
from torchscale.features.watch.job.job import WatchedJob
from torchscale.features.watch.job.script_records import MeasuredProgram
from torchscale.schema.cells.training import Measurement
from torchscale.schema.launch.task import LaunchTask


class JobMeasurement(ScriptMeasurement):
    """Steps of one start of a job, by the rules of warm-up and measurement; those that are measured
    are kept with their parts."""

    def __init__(self, rule: Measurement, steps: ScriptSteps) -> None:
        super().__init__(rule, steps)
        self._kept: list[JobSteps] = []

    def take(self, attempt: int, steps: JobSteps) -> None:
        """The next steps of all ranks; of one start alone."""
        if attempt or self.ended_by is not None:
            return
        self._kept.append(steps)
        self.add(steps.wall)
        if self.first is None:
            warmup = self.warmup_steps
            self._kept = [part for part in self._kept if part.first + len(part) > warmup]

    def program(self, job: WatchedJob, task: LaunchTask | None = None) -> MeasuredProgram:
        """What was measured of a job that has ended, of a sweep's ``task`` if it has one.

        Raises:
            ValueError: nothing was measured.
        """
        if self.ended_by is None:
            raise ValueError("nothing was measured")
        for stream in job.streams.values():
            job.guarded(stream.read_use)
        everything, ranks = joined(self._kept), len(job.streams)
        begin = (self.first or 0) - everything.first
        return MeasuredProgram(
            part_of(everything, begin, begin + self.measured),
            self.batches_of(ranks),
            self.warmup_of(ranks),
            self.ended_by,
            tuple(job.streams.values()),
            job.load,
            task,
        )
