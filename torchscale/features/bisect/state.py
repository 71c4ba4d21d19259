"""What a bisection leaves in its folder: every launch, so that the same command goes on after a
kill."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from torchscale.errors import StoreError
from torchscale.schema.base import Count, Frozen, Moment, Seconds
from torchscale.store.json_files import DamagedFileError, read_model
from torchscale.util.files import atomic_write_model

FILE = "bisect.json"
LEAST_FIGURE, LARGEST_FIGURE = 1e-20, 1e20
"""Of a launch, in whatever it prints: FLOP/s of a cluster are some 1e19. The t-interval of two
launches at both bounds (e^585) is still a number."""
MOST_COUNTED = 1000
"""Launches that count: the next session weighs them again one by one, all before it with each."""
_MOST_ENTRIES = 10_000
"""With warm-ups and launches that failed."""
MOST_REASON = 2000
"""Characters."""
_MOST_LABEL = 1 << 20
"""A label may have some variables, each as long as an argument of a command can be."""

NUMBER = r"^(nan|-?inf|-?[0-9]+(\.[0-9]+)?(e[-+][0-9]+)?)$"
"""A float as Python writes it."""
Figure = Annotated[float, Field(ge=LEAST_FIGURE, le=LARGEST_FIGURE, strict=True)]


class LaunchEntry(Frozen):
    """One launch, in the order of all."""

    environment: Count
    """Which of the environments, from the good end."""
    state: Literal["ok", "failed", "timeout", "interrupted"]
    value: Figure | None
    """Seconds, or the number that was printed; null where it failed."""
    number: Annotated[str, Field(pattern=NUMBER, max_length=32)] | None = None
    """In place of the value where the question is whether a number changed: the number, of any sign,
    or ``nan``, ``inf``, ``-inf``, which JSON has no numbers for."""
    reason: str = Field("", max_length=MOST_REASON)
    seconds: Seconds
    """Wall time."""
    started_at: Moment
    """UTC, ISO 8601."""
    is_warmup: bool = False
    """The first of an environment, which fills caches of files: it does not count."""

    @model_validator(mode="after")
    def _has_what_its_state_says(self) -> LaunchEntry:
        if (self.state == "ok") is (self.value is None and self.number is None):
            have = "no value" if self.value is None else "a value"
            raise ValueError(f"a launch that is {self.state} has {have}")
        return self


class BisectState(Frozen):
    """The file ``bisect.json``."""

    schema_version: Literal[2] = 2
    question: str = Field(max_length=64)
    """Digest of everything that decides what a launch says: another question needs another
    folder."""
    command: tuple[str, ...]
    environments: tuple[Annotated[str, Field(max_length=_MOST_LABEL)], ...]
    launches: tuple[LaunchEntry, ...] = Field((), max_length=_MOST_ENTRIES)

    @model_validator(mode="after")
    def _launches_are_of_its_environments(self) -> BisectState:
        count = len(self.environments)
        beyond = next((one for one in self.launches if one.environment >= count), None)
        if beyond is not None:
            raise ValueError(f"a launch of environment {beyond.environment}, of {count} from 0 on")
        counted = sum(one.state == "ok" and not one.is_warmup for one in self.launches)
        if counted > MOST_COUNTED:
            raise ValueError(f"{counted:,} launches that count; expected {MOST_COUNTED:,} at most")
        return self

    def with_launch(self, entry: LaunchEntry) -> BisectState:
        """With one more."""
        return self.model_copy(update={"launches": (*self.launches, entry)})

    def write(self, directory: Path) -> None:
        """Write it, whole or not at all.

        Raises:
            OutputError: it cannot be written.
        """
        atomic_write_model(directory / FILE, self)


def read_state(directory: Path, question: str, environments: int) -> BisectState | None:
    """What an earlier session left; ``None`` for a new folder.

    Args:
        directory: The folder.
        question: Digest of what is asked.
        environments: How many it has.

    Raises:
        StoreError: the file is damaged, or of another question.
    """
    path = directory / FILE
    if not os.path.lexists(path):  # a link that leads nowhere is no new folder
        return None
    try:
        state = read_model(directory, path, BisectState)
    except DamagedFileError as error:
        raise error.refused() from error
    if state.question != question:
        raise StoreError(
            f"{directory} holds a bisection of other environments, another command or another error",
            hint="name another folder with --output-dir",
        )
    if len(state.environments) != environments:
        raise StoreError(
            f"{path}: has {len(state.environments)} environments; expected {environments}",
            hint=DamagedFileError.hint,
        )
    return state
