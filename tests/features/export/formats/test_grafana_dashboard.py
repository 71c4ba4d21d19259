"""The dashboard names only metrics and labels that we write."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from tests.features.export.formats.exposition import Sample, parse
from tests.features.export.formats.runs import CHECKS, RUN
from tests.report.test_machine import machine_summary
from torchscale.features.export.formats import grafana_dashboard
from torchscale.report.figures import prometheus
from torchscale.report.figures.figure import ExportedRun
from torchscale.report.figures.run import exported_run
from torchscale.schema.exports.training import Compute

_METRIC = re.compile(r"torchscale_\w+")


def dashboard() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(grafana_dashboard.render(ExportedRun("")).text)
    return content


def written() -> list[Sample]:
    """Samples of runs with every kind of figure: of a machine with a peak rate and an energy
    counter."""
    summary = machine_summary()
    cells = tuple(
        replace(
            cell,
            figures=replace(cell.figures, joules_per_step=2.0, tokens_per_second=10.0),
            compute=replace(cell.compute, mfu=0.4)
            if isinstance(cell.compute, Compute)
            else cell.compute,
        )
        if (cell.cell.kind == "training" and cell.figures is not None)
        else cell
        for cell in summary.in_plan_order
    )
    runs = (exported_run(replace(summary, in_plan_order=cells)), RUN, CHECKS)
    return [sample for run in runs for sample in parse(prometheus.render(run).text)]


def test_every_metric_and_label_is_one_that_is_written() -> None:
    samples = written()
    labels: dict[str, set[str]] = {}
    for sample in samples:
        labels.setdefault(sample.name, set()).update(sample.labels)
    queries = [target for panel in dashboard()["panels"] for target in panel["targets"]]
    assert len(queries) >= 15
    for query in queries:
        (metric,) = _METRIC.findall(query["expr"])
        assert metric in labels, query["expr"]
        named = set(re.findall(r'(\w+)=~"', query["expr"])) | set(
            re.findall(r"by \((\w+)\)", query["expr"])
        )
        named |= set(re.findall(r"\{\{(\w+)\}\}", query["legendFormat"]))
        assert named <= labels[metric], query
    for variable in dashboard()["templating"]["list"][1:]:
        (asked,) = re.findall(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
        assert asked[1] in labels[asked[0]]
        assert f'{asked[1]}=~"${variable["name"]}"' in "".join(query["expr"] for query in queries)


def test_every_figure_of_a_cell_has_a_panel() -> None:
    shown = set(
        _METRIC.findall(
            " ".join(
                target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]
            )
        )
    )
    ends = ("_lower_95", "_upper_95", "_info")
    names = {sample.name for sample in written() if not sample.name.endswith(ends)}
    assert names - shown == {"torchscale_step_p50_seconds", "torchscale_step_p99_seconds"}


def test_panels_have_a_place_of_their_own() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
