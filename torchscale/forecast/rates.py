"""Units of throughput in tables: rates of samples, rates and times of steps, and neither."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from torchscale.errors import UsageError
from torchscale.util.text import strip_control

_GPU = r"(?:gpu|device|chip|accelerator|rank)s?"
_PER_GPU = re.compile(rf"\s*(?:/|\bper\b)\s*{_GPU}\b")
_SECOND = r"(?:s|secs?|seconds?)"
_STEP = (
    r"(?:(?:train|training|global|optimizer|optim|mini|micro|model|avg|average|mean|median)[ -]?)*"
    r"(?:its?|iters?|iterations?|steps?|batch(?:es)?|minibatch(?:es)?|updates?)"
)
_PER = r"(?:\s*(?:/|\bper\b)\s*|\s+)"
"""``it/s``, ``steps per second``, and ``steps s`` of a column ``steps_s``."""
_INVERSE = re.compile(r"[\s·*]*\bs(?:\^?\{?-1\}?|⁻¹)$")
_STEP_RATE = re.compile(rf"{_STEP}(?:{_PER}{_SECOND})?")
_STEP_TIME = re.compile(rf"(?P<scale>{_SECOND}|ms|msecs?|milli ?seconds?|us|[µμ]s){_PER}{_STEP}")
_NAMED_STEP_TIME = re.compile(
    rf"(?:{_STEP}\s+(?:time|duration|latency|seconds)|time{_PER}{_STEP})"
    rf"(?:\s+\(?(?P<scale>{_SECOND}|ms)\)?)?"
)
_SAMPLE_RATE = re.compile(
    r"(?:(?:train|training|global|total)[ -]?)?"
    r"(?:samples?|images?|imgs?|tokens?|toks?|sequences?|seqs?|examples?|sentences?|words?|frames?|"
    rf"items?|inputs?|records?|videos?|graphs?|molecules?|nodes?){_PER}{_SECOND}"
)
_OTHER = re.compile(
    r"^(?:[mµμun]?s|(?:milli|micro)?sec(?:ond)?s?|min(?:ute)?s?|hr?s?|hours?)\b"
    r"|(?:/|\bper\b)\s*(?:ms|msec|millisecond|min(?:ute)?|hr?|hour|day)s?\b"
    rf"|(?:/|\bper\b)\s*{_STEP}$|^{_STEP}\s*(?:/|\bper\b)"
)
"""Times, rates of another time than a second, and what a step holds."""
_THROUGHPUT = re.compile(r"(?:throughput|speed|rate)[\s_:,]*[\[(]?(?P<unit>[^\])]+)[\])]?")
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


class Kind(Enum):
    """What a unit measures."""

    SAMPLES = "a rate of samples, tokens or what else a user counts"
    STEPS = "a rate of steps"
    STEP_TIME = "a time of a step"
    OTHER = "neither"


@dataclass(frozen=True)
class Unit:
    """A unit of throughput.

    Attributes:
        text: As it was written, without ``per GPU``.
        kind: What it measures.
        per_gpu: Whether it is of one GPU.
        seconds: Of a time of a step: how long one of the unit is; 0 where it is not said.
    """

    text: str
    kind: Kind
    per_gpu: bool = False
    seconds: float = 1.0


@dataclass(frozen=True)
class Rate:
    """A rate of samples of all GPUs.

    Attributes:
        value: Per second.
        unit: Its unit; empty where none is given.
        batch: What a rate of steps was multiplied by, as a sentence names it; else empty.
    """

    value: float
    unit: str
    batch: str = ""


def parse_unit(text: str) -> Unit:
    """What a unit measures: ``it/s``, ``steps_per_second``, ``s/it``, ``images/sec/GPU`` …"""
    folded = _folded(text)
    per_gpu = _PER_GPU.search(folded)
    shown = text.strip()
    if per_gpu is not None:
        folded = _folded(folded[: per_gpu.start()] + folded[per_gpu.end() :])
        written = _PER_GPU.search(shown.casefold())
        if written is not None:
            shown = shown[: written.start()] + shown[written.end() :]
    for pattern, kind in ((_STEP_TIME, Kind.STEP_TIME), (_NAMED_STEP_TIME, Kind.STEP_TIME)):
        match = pattern.fullmatch(folded)
        if match is not None:
            return Unit(shown, kind, per_gpu is not None, _seconds(match["scale"]))
    kind = Kind.SAMPLES
    if _STEP_RATE.fullmatch(folded):
        kind = Kind.STEPS
    elif _OTHER.search(folded):
        kind = Kind.OTHER
    return Unit(shown, kind, per_gpu is not None)


def rate_of_samples(where: str, value: float, unit: str, gpus: int, batch: Batch | None) -> Rate:
    """The rate of samples of all GPUs.

    Args:
        where: Names the line in messages.
        value: The throughput, in ``unit``.
        unit: As the table gives it.
        gpus: All GPUs.
        batch: Column and number of the samples of a step, where the line says it.

    Raises:
        UsageError: the unit is none of a rate per second, or counts steps of which nothing says how
            many samples they have.
    """
    parsed = parse_unit(unit)
    if parsed.kind is Kind.OTHER:
        raise UsageError(
            f"{where}: unit {shown(unit)}: expected a rate per second, such as samples/s or "
            "tokens/s/GPU"
        )
    if parsed.kind is Kind.SAMPLES:
        return Rate(value * gpus if parsed.per_gpu else value, parsed.text)
    if batch is None or parsed.per_gpu or not parsed.seconds:
        what = "counts steps, not samples" if parsed.kind is Kind.STEPS else "is a time of a step"
        raise UsageError(
            f"{where}: unit {shown(unit)} {what}; expected a rate per second of samples or tokens: "
            "multiply steps per second by the samples of a step of all GPUs",
            hint="or name them in a column: samples (of a step, over all GPUs) or batch_per_gpu",
        )
    name, samples = batch
    steps, of_all = value, name
    if parsed.kind is Kind.STEP_TIME:
        steps = 1 / (value * parsed.seconds)
    if _BATCHES[name]:
        samples, of_all = samples * gpus, f"{name} × gpus"
    counted = "tokens/s" if name == "tokens" else "samples/s"
    return Rate(steps * samples, counted, f"{parsed.text} counts steps: multiplied by {of_all}")


def batch_column(values: Mapping[str, str]) -> str:
    """The column that says how many samples a step has, where steps are counted and it is filled
    in; else empty."""
    if parse_unit(values["unit"]).kind not in (Kind.STEPS, Kind.STEP_TIME):
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
    candidates: dict[Kind, list[tuple[int, str]]] = {}
    for place, name in enumerate(names):
        unit = _unit_of_column(name)
        if unit:
            candidates.setdefault(parse_unit(unit).kind, []).append((place, unit))
    for kind in (Kind.SAMPLES, Kind.STEPS, Kind.STEP_TIME):
        found = candidates.get(kind, [])
        if len(found) > 1 and kind is Kind.SAMPLES:
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


def _folded(text: str) -> str:
    """Lower case, underscores and blanks alike: ``steps_per_second`` is ``steps per second``, and
    ``it s^-1`` is ``it/s``."""
    plain = _INVERSE.sub("/s", text.casefold())
    return " ".join(plain.replace("_", " ").split()).rstrip(".")


def _unit_of_column(name: str) -> str:
    """The unit in the name of a column of throughput: ``throughput (it/s)``, ``tokens_per_second``;
    empty for other columns, such as ``steps``, which may count anything."""
    named = _THROUGHPUT.fullmatch(name)
    if named is not None:
        return named["unit"].strip("_ ")
    bare = _folded(_PER_GPU.sub("", _folded(name)))
    is_time = parse_unit(bare).kind is Kind.STEP_TIME
    is_step_rate = _STEP_RATE.fullmatch(bare) and not re.fullmatch(_STEP, bare)
    if is_time or is_step_rate or _SAMPLE_RATE.fullmatch(bare):
        return name
    return ""


def _seconds(scale: str | None) -> float:
    if scale is None:
        return 0.0
    if scale.startswith(("us", "µ", "μ")):
        return 1e-6
    return 1e-3 if scale.startswith("m") else 1.0
