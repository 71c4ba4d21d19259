"""A reader of Prometheus' text format, as its documentation has the grammar, that refuses whatever
is not in it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_METRIC = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"'
_SAMPLE = re.compile(
    rf"({_METRIC})\{{((?:{_LABEL},?)*)\}} (NaN|[+-]Inf|[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
)
_HELP = re.compile(rf"# HELP ({_METRIC}) ((?:[^\\\n]|\\[\\n])*)")
_OPEN_HELP = re.compile(rf'# HELP ({_METRIC}) ((?:[^"\\\n]|\\[\\n"])*)')
_TYPE = re.compile(rf"# TYPE ({_METRIC}) (gauge|counter|untyped)")


@dataclass(frozen=True)
class Sample:
    """A line with a value."""

    name: str
    labels: dict[str, str]
    value: float


def parse(text: str, *, openmetrics: bool = False) -> list[Sample]:
    """Every sample.

    Raises:
        ValueError: a line is not of the grammar; a metric has no HELP or TYPE before its samples,
            or has them twice, or its samples do not stand together; a series is there twice; a
            label is there twice.
    """
    if not text.endswith("# EOF\n" if openmetrics else "\n"):
        raise ValueError("the end is missing")
    samples: list[Sample] = []
    helps: list[str] = []
    types: list[str] = []
    for line in text.removesuffix("# EOF\n" if openmetrics else "").split("\n")[:-1]:
        if match := (_OPEN_HELP if openmetrics else _HELP).fullmatch(line):
            _once(helps, match[1])
        elif match := _TYPE.fullmatch(line):
            _once(types, match[1])
        elif match := _SAMPLE.fullmatch(line):
            labels = re.findall(_LABEL, match[2])
            if len(dict(labels)) != len(labels) or match[2].endswith(","):
                raise ValueError(line)
            if not helps or not types or helps[-1] != match[1] or types[-1] != match[1]:
                raise ValueError(f"not under its HELP and TYPE: {line}")
            samples.append(
                Sample(
                    match[1], {name: _unescaped(value) for name, value in labels}, float(match[5])
                )
            )
        else:
            raise ValueError(line)
    series = [(sample.name, *sorted(sample.labels.items())) for sample in samples]
    if len(set(series)) != len(series):
        raise ValueError("a series is there twice")
    return samples


def _once(names: list[str], name: str) -> None:
    if name in names:
        raise ValueError(f"{name} is there twice")
    names.append(name)


def _unescaped(value: str) -> str:
    return re.sub(r'\\([\\"n])', lambda match: "\n" if match[1] == "n" else match[1], value)
