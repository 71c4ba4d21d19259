"""The files that a rank writes into its launch directory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from time import monotonic

from pydantic import BaseModel

from torchscale.schema.launch.exchanges import ExchangeBatch, exchanges_file
from torchscale.schema.launch.failure import RankFailure
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.steps import EpochSample, StepSample
from torchscale.schema.node.environment import RankIdentity
from torchscale.util.files import atomic_write_model

_PROGRESS_SECONDS = 0.5
"""Seconds between two progress lines: the live view need not be faster, and writing must not slow
the steps."""


class RankFiles:
    """Writes the files of one rank into ``directory``. Epochs, and progress but for that of
    :meth:`alive`, are written by rank 0 only."""

    def __init__(self, directory: Path, rank: int) -> None:
        self.directory = directory
        self._rank = rank
        self._last_progress: tuple[str, float] = ("", 0.0)

    def progress(self, progress: Progress) -> None:
        """Append a progress line for the live view: at once for a new phase, else at most two per
        second."""
        phase, when = self._last_progress
        now = monotonic()
        if self._rank == 0 and (progress.phase != phase or now - when >= _PROGRESS_SECONDS):
            self._last_progress = (progress.phase, now)
            self._append("progress.jsonl", [progress])

    def alive(self, progress: Progress) -> None:
        """Append a progress line, whichever rank this is."""
        self._append("progress.jsonl", [progress])

    def steps(self, samples: Iterable[StepSample]) -> None:
        """Append measured steps of this rank."""
        self._append(f"steps-rank-{self._rank}.jsonl", samples)

    def exchanges(self, batch: ExchangeBatch) -> None:
        """Append the collectives of a batch of measured steps."""
        self._append(exchanges_file(self._rank), [batch])

    def epoch(self, sample: EpochSample) -> None:
        """Append an epoch that has ended."""
        if self._rank == 0:
            self._append("epochs.jsonl", [sample])

    def record(self, record: RankIdentity) -> None:
        """Write this rank's record: once it is there the measurement counts, whatever happens at
        exit."""
        atomic_write_model(self.directory / f"rank-{self._rank}.json", record, durable=False)

    def failure(self, failure: RankFailure) -> None:
        """Write the failure that ended this rank."""
        atomic_write_model(self.directory / f"error-rank-{self._rank}.json", failure, durable=False)

    def _append(self, name: str, lines: Iterable[BaseModel]) -> None:
        text = "".join(line.model_dump_json() + "\n" for line in lines)
        with (self.directory / name).open("a", encoding="utf-8") as file:
            file.write(text)
