"""Where a machine lies among others, as a document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from torchscale.analysis.stats.series import geometric_mean
from torchscale.features.compare.peers_schema import MachinePlace, PeersExport
from torchscale.features.compare.text.result import format_level, metric_label, result_label
from torchscale.report.document import Block, Bullets, Document, Section
from torchscale.report.table import ColumnOf, table_of
from torchscale.report.values import TableValue, only_if, shortened
from torchscale.schema.run.result_set import ResultSet
from torchscale.util.units import format_bytes, format_percent, format_whole_percent
from torchscale.util.words import capped, listed, plural

TOO_FEW = "too few to tell"
_MAX_NAMED = 4
"""Machines of a sentence; the rest is counted."""


def peers_document(
    report: PeersExport, results: ResultSet, left_out: Sequence[str] = ()
) -> Document:
    """Places of a machine's figures, and which machines were not counted."""
    labels = {cell.cell.id: result_label(cell) for cell in results.cells}
    host = f" ({shortened(report.host)})" if report.host else ""
    conditions = ", ".join(f"{name} {value}" for name, value in report.conditions.items())
    blocks: list[Block] = []
    if report.places:
        blocks.append(table_of("Places", _columns(labels), report.places))
    blocks.append(Bullets(tuple(_remarks(report))))
    others = [*_left_out(report), *map(shortened, left_out)]
    return Document(
        title=f"{shortened(report.name)} among {plural(len(report.machines), 'other machine')}",
        subtitle=shortened(f"{report.name}{host}: {conditions}"),
        verdict=tuple(_answers(report, labels)),
        key_figures=(),
        sections=(
            Section("Places", "places", tuple(blocks)),
            *only_if(
                others,
                Section("Not counted", "not-counted", (Bullets(tuple(others)),)),
            ),
        ),
        footer="Figures of each machine were measured. A place is no verdict.",
    )


def _answers(report: PeersExport, labels: dict[str, str]) -> Iterator[str]:
    if not report.places:
        yield "No cell of this run was measured by another machine."
    for place in report.places[:_MAX_NAMED]:
        label = f"{labels.get(place.cell_id, place.cell_id)}, {_metric(place)}"
        yield f"{shortened(label)}: {_sentence(place)}."


def _sentence(place: MachinePlace) -> str:
    count = len(place.others)
    if not count:
        return "no other machine measured it under the same conditions"
    if place.equal == count:
        return f"as on all of {plural(count, 'other machine')}"
    better_than = f"better than {place.worse} of {plural(count, 'other machine')}"
    if place.percentile is None:
        return f"{better_than}: {TOO_FEW} a percentile"
    return f"{better_than}: percentile {_percentile(place)}"


def _columns(labels: dict[str, str]) -> tuple[ColumnOf[MachinePlace], ...]:
    return (
        ColumnOf("cell", lambda one: labels.get(one.cell_id, one.cell_id), prose=True),
        ColumnOf("metric", _metric, prose=True),
        ColumnOf("here", lambda one: TableValue(format_level(one.metric, one.value), one.value)),
        ColumnOf("spread", lambda one: one.spread, format_percent, numeric=True),
        ColumnOf("others", _range, prose=True),
        ColumnOf("better than", lambda one: f"{one.worse} of {len(one.others)}"),
        ColumnOf("percentile (95 %)", _percentile, prose=True),
    )


def _metric(place: MachinePlace) -> str:
    label = metric_label(place.metric, place.detail)
    if place.message_bytes is None:
        return label
    return f"{label} at {format_bytes(place.message_bytes)}"


def _range(place: MachinePlace) -> str:
    """``41.2 (38.0 to 44.9)``: geometric mean, the worst and the best."""
    if not place.others:
        return "–"
    worst, best = place.others[0], place.others[-1]
    mean = geometric_mean(place.others)
    texts = [format_level(place.metric, value) for value in (mean, worst, best)]
    return f"{texts[0]} ({texts[1]} to {texts[2]})"


def _percentile(place: MachinePlace) -> str:
    """``35 (21 to 52)``, or why there is none."""
    if place.interval is None:
        return "–"
    if place.percentile is None:
        return TOO_FEW
    low, high = (format_whole_percent(end).removesuffix(" %") for end in place.interval)
    return f"{format_whole_percent(place.percentile).removesuffix(' %')} ({low} to {high})"


def _remarks(report: PeersExport) -> Iterator[str]:
    yield (
        "Percentile: the share of machines that are worse, with its exact binomial interval, which "
        "takes the others as a sample of machines like this one. The noise of the launches is not in "
        "it: compare the spread with the range of the others."
    )
    if any(place.percentile is None and place.others for place in report.places):
        yield f"{TOO_FEW.capitalize()}: the interval is wider than half of all machines."
    if report.hosts < len(report.machines):
        yield (
            f"The {len(report.machines)} results are of {plural(report.hosts, 'host')}: the interval "
            "takes each as a machine of its own."
        )


def _left_out(report: PeersExport) -> Iterator[str]:
    """A sentence for each condition that differs, with the machines."""
    by_condition: dict[tuple[str, str, str], Counter[str]] = {}
    for place in report.places:
        for one in place.left_out:
            key = (one.condition, one.there, one.here)
            by_condition.setdefault(key, Counter())[one.name] += 1
    for (condition, there, here), names in by_condition.items():
        machines = listed(capped([shortened(name) for name in names], _MAX_NAMED))
        yield (
            f"{machines}: {condition} {shortened(there) or 'not recorded'} "
            f"(here {shortened(here) or 'not recorded'})."
        )
