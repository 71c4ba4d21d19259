"""How a run compares with the one before it of the same plan."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torchscale.errors import TorchscaleError
from torchscale.features.compare.analysis.compare import compare
from torchscale.features.compare.analysis.differences import differences
from torchscale.features.compare.inputs import load_source
from torchscale.features.compare.text.verdict import format_headline
from torchscale.store.run_folder import RunFolder

_LOOKED_AT = 50
"""Folders beside a run, the newest first: each is opened, which takes about a millisecond."""


def against_previous(directory: Path) -> str:
    """The change since the newest earlier run of the same plan beside ``directory``, as a sentence.

    Empty where there is no such run, where it was measured on another device or torch, or where
    nothing is comparable.
    """
    try:
        previous = next(_earlier(directory), None)
        if previous is None:
            return ""
        before, after = load_source(str(previous)), load_source(str(directory))
        if any(difference.forbids for difference in differences([before, after])):
            return ""
        pair = compare(before, after)
        if not pair.decided_by(()):
            return ""
    except TorchscaleError:
        return ""  # a folder beside it is damaged, or is none of ours
    details = f"torchscale compare {previous} {directory}"
    return (
        f"Against the previous run of this config: {format_headline(pair, ())} Details: {details}"
    )


def _earlier(directory: Path) -> Iterator[Path]:
    """Folders of the same plan that began before, the newest first."""
    own = RunFolder.open(directory).experiment
    files = [
        (file.stat().st_mtime, file.parent)
        for file in directory.absolute().parent.glob("*/experiment.json")
    ]
    newest = [folder for _, folder in sorted(files, reverse=True)[:_LOOKED_AT]]
    found = []
    for folder in newest:
        try:
            other = RunFolder.open(folder).experiment
        except TorchscaleError:
            continue
        if other.plan_hash == own.plan_hash and other.created_at < own.created_at:
            found.append((other.created_at, folder))
    yield from (_as_typed(folder, directory) for _, folder in sorted(found, reverse=True))


def _as_typed(folder: Path, directory: Path) -> Path:
    """Path of a folder beside ``directory``, as the user wrote that."""
    return directory.parent / folder.name
