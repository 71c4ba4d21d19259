"""Recordings of both sides of a comparison: those of cells in run folders, or folders of recordings
alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from torchscale.config.choices import CompareFormat
from torchscale.door import Slot
from torchscale.errors import TraceError
from torchscale.features.compare.analysis.operators import ComparedRecording, compare_recorded
from torchscale.features.compare.analysis.pair import Pair
from torchscale.features.compare.inputs import runs_in
from torchscale.features.compare.sections.document import recordings_document
from torchscale.features.compare.text.comparison import comparison_label
from torchscale.features.compare.why_export_schema import RecordingExport
from torchscale.features.trace.analysis.operators import MeanRecordedStep
from torchscale.read.rendering import render_document

_PROFILE = re.compile(r"profile-(\d{1,6})")


class RecordedSteps(Protocol):
    """What the feature offers that reads recordings."""

    def holds_recordings(self, path: Path) -> bool:
        """Whether it is a file, or a directory with at least one recording in it."""

    def mean_recorded_step(self, path: Path) -> MeanRecordedStep:
        """The mean step of a file or of all recordings in a directory.

        Raises:
            TraceError: it cannot be read, or has no steps in it.
        """


_RECORDED: Slot[RecordedSteps] = Slot("recorded steps")


def are_recordings(sources: Sequence[str]) -> bool:
    """Whether these are two files or directories of recordings, and no runs."""
    return len(sources) == 2 and all(_is_recording(Path(source)) for source in sources)


def _is_recording(path: Path) -> bool:
    if (path / "experiment.json").exists() or runs_in(path) or path.name == "record.json":
        return False
    return (path.is_dir() or path.suffix != ".json") and _RECORDED["trace"].holds_recordings(path)


def compare_folders(before: str, after: str) -> ComparedRecording:
    """Two files or directories of recordings.

    Raises:
        TraceError: one cannot be read, or has no steps in it.
    """
    compared = compare_recorded(_read(Path(before)), _read(Path(after)))
    names = recording_names(before, after)
    return ComparedRecording(f"{names[1]} against {names[0]}", compared)


def recording_names(before: str, after: str) -> tuple[str, str]:
    """What tables call two recordings: the names of their files or directories, or their paths where
    these are the same."""
    names = Path(before).name, Path(after).name
    if names[0] == names[1] or not all(names):
        return before, after
    return names


def render_recordings(
    recording: ComparedRecording, names: tuple[str, str], kind: CompareFormat
) -> bytes:
    """The content of a file in any format but ``terminal``.

    Raises:
        ValueError: ``kind`` is ``terminal``.
    """
    if kind is CompareFormat.JSON:
        exported = RecordingExport.model_validate(recording)
        return (exported.model_dump_json(indent=1) + "\n").encode()
    return render_document(kind, recordings_document(recording, names))


def compare_cells(pair: Pair, before: str, after: str) -> tuple[ComparedRecording, ...]:
    """The newest recording of each training cell that both run folders recorded.

    Args:
        pair: The sides.
        before, after: What was given for them; only a run folder holds recordings.
    """
    found = []
    for cell in pair.cells:
        if cell.before is None or cell.after is None:
            continue
        profiles = [
            _newest(Path(source) / "cells" / side.cell.id)
            for source, side in ((before, cell.before), (after, cell.after))
        ]
        if profiles[0] is None or profiles[1] is None:
            continue
        label = comparison_label(cell)
        try:
            compared = compare_recorded(_read(profiles[0]), _read(profiles[1]))
            found.append(ComparedRecording(label, compared))
        except TraceError as error:
            found.append(ComparedRecording(label, None, error.message))
    return tuple(found)


def _newest(cell: Path) -> Path | None:
    """The directory of a cell's last recording; ``None`` where it has none."""
    numbered = [
        (int(match[1]), path)
        for path in cell.glob("profile-*")
        if (match := _PROFILE.fullmatch(path.name)) and (path / "recording.json").is_file()
    ]
    if not numbered:
        return None
    return max(numbered)[1]


def _read(path: Path) -> MeanRecordedStep:
    return _RECORDED["trace"].mean_recorded_step(path)
