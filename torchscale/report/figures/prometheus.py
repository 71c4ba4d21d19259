"""Prometheus' text format (exposition format 0.0.4), for node_exporter's textfile collector, and
OpenMetrics 1.0.

One sample a figure and cell, its interval as metrics of their own, no timestamps: the collector
refuses them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from torchscale.report.figures.figure import Exported, ExportedRun, Figure
from torchscale.util.text import strip_control

_PREFIX = "torchscale"
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")
_INFINITE = {True: "+Inf", False: "-Inf"}


@dataclass
class _Metric:
    """A gauge and its samples: labels and value."""

    definition: str
    samples: list[tuple[Mapping[str, str], float]] = field(default_factory=list)


_Sample = tuple[str, str, Mapping[str, str], float]
"""Name, definition, labels and value."""


def render(run: ExportedRun) -> Exported:
    """The text format of Prometheus."""
    return Exported(_text(_of_run(run), escape_quotes_in_help=False))


def render_openmetrics(run: ExportedRun) -> Exported:
    """The same figures in the OpenMetrics format, which ends with a mark and escapes more."""
    text = _text(_of_run(run), escape_quotes_in_help=True)
    return Exported(f"{text}# EOF\n")


def metric_name(figure: str) -> str:
    """The name of a figure's metric."""
    return f"{_PREFIX}_{_NOT_IN_NAMES.sub('_', figure)}"


def _text(samples: Iterable[_Sample], *, escape_quotes_in_help: bool) -> str:
    lines: list[str] = []
    for name, metric in _metrics(samples).items():
        help_text = _escaped(metric.definition, quotes=escape_quotes_in_help)
        lines += [f"# HELP {name} {help_text}", f"# TYPE {name} gauge"]
        for labels, value in metric.samples:
            shown = ",".join(
                f'{label}="{_escaped(text, quotes=True)}"' for label, text in labels.items()
            )
            lines.append(f"{name}{{{shown}}} {_number(value)}")
    return "".join(f"{line}\n" for line in lines)


def _metrics(samples: Iterable[_Sample]) -> dict[str, _Metric]:
    """Name → metric: the format wants all samples of a metric together."""
    metrics: dict[str, _Metric] = {}
    for name, definition, labels, value in samples:
        metric = metrics.setdefault(metric_name(name), _Metric(definition))
        metric.samples.append((labels, value))
    return metrics


def _of_run(run: ExportedRun) -> Iterator[_Sample]:
    for name, definition, labels, value in _samples(run):
        yield name, definition, {"run": run.name, **labels}, value


def _samples(run: ExportedRun) -> Iterator[_Sample]:
    """Every sample of a run."""
    yield from _figures(run.figures, {})
    for cell in run.cells:
        labels = {"cell": cell.id, **cell.labels}
        yield (
            "cell_info",
            "Settings of a cell; always 1.",
            {**labels, "kind": cell.kind, **cell.properties},
            1,
        )
        yield "cell_state", "How a cell ended; always 1.", {**labels, "state": cell.state.value}, 1
        for flag in cell.flags:
            yield (
                "cell_flag",
                "A reservation about a cell's figures; always 1.",
                {**labels, "flag": flag},
                1,
            )
        yield from _figures(cell.figures, labels)
    for check in run.checks:
        labels = {"check": check.id, "group": check.group, "status": check.status.value}
        yield "check", "A check of the node with its outcome; always 1.", labels, 1


def _figures(figures: Iterable[Figure], labels: Mapping[str, str]) -> Iterable[_Sample]:
    for figure in figures:
        told = f"{figure.definition}."
        if figure.unit:
            told += f" In {figure.unit}."
        own = {**labels, **figure.labels}
        yield figure.name, told, own, figure.value
        if figure.bounds is not None:
            for end, value in zip(("lower", "upper"), figure.bounds, strict=True):
                yield (
                    f"{figure.name}_{end}_95",
                    f"{end.title()} end of the 95 % interval of {figure.name}.",
                    own,
                    value,
                )


def _escaped(text: str, *, quotes: bool) -> str:
    text = strip_control(text).replace("\\", "\\\\").replace("\n", "\\n")
    if quotes:
        return text.replace('"', '\\"')
    return text


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return _INFINITE[value > 0]
    if value == int(value) and abs(value) < 2**53:
        return str(int(value))
    return repr(float(value))
