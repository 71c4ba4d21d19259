"""Units of throughput as people write them: what they count, and of what they are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

_SECOND = r"(?:s|secs?|seconds?)"
_OTHER_TIME = (
    r"(?:[mµμun]s|msecs?|usecs?|milli ?seconds?|micro ?seconds?|min(?:ute)?s?|hr?s?|hours?|days?|d)"
)
_CHIP = r"(?:nvidia|amd|[abhvptl]\d{1,3}[a-z]*|g[bh]\d{3}|mi\d{2,3}[a-z]*|rtx\d{4}|tpu\w*|gaudi\d?)"
_GPU = (
    r"(?:(?:device|dev|chip|accelerator|accel|rank|worker|process|proc|card|[dghnitx]pu|[dgm][cl]u|gcd)"
    rf"(?:e?s)?|{_CHIP})"
)
"""What a rank of a job has one of."""
_NODE = r"(?:node|host|machine|server|instance|box)(?:e?s)?"
_STEP = (
    r"(?:its?|itrs?|iters?|iterations?|(?:micro|sub)?steps?|"
    r"(?:mini|micro|macro|global)?batch(?:es)?|updates?|hz)"
)
SAMPLE = (
    r"(?:samples?|images?|imgs?|tokens?|toks?|sequences?|seqs?|examples?|sentences?|words?|frames?|"
    r"items?|inputs?|records?|videos?|graphs?|molecules?|nodes?)"
)
"""What is usually trained on."""
_SAMPLED_STEPS = frozenset({"env", "environment", "agent", "actor", "sim", "simulation", "time"})
"""Steps of a simulation are what is learned from, as samples are."""
_DURATIONS = frozenset({"time", "duration", "latency"})
_TOTAL = frozenset({"total", "global", "overall", "aggregate", "aggregated", "cluster", "job"})
_FILLERS = frozenset(
    {
        "a",
        "an",
        "each",
        "one",
        "every",
        "single",
        "the",
        "local",
        "compute",
        "avg",
        "average",
        "mean",
        "median",
    }
)
_ABBREVIATIONS = {"tgs": "tokens/gpu/s"}
_LONGEST = 200
"""Characters: several times those of any unit."""
_SI = r"(?:[kmgtpez]i?|kilo|mega|giga|tera|peta|exa)?"
_NO_COUNTS = (
    (rf"{_SI}(?:flops?|ops?|macs?|iops)", "counts operations, not samples"),
    (rf"{_SI}(?:b|bytes?|bits?|bps)", "counts bytes or bits, not samples"),
    (r"epochs?", "counts epochs, not samples"),
    (
        r".*%.*|percent|mfu|hfu|utili[sz]ation|efficiency|ratio|pct|fraction|speedup",
        "is a share, not a rate",
    ),
    (rf"{_SI}(?:w|watts?|j|joules?|wh)", "is power or energy, not a rate of samples"),
    (r".*[$€°].*|usd|eur|loss|accuracy|perplexity|ppl", "is no rate"),
    (r"[kmgt]hz", "is a frequency, not a rate of samples"),
    (rf"{_SECOND}|{_OTHER_TIME}|time|duration|latency|elapsed|runtime", "is a time, not a rate"),
)
"""A word of what is counted → why it is no throughput."""
_MINUS_ONE = r"(?:(?:\^|\*\*)?\s*[({]?[-−]1[)}]?|⁻¹)"
_INVERSE = re.compile(rf"[\s·⋅*×.]*\b(?P<word>[a-z]+)\s*{_MINUS_ONE}(?!\w)")
_GLUED = re.compile(rf"(?<=[a-z])per(?={_SECOND}\b|{_GPU}\b)")
_PLAIN = str.maketrans("[](){}_\"'`|⁄∕÷", "           ///")
_LEAD = re.compile(r"^[a-z ]*\b(?:throughput|speed|rate)\b[\s:=,]+(?=\S)")
_PER_FIRST = re.compile(rf"^per\s+(?P<unit>{_GPU}|{_NODE})\b\s*(?P<rest>.+)")
_ALL = re.compile(rf"(?:/|\bper\b)?\s*\b(?:all|across|over|on all)\s+(?:{_GPU}|{_NODE})\b")
_DIVIDE = re.compile(r"\s*(?:/|\bper\b)\s*")
_TIMES = re.compile(r"[·⋅*×]")
_BLANKS = re.compile(r"[\s.:,;-]+")
_PER_UNIT = re.compile(
    rf"[\s_([]*(?:/|(?<![a-z])per(?![a-z]))[\s_-]*(?:{_GPU}|{_NODE})(?![a-z0-9-])[\])]*",
    re.IGNORECASE,
)
_STEPS = rf"(?:[a-z]+ )*{_STEP}"
_PER = r"(?:\s*(?:/|\bper\b)\s*|\s+)"
_SCALE = rf"(?P<scale>{_SECOND}|ms|msecs?|milli ?seconds?|us|[µμ]s)"
_STEP_TIMES = (
    re.compile(rf"{_SCALE}{_PER}{_STEPS}"),
    re.compile(
        rf"(?:{_STEPS}\s+(?:time|duration|latency|seconds)|time{_PER}{_STEPS})"
        rf"(?:\s+(?P<scale>{_SECOND}|ms))?"
    ),
)


class UnitKind(Enum):
    """What a unit measures."""

    SAMPLES = "a rate of samples, tokens or what else a user counts"
    STEPS = "a rate of steps"
    STEP_TIME = "a time of a step"
    OTHER = "neither"


class RateScope(Enum):
    """Of what a rate is."""

    ALL = "all GPUs"
    GPU = "one GPU"
    NODE = "one node"


@dataclass(frozen=True)
class ThroughputUnit:
    """A unit of throughput.

    Attributes:
        text: As it was written, without ``per GPU`` and ``per node``.
        kind: What it measures.
        share: Of what it is.
        seconds: Of a time of a step: how long one of the unit is; 0 where it is not said.
        why: Of neither: why it is no throughput, as a sentence goes on behind the unit.
        counted: What it counts a second, in lower case; empty where no second is named.
    """

    text: str
    kind: UnitKind
    share: RateScope = RateScope.ALL
    seconds: float = 1.0
    why: str = ""
    counted: str = ""


def parse_unit(text: str) -> ThroughputUnit:
    """What a unit measures: ``it/s``, ``steps_per_second``, ``s/it``, ``images/sec/GPU`` …"""
    if len(text) > _LONGEST:
        return ThroughputUnit(text, UnitKind.OTHER, why="is a text, not a unit")
    counted, divisors = _divided(_folded(text))
    units = [unit for divisor in divisors for unit in _units_of(divisor)]
    shares = [unit for unit in units if isinstance(unit, RateScope)]
    share = shares[0] if shares else RateScope.ALL
    times = [unit for unit in units if isinstance(unit, str)]
    written = _without_share(text, counted, share)
    for pattern in _STEP_TIMES:
        match = pattern.fullmatch(_DIVIDE.sub("/", "/".join([counted, *times])))
        if match is not None:
            return ThroughputUnit(written, UnitKind.STEP_TIME, share, _seconds(match["scale"]))
    why = _why_none(counted, times, shares)
    if why:
        return ThroughputUnit(written, UnitKind.OTHER, share, why=why)
    per_second = counted if "s" in times else ""
    return ThroughputUnit(written, _kind(_words(counted)), share, counted=per_second)


def is_step(counted: str) -> bool:
    """Whether a name counts steps."""
    return bool(counted) and _kind(_words(counted)) is UnitKind.STEPS


def is_sample(counted: str) -> bool:
    """Whether a name counts what is usually trained on."""
    return any(re.fullmatch(SAMPLE, word) for word in _words(counted))


def _folded(text: str) -> str:
    """Lower case without brackets, quotes and underscores, and divided by ``/`` and ``per`` alone:
    ``[it.s^-1]`` is ``it/s``."""
    plain = _GLUED.sub(" per ", text.casefold().replace("_", " "))
    plain = _INVERSE.sub(r"/\g<word>", plain.replace("-per-", " per ").replace("per-", "per "))
    plain = " ".join(plain.translate(_PLAIN).split()).rstrip(". ")
    plain = _per_last(_LEAD.sub("", _per_last(_ALL.sub("", plain))))
    plain = _ABBREVIATIONS.get(plain, plain)
    if plain.count("/") > 1 or " per " in plain:
        plain = plain.lstrip("/ ")
    return plain


def _per_last(text: str) -> str:
    """``per gpu samples/s`` is ``samples/s/gpu``."""
    return _PER_FIRST.sub(r"\g<rest>/\g<unit>", text)


def _divided(folded: str) -> tuple[str, list[str]]:
    """What is counted, and by what it is divided; ``train/steps_per_second`` names a section."""
    parts = _without_sections(folded)
    counted, divisors = parts[0], parts[1:]
    words = counted.split()
    if not divisors and not _DURATIONS & set(words):  # steps_s, tokens_s_gpu
        places = [place for place, word in enumerate(words) if re.fullmatch(_SECOND, word)]
        if places and places[0] and (is_sample(words[0]) or _is_count(words[: places[0]])):
            return " ".join(words[: places[0]]), words[places[0] :]
    return counted, divisors


def _without_sections(folded: str) -> list[str]:
    """The unit, divided; sections of a metric's name before it are left out, but ``device``."""
    parts = _DIVIDE.split(folded)
    for place in range(1, len(parts) - 1):
        is_rate = re.fullmatch(_SECOND, parts[place + 1].partition(" ")[0])
        before = [_BLANKS.sub(" ", part) for part in parts[:place]]
        if is_rate and _is_count(_words(parts[place])) and not any(map(_is_measure, before)):
            shares = [part for part in before if re.fullmatch(f"{_GPU}|{_NODE}", part)]
            return [*parts[place:], *shares]
    return parts


