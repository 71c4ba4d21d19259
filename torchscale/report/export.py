"""A run's figures for machines: CSV and JSON. Light: the sweep writes ``summary.csv`` after every launch."""

from __future__ import annotations

import csv
import io
import json

from torchscale.analysis.results import CellSummary, Figures, RunSummary
from torchscale.schema.strategy import strategy_label

Value = str | int | float | bool | None


def summary_csv(summary: RunSummary) -> str:
    """One row a cell; an empty field was not measured."""
    output = io.StringIO()
    rows = [_row(cell) for cell in summary.cells]
    writer = csv.DictWriter(output, list(rows[0]) if rows else ["cell_id"], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _csv_value(value) for key, value in row.items()})
    return output.getvalue()


def summary_json(summary: RunSummary) -> str:
    """Everything that the report shows, as JSON: the environment, and each cell with its figures."""
    experiment = summary.run.experiment
    content = {
        "schema_version": experiment.schema_version,
        "tool_version": experiment.tool_version,
        "run": summary.run.name,
        "experiment_name": experiment.config.experiment_name,
        "environment": experiment.environment.model_dump(mode="json"),
        "problems": list(summary.run.problems),
        "cells": [_cell_json(cell) for cell in summary.cells],
    }
    return json.dumps(content, indent=1, ensure_ascii=False)


def _cell_json(cell: CellSummary) -> dict[str, object]:
    figures: dict[str, object] | None = None
    if cell.figures is not None:
        figures = {
            key: value
            for key, value in vars(cell.figures).items()
            if key not in ("steps", "phases", "stop_rule", "parts", "bubble")
        }
        figures["stop_rule"] = cell.figures.stop_rule.value
        figures["phases"] = vars(cell.figures.phases)
        figures["parts"] = None if cell.figures.parts is None else vars(cell.figures.parts)
        figures["bubble"] = None if cell.figures.bubble is None else vars(cell.figures.bubble)
        figures["steps"] = cell.figures.steps.model_dump()
    efficiency = cell.efficiency
    return {
        "cell_id": cell.cell.id,
        "cell": cell.cell.model_dump(mode="json"),
        "state": cell.state.value,
        "reason": cell.reason,
        "launches": cell.launches,
        "flags": [flag.value for flag in cell.flags],
        "figures": figures,
        "decomposition": None if cell.decomposition is None else vars(cell.decomposition),
        "diagnosis": None if cell.diagnosis is None else cell.diagnosis.model_dump(mode="json"),
        "efficiency": None
        if efficiency is None
        else {
            "value": efficiency.value,
            "baseline_world_size": efficiency.baseline_world_size,
            "interval": efficiency.interval,
            "flags": [flag.value for flag in efficiency.flags],
        },
    }


def _row(summary: CellSummary) -> dict[str, Value]:
    cell, efficiency = summary.cell, summary.efficiency
    return {
        "cell_id": cell.id,
        "model": cell.model,
        "batch_size": cell.batch_size,
        "gpu_count": cell.world_size,
        "precision": cell.precision,
        "strategy": strategy_label(cell.strategy),
        "state": summary.state.value,
        **_speed_columns(summary.figures),
        "efficiency": None if efficiency is None else efficiency.value,
        "peak_memory_bytes": None if summary.figures is None else summary.figures.peak_memory_bytes,
        "flags": " ".join(flag.value for flag in summary.flags),
        "reason": summary.reason,
        "scaling": cell.scaling,
        "global_batch_size": cell.global_batch_size,
        "optimizer": cell.optimizer,
        "channels_last": cell.channels_last,
        "compile": cell.compile,
        "fused": cell.fused,
        "gradient_accumulation": cell.gradient_accumulation,
        "activation_checkpointing": cell.activation_checkpointing,
        "data_source": cell.data_source,
        "launches": summary.launches,
        "half_width": None if summary.figures is None else summary.figures.half_width,
        "run_half_width": None if summary.figures is None else summary.figures.run_half_width,
        "efficiency_flags": "" if efficiency is None else " ".join(flag.value for flag in efficiency.flags),
    }


def _speed_columns(figures: Figures | None) -> dict[str, Value]:
    names = (
        "samples_per_second",
        "samples_per_second_per_gpu",
        "tokens_per_second",
        "step_time_p50_ms",
        "step_time_p95_ms",
        "step_time_p99_ms",
    )
    if figures is None:
        return dict.fromkeys(names)
    values = (
        figures.samples_per_second,
        figures.samples_per_second_per_device,
        figures.tokens_per_second,
        figures.step_p50 * 1e3,
        figures.step_p95 * 1e3,
        figures.step_p99 * 1e3,
    )
    return dict(zip(names, values, strict=True))


def _csv_value(value: Value) -> Value:
    """Spreadsheets run text that starts like a formula; an apostrophe stops them."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value
