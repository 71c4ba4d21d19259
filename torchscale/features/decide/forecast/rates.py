"""Throughput in tables, as a rate of samples of all GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchscale.errors import UsageError
from torchscale.features.decide.forecast.units import (
    SAMPLE,
    RateScope,
    UnitKind,
    is_step,
    parse_unit,
)
from torchscale.util.text import strip_control

_THROUGHPUT = re.compile(r"(?:throughput|speed|rate)[\s_:,]*[\[(]?(?P<unit>[^\])]+)[\])]?")
_TRAINED = re.compile(rf"(?:(?:train|training|global|total)[ -]?)?{SAMPLE}")
_EVALUATED = re.compile(r"(?<![a-z])(?:eval|evaluation|val|validation|test)(?![a-z])")
_EXPECTED = (
    "expected a rate per second, such as samples/s, images/s or tokens/s, of all GPUs or of one "
    "(tokens/s/GPU)"
)
_SHOWN = 40
"""Characters of a wrong value in a message."""
_BATCHES: Mapping[str, bool] = {
    "samples": False,
    "tokens": False,
    "global_batch": False,
    "global_batch_size": False,
    "batch_per_gpu": True,
    "batch_size_per_gpu": True,
    "per_gpu_batch_size": True,
    "per_device_batch_size": True,
    "per_device_train_batch_size": True,
    "local_batch_size": True,
}
"""Column that says how many samples a step has, by which a rate of steps is multiplied → whether
they are those of one GPU."""


Batch = tuple[str, float]
"""Column and number of the samples of a step."""


@dataclass(frozen=True)
class Rate:
    """A rate of samples of all GPUs.

    Attributes:
        value: Per second.
        unit: Its unit; empty where none is given.
        multiplied: By what it was multiplied, and why, as a sentence says it; else empty.
    """

    value: float
    unit: str
    multiplied: str = ""


def rate_of_samples(
    where: str, value: float, unit: str, batch: Batch | None, *, gpus: int, nodes: int | None
) -> Rate:
    """The rate of samples of all GPUs.

    Args:
        where: Names the line in messages.
        value: The throughput, in ``unit``.
        unit: As the table gives it.
        batch: Column and number of the samples of a step, where the line says it.
        gpus: All GPUs.
        nodes: All nodes, where the line says it.

    Raises:
        UsageError: the unit is none of a rate per second, is of a node where nothing says how many
            there are, or counts steps of which nothing says how many samples they have.
    """
    parsed = parse_unit(unit)
    if parsed.kind is UnitKind.OTHER:
        raise UsageError(f"{where}: unit {shown(unit)}: {_EXPECTED}; it {parsed.why}")
    if parsed.kind is not UnitKind.SAMPLES:
        return _rate_of_steps(where, value, unit, batch, gpus)
    if parsed.share is RateScope.ALL:
        return Rate(value, parsed.text)
    shares, column = gpus, "gpus"
    if parsed.share is RateScope.NODE:
        if nodes is None:
            raise UsageError(
                f"{where}: unit {shown(unit)}: {_EXPECTED}; it is of one node",
                hint="or say in a column nodes how many there are",
            )
        shares, column = nodes, "nodes"
    said = f"{shown(unit)} is of {parsed.share.value}: multiplied by {column}"
    return Rate(value * shares, parsed.text, said)


def _rate_of_steps(where: str, value: float, unit: str, batch: Batch | None, gpus: int) -> Rate:
    parsed = parse_unit(unit)
    if batch is None or parsed.share is not RateScope.ALL or not parsed.seconds:
        what = (
            "counts steps, not samples" if parsed.kind is UnitKind.STEPS else "is a time of a step"
        )
        raise UsageError(
            f"{where}: unit {shown(unit)} {what}; expected a rate per second of samples or tokens: "
            "multiply steps per second by the samples of a step of all GPUs",
            hint="or name them in a column: samples (of a step, over all GPUs) or batch_per_gpu",
        )
    name, samples = batch
    steps, of_all = value, name
    if parsed.kind is UnitKind.STEP_TIME:
        steps = 1 / (value * parsed.seconds)
    if _BATCHES[name]:
        samples, of_all = samples * gpus, f"{name} × gpus"
    counted = "tokens/s" if name == "tokens" else "samples/s"
    return Rate(steps * samples, counted, f"{parsed.text} counts steps: multiplied by {of_all}")


def batch_column(values: Mapping[str, str]) -> str:
    """The column that says how many samples a step has, where steps are counted and it is filled
    in; else empty."""
    if parse_unit(values["unit"]).kind not in (UnitKind.STEPS, UnitKind.STEP_TIME):
        return ""
    return next((name for name in _BATCHES if values.get(name)), "")


def throughput_column(path: str, names: Sequence[str]) -> tuple[int, str] | None:
    """Which column holds the throughput, and the unit that its name gives; ``None`` where none
    does.

    A rate of samples goes before a rate of steps.

    Args:
        path: Names the table in messages.
        names: Of its columns, in lower case.

    Raises:
        UsageError: several may be meant.
    """
    named = [place for place, name in enumerate(names) if name == "throughput"]
    if named:
        return named[0], ""
    candidates: dict[UnitKind, list[tuple[int, str]]] = {}
    for place, name in enumerate(names):
        unit = _unit_of_column(name)
        if unit:
            candidates.setdefault(parse_unit(unit).kind, []).append((place, unit))
    for kind in (UnitKind.SAMPLES, UnitKind.STEPS, UnitKind.STEP_TIME):
        found = candidates.get(kind, [])
        if len(found) > 1 and kind is UnitKind.SAMPLES:
            several = " and ".join(shown(names[place]) for place, _ in found[:2])
            raise UsageError(
                f"{path}: several columns of throughput: {several}",
                hint="call one of them throughput",
            )
        if found:
            return found[0]
    return None


def shown(text: str) -> str:
    """A wrong value, cut to fit a message."""
    plain = strip_control(text)
    return repr(plain if len(plain) <= _SHOWN else plain[: _SHOWN - 1] + "…")


def _unit_of_column(name: str) -> str:
    """The unit in the name of a column of throughput: ``throughput (it/s)``, ``tokens_per_second``;
    empty for other columns, such as ``steps``, which may count anything."""
    named = _THROUGHPUT.fullmatch(name)
    if named is not None:
        return named["unit"].strip("_ ")
    unit = parse_unit(name)
    is_rate = _TRAINED.fullmatch(unit.counted) or is_step(unit.counted)
    if (is_rate and not _EVALUATED.search(name)) or unit.kind is UnitKind.STEP_TIME:
        return name
    return ""
