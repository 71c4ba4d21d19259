"""Why a launch hangs, or its collectives fail: what a feature that examines ranks says."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from torchscale.door import Slot
from torchscale.schema.launch.hang import Autopsy, HangCause
from torchscale.schema.profiles.finding import Confidence


class HangInspector(Protocol):
    """What a module offers that examines the ranks of a launch."""

    def inspect_hang(
        self,
        directory: Path,
        torchrun_pid: int,
        ranks: Iterable[int] | None,
        moved_seconds_ago: float | None = None,
    ) -> None:
        """Keep in ``directory`` what can be known of the ranks below torchrun while they are
        there. Takes seconds.

        Args:
            directory: Directory of the launch.
            torchrun_pid: The ranks are its descendants.
            ranks: Ranks of the launch on this machine, since processes may be gone or more;
                ``None`` for those that there are.
            moved_seconds_ago: When the last progress was, if the launch may be slow and not hang.
        """

    def hang_autopsy(self, directory: Path, world_size: int) -> Autopsy:
        """Why the launch made no progress, from what :meth:`inspect_hang` left."""

    def failure_autopsy(self, directory: Path, world_size: int) -> Autopsy | None:
        """Whether ranks failed because their collectives do not fit together; ``None`` where
        nothing says so."""


_INSPECTORS: Slot[HangInspector] = Slot("hangs")


def inspect_hang(
    directory: Path,
    torchrun_pid: int,
    ranks: Iterable[int] | None,
    moved_seconds_ago: float | None = None,
) -> None:
    """Have the ranks of a launch that makes no progress examined, as
    :meth:`HangInspector.inspect_hang`."""
    inspector = _inspector()
    if inspector is not None:
        inspector.inspect_hang(directory, torchrun_pid, ranks, moved_seconds_ago)


def hang_autopsy(directory: Path, world_size: int) -> Autopsy:
    """Why the launch made no progress."""
    inspector = _inspector()
    if inspector is None:
        return Autopsy(cause=HangCause.UNKNOWN, confidence=Confidence.LOW, summary="not examined")
    return inspector.hang_autopsy(directory, world_size)


def failure_autopsy(directory: Path, world_size: int) -> Autopsy | None:
    """Whether ranks failed because their collectives do not fit together; ``None`` where nothing
    says so."""
    inspector = _inspector()
    if inspector is None:
        return None
    return inspector.failure_autopsy(directory, world_size)


def _inspector() -> HangInspector | None:
    """The one that is offered."""
    return next((_INSPECTORS[name] for name in _INSPECTORS), None)
