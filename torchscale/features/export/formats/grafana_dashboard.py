"""A Grafana dashboard for the metrics of :mod:`torchscale.report.figures.prometheus`, to be
imported as JSON.

Grafana's variables choose the data source, the runs and the models. Needs Grafana 9 or later.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from torchscale.report.figures.figure import Exported, ExportedRun
from torchscale.report.figures.prometheus import metric_name
from torchscale.report.text.figures import (
    EFFICIENCY,
    ENERGY,
    PEAK_ALLOCATED,
    STEP_MEAN,
    STEP_P95,
    THROUGHPUT,
    THROUGHPUT_PER_DEVICE,
    TOKENS,
    UTILIZATION,
)
from torchscale.report.text.quantity import Quantity
from torchscale.report.values import only_if

_SCHEMA_VERSION = 38
"""Schema version of a dashboard of Grafana 9.5; later versions migrate it when they load it."""
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS, _HEIGHT = 2, 8
_WIDTH = 24 // _COLUMNS
"""Grafana's grid is 24 wide."""
_CHOSEN = 'run=~"$run"'
_OF_MODELS = f'{_CHOSEN},model=~"$model"'
_UNITS = {"": "percentunit", "s": "s", "B": "bytes", "J": "joule"}
"""Unit of a figure → Grafana's."""
_SERIES = "{{model}} {{gpus}} GPUs {{cell}}"


@dataclass(frozen=True)
class _Query:
    expression: str
    legend: str


@dataclass(frozen=True)
class _Panel:
    """``unit`` is one of Grafana's units."""

    title: str
    unit: str
    queries: tuple[_Query, ...]


def _figure(
    name: str, legend: str = _SERIES, *, models: bool = True, interval: bool = False
) -> tuple[_Query, ...]:
    chosen = _CHOSEN
    if models:
        chosen = _OF_MODELS
    ends = ("", *only_if(interval, "_lower_95", "_upper_95"))
    return tuple(
        _Query(f"{metric_name(f'{name}{end}')}{{{chosen}}}", f"{legend}{end.replace('_', ' ')}")
        for end in ends
    )


def _panel_of(quantity: Quantity, *, interval: bool = False) -> _Panel:
    """The panel of a figure of training cells."""
    return _Panel(
        quantity.panel, _UNITS.get(quantity.unit, "none"), _figure(quantity.key, interval=interval)
    )


_PANELS = (
    _Panel(
        "Cells by state",
        "none",
        (_Query(f"count by (state) ({metric_name('cell_state')}{{{_CHOSEN}}})", "{{state}}"),),
    ),
    _Panel(
        "Reservations (flags)",
        "none",
        (_Query(f"count by (flag) ({metric_name('cell_flag')}{{{_CHOSEN}}})", "{{flag}}"),),
    ),
    _panel_of(THROUGHPUT, interval=True),
    _panel_of(THROUGHPUT_PER_DEVICE),
    _panel_of(TOKENS),
    _panel_of(EFFICIENCY),
    _panel_of(STEP_MEAN, interval=True),
    _panel_of(STEP_P95),
    _panel_of(UTILIZATION),
    _panel_of(PEAK_ALLOCATED),
    _panel_of(ENERGY),
    _Panel(
        "Bus bandwidth, the highest over all sizes",
        "Bps",
        _figure(
            "bus_bandwidth_bytes_per_second", "{{operation}} {{dtype}} {{gpus}} GPUs", models=False
        ),
    ),
    _Panel(
        "Peak rate of matrix products",
        "none",
        _figure("matmul_flops_per_second", "{{dtype}} FLOP/s", models=False),
    ),
    _Panel("Memory bandwidth", "Bps", _figure("memory_bytes_per_second", "{{cell}}", models=False)),
    _Panel(
        "Checkpoints saved and loaded",
        "Bps",
        (
            *_figure("checkpoint_save_bytes_per_second", "{{cell}} saved", models=False),
            *_figure("checkpoint_load_bytes_per_second", "{{cell}} loaded", models=False),
        ),
    ),
    _Panel(
        "Stop for a checkpoint",
        "s",
        (
            *_figure("checkpoint_save_stop_seconds", "{{cell}}", models=False),
            *_figure("checkpoint_async_save_stop_seconds", "{{cell}} asynchronous", models=False),
        ),
    ),
    _Panel(
        "Checks of the node by outcome",
        "none",
        (_Query(f"count by (status) ({metric_name('check')}{{{_CHOSEN}}})", "{{status}}"),),
    ),
)


def render(run: ExportedRun) -> Exported:
    """The dashboard, the same for every run: which runs it shows is chosen in Grafana."""
    del run
    dashboard = {
        "title": "torchscale",
        "uid": "torchscale",
        "description": "Scaling benchmarks of torchscale: figures of each cell, with flags as "
        "reservations about them.",
        "tags": ["torchscale"],
        "schemaVersion": _SCHEMA_VERSION,
        "editable": True,
        "time": {"from": "now-30d", "to": "now"},
        "refresh": "1m",
        "templating": {
            "list": [
                _data_source(),
                _variable("run", "cell_state"),
                _variable("model", "cell_info"),
            ]
        },
        "panels": [_panel(place, panel) for place, panel in enumerate(_PANELS)],
    }
    return Exported(json.dumps(dashboard, indent=1) + "\n")


def _data_source() -> dict[str, object]:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
    }


def _variable(label: str, metric: str) -> dict[str, object]:
    """The values of a label, all of them chosen at first. Cells without the label are matched by
    ``.*`` too."""
    return {
        "name": label,
        "label": label.title(),
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": f"label_values({metric_name(metric)}, {label})", "refId": label},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _panel(place: int, panel: _Panel) -> dict[str, object]:
    row, column = divmod(place, _COLUMNS)
    return {
        "id": place + 1,
        "title": panel.title,
        "type": "timeseries",
        "datasource": _SOURCE,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": _SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend,
            }
            for number, query in enumerate(panel.queries)
        ],
    }
