"""The files a rank leaves in its launch directory."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel

from torchscale.schema.environment import RankPlace
from torchscale.schema.progress import Progress
from torchscale.schema.record import EpochSample, RankFailure, StepSample
from torchscale.store import atomic_write_model

_PROGRESS_SECONDS = 0.5


class Outbox:
    """Writes what one rank has to say. Progress and epochs are rank 0's alone."""

    def __init__(self, directory: Path, rank: int) -> None:
        self._directory, self._rank = directory, rank
        self._last_progress: tuple[str, float] = ("", 0.0)

    def progress(self, progress: Progress) -> None:
        """A line for the live view: at once for a new phase, else at most two a second."""
        phase, when = self._last_progress
        now = time.monotonic()
        if self._rank == 0 and (progress.phase != phase or now - when >= _PROGRESS_SECONDS):
            self._last_progress = (progress.phase, now)
            self._append("progress.jsonl", [progress])

    def steps(self, samples: Iterable[StepSample]) -> None:
        """Every measured step of this rank."""
        self._append(f"steps-rank-{self._rank}.jsonl", samples)

    def epoch(self, sample: EpochSample) -> None:
        """An epoch that ended."""
        if self._rank == 0:
            self._append("epochs.jsonl", [sample])

    def record(self, record: RankPlace) -> None:
        """This rank's record: from here on its measurement counts, whatever happens at exit."""
        atomic_write_model(self._directory / f"rank-{self._rank}.json", record)

    def failure(self, failure: RankFailure) -> None:
        """What this rank died of."""
        atomic_write_model(self._directory / f"error-rank-{self._rank}.json", failure)

    def _append(self, name: str, lines: Iterable[BaseModel]) -> None:
        text = "".join(line.model_dump_json() + "\n" for line in lines)
        with (self._directory / name).open("a", encoding="utf-8") as file:
            file.write(text)