def _is_count(words: Sequence[str]) -> bool:
    return any(re.fullmatch(f"{_STEP}|{SAMPLE}", word) for word in words)


def _is_measure(part: str) -> bool:
    """Whether a part is what is counted, or a time, rather than a section's name."""
    words = part.split()
    is_time = any(re.fullmatch(f"{_SECOND}|{_OTHER_TIME}", word) for word in words)
    return is_time or _is_count(words) or not words or words == ["1"]


def _words(text: str) -> list[str]:
    return [word for word in _BLANKS.split(text) if word]


def _units_of(divisor: str) -> Iterator[RateScope | str]:
    """The parts of ``s·gpu``: what a rate is of, ``s`` for a second, others as they are."""
    for factor in _TIMES.split(divisor):
        words = [word for word in _words(factor) if word not in _FILLERS]
        if not words:
            continue
        shares = [_share(word) for word in words]
        if all(shares):
            yield from {share for share in shares if share}
        elif shares[0] and len(words) == 2 and re.fullmatch(_SECOND, words[1]):  # GPU-second
            yield shares[0]
            yield "s"
        elif re.fullmatch(_SECOND, words[0]):
            yield "s"
            if any(shares) and not _TOTAL & set(words):  # tokens/s (GPU): of one, or on one?
                yield " ".join(words)
        elif not _TOTAL.issuperset(words):
            yield " ".join(words)


