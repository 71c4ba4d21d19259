"""The mean step of a user's program, seen from outside: by a collector in each of its ranks, which
needs nothing of ours in the program's environment but its own files."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchscale.config.sections.benchmark import BenchmarkSettings
from torchscale.features.watch.job.job import WatchedJob
from torchscale.features.watch.job.job_measurement import JobMeasurement
from torchscale.features.watch.job.program_processes import watching_environment
from torchscale.features.watch.job.script_records import MeasuredProgram
from torchscale.schema.cells.training import Measurement
from torchscale.util.files import make_directory, remove_tree
from torchscale.worker.watch import clock

_READ_SECONDS = 0.5
"""Between two looks at the ranks' files, which are written as often."""


class ProgramSteps:
    """Steps of one start of a program, by the rules of warm-up and measurement of own scripts.

    Attributes:
        rule: Of warm-up and measurement.
    """

    def __init__(self, command: Sequence[str], directory: Path, seconds: float) -> None:
        """
        Args:
            command: argv.
            directory: For the collectors' files, which :meth:`close` removes.
            seconds: For how long steps are measured, after the warm-up of a short launch.

        Raises:
            OutputError: the directory cannot be made.
        """
        self._directory = directory.absolute()
        make_directory(self._directory)
        settings = BenchmarkSettings.model_validate({"preset": "quick", "measure_seconds": seconds})
        fields = set(Measurement.model_fields) - {"epochs", "warmup_epochs"}
        self.rule = Measurement(**settings.model_dump(include=fields))
        self._measurement = JobMeasurement(self.rule, "auto")
        clock.begin()
        self._job = WatchedJob(
            self._directory,
            command,
            clock.now(),
            on_steps=self._measurement.take,
            has_optimizer=True,
        )
        self._read_at = 0.0

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """``variables`` with those that have each Python of the program load the collector."""
        return watching_environment(self._directory, variables)

    def is_measured(self) -> bool:
        """Read what the ranks wrote. Whether enough steps are measured, so that the program can be
        ended."""
        now = time.monotonic()
        if now - self._read_at >= _READ_SECONDS:
            self._read_at = now
            self._job.guarded(self._job.advance)
            self._job.guarded(self._job.read_load)
        return self._measurement.ended_by is not None

    def seconds(self) -> float | None:
        """The mean step of all ranks, each at the slowest; ``None`` where none was measured. The
        program has ended."""
        self._job.guarded(self._job.advance)
        self._measurement.end()
        if self._measurement.ended_by is None:
            return None
        return self._measurement.step_seconds

    def measured(self) -> MeasuredProgram | None:
        """The steps of :meth:`seconds`, rank by rank; ``None`` without, and where not all ranks
        wrote here."""
        if self.seconds() is None or len(self._job.streams) < self.world_size:
            return None
        return self._measurement.program(self._job)

    @property
    def world_size(self) -> int:
        """Ranks of the program, by what they say; 0 where none was seen."""
        return max((one.facts.world_size for one in self._job.streams.values()), default=0)

    @property
    def shortfall(self) -> str:
        """Why no step was measured."""
        if self._job.problem:
            return f"what its ranks wrote could not be read: {self._job.problem}"
        if not self._job.streams:
            return "; ".join(self._job.report(clock.now()).notes)
        steps = self._job.steps
        if not steps:
            return "no step was seen: no optimizer of torch (torch.optim) stepped in it"
        if len(self._job.streams) < self.world_size:
            return f"{len(self._job.streams)} of {self.world_size} ranks made their steps here"
        return (
            f"it ended after {steps} steps, before warm-up and a batch of measured steps were over"
        )

    def close(self) -> None:
        """Remove what the collectors wrote."""
        remove_tree(self._directory)
