"""What a bisection leaves in its folder: every launch, so that the same command goes on after a
kill."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from torchscale.errors import StoreError
from torchscale.schema.base import (
    Count,
    Frozen,
    Moment,
    NotNegative,
    Positive,
)
from torchscale.store.json_files import DamagedFileError, read_model
from torchscale.util.files import atomic_write_model

FILE = "bisect.json"


class LaunchEntry(Frozen):
    """One launch, in the order of all."""

    environment: Count
    """Which of the environments, from the good end."""
    state: Literal["ok", "failed", "timeout", "interrupted"]
    value: Positive | None
    """Seconds, or the number that was printed; null where it failed."""
    reason: str = ""
    seconds: NotNegative
    """Wall time."""
    started_at: Moment
    """UTC, ISO 8601."""
    is_warmup: bool = False
    """The first of an environment, which fills caches of files: it does not count."""


class BisectState(Frozen):
    """The file ``bisect.json``."""

    schema_version: Literal[2] = 2
    question: str
    """Digest of everything that decides what a launch says: another question needs another
    folder."""
    command: tuple[str, ...]
    environments: tuple[str, ...]
    launches: tuple[LaunchEntry, ...] = ()

    def with_launch(self, entry: LaunchEntry) -> BisectState:
        """With one more."""
        return self.model_copy(update={"launches": (*self.launches, entry)})

    def write(self, directory: Path) -> None:
        """Write it, whole or not at all.

        Raises:
            OutputError: it cannot be written.
        """
        atomic_write_model(directory / FILE, self)


def read_state(directory: Path, question: str) -> BisectState | None:
    """What an earlier session left; ``None`` for a new folder.

    Raises:
        StoreError: the file is damaged, or of another question.
    """
    path = directory / FILE
    if not path.exists():
        return None
    try:
        state = read_model(directory, path, BisectState)
    except DamagedFileError as error:
        raise StoreError(str(error), hint=error.hint) from error
    if state.question != question:
        raise StoreError(
            f"{directory} holds a bisection of other environments, another command or another error",
            hint="name another folder with --output-dir",
        )
    return state