def _share(word: str) -> RateScope | None:
    if re.fullmatch(_GPU, word):
        return RateScope.GPU
    if re.fullmatch(_NODE, word):
        return RateScope.NODE
    return None


def _why_none(counted: str, times: Sequence[str], shares: Sequence[RateScope]) -> str:
    """Why a unit is no throughput; empty where it is one."""
    words = _words(counted)
    if not _is_count(words):
        for pattern, why in _NO_COUNTS:
            if any(re.fullmatch(pattern, word) for word in words):
                return why
    strange = [time for time in times if time != "s"]
    if strange:
        return f"is per {strange[0]!r}"
    if len(set(shares)) > 1 or times.count("s") > 1:
        return "is divided twice"
    return ""


def _kind(words: Sequence[str]) -> UnitKind:
    if any(re.fullmatch(SAMPLE, word) for word in words) or _SAMPLED_STEPS & set(words):
        return UnitKind.SAMPLES
    if any(re.fullmatch(_STEP, word) for word in words):
        return UnitKind.STEPS
    return UnitKind.SAMPLES


def _without_share(text: str, counted: str, share: RateScope) -> str:
    """A unit as it was written, without ``per GPU``."""
    plain = text.strip()
    if share is RateScope.ALL:
        return plain
    shorter = _PER_UNIT.sub("", plain, count=1)
    if shorter != plain and shorter.strip():
        return shorter.strip(" ,;:-")
    return f"{counted}/s"


def _seconds(scale: str | None) -> float:
    if scale is None:
        return 0.0
    if scale.startswith(("us", "µ", "μ")):
        return 1e-6
    return 1e-3 if scale.startswith("m") else 1.0
