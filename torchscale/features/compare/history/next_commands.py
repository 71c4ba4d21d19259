"""The lines to type at a change of level: why it is slower, and which of the packages that changed
made it so."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torchscale.features.compare.history.records import HistoryRun
from torchscale.features.compare.history.trends import ChangePoint
from torchscale.report.values import shortened

_MINUTES = len("2026-11-20T10:01")
_PLAIN_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,60}")
_NCCL_OF_CUDA = "nvidia-nccl-cu{major}"


@dataclass(frozen=True)
class RunPlaces:
    """Where runs of a history can be read again.

    Attributes:
        folders: Run folders by the name of the run, where a name has one.
        file: File of the history; empty where nothing is kept.
        names: How often each name occurs.
    """

    folders: Mapping[str, str] = field(default_factory=dict)
    file: str = ""
    names: Mapping[str, int] = field(default_factory=dict)


def next_commands(change: ChangePoint, places: RunPlaces) -> tuple[str, ...]:
    """The lines to type; none where the runs cannot be read again."""
    return (*_why(change, places), *_bisect(change))


def _why(change: ChangePoint, places: RunPlaces) -> Sequence[str]:
    runs = (change.last.run, change.first.run)
    if all(run.name in places.folders for run in runs):
        paths = " ".join(shlex.quote(shortened(places.folders[run.name])) for run in runs)
        return [f"torchscale compare --why {paths}"]
    if not places.file:
        return []
    names = " ".join(shlex.quote(shortened(_name(run, places))) for run in runs)
    return [f"torchscale compare --why {names} --history {shlex.quote(places.file)}"]


def _name(run: HistoryRun, places: RunPlaces) -> str:
    """The run's name, with its time where others have the name."""
    if places.names.get(run.name, 1) == 1:
        return run.name
    return f"{run.name}@{run.measured_at[:_MINUTES]}"


def _bisect(change: ChangePoint) -> Sequence[str]:
    """The two environments as lists of packages, where these differ."""
    sides = [_packages(change, side) for side in (0, 1)]
    if not sides[0] or len(sides[0]) != len(sides[1]):
        return []
    good, bad = (shlex.quote(",".join(side)) for side in sides)
    return [f"torchscale bisect {good} {bad} -- COMMAND"]


def _packages(change: ChangePoint, side: int) -> list[str]:
    """Requirements of the packages that differ, on one side; a version that pip would not take is
    left out."""
    values = {one.what: one.values[side] for one in change.differences}
    major = values.get("CUDA", "").partition(".")[0] or "12"
    names = {"torch": "torch", "transformers": "transformers"}
    if "torch" not in values:  # which requires its own NCCL
        names["NCCL"] = _NCCL_OF_CUDA.format(major=major)
    return [
        f"{package}=={values[what]}"
        for what, package in names.items()
        if _PLAIN_VERSION.fullmatch(values.get(what, ""))
    ]
