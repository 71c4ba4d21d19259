"""A run's figures for machines: CSV and JSON. Light: the sweep writes ``summary.csv`` after every launch."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict

from torchscale.analysis.ceilings import CeilingSummary
from torchscale.analysis.results import CellSummary, Figures, RunSummary
from torchscale.report.ceiling_export import ceiling_content
from torchscale.schema.strategy import strategy_label

Value = str | int | float | bool | None


def summary_csv(summary: RunSummary) -> str:
    """One row a cell; an empty field was not measured."""
    output = io.StringIO()
    rows = [cell_row(cell) if isinstance(cell, CellSummary) else _machine_row(cell) for cell in summary.in_plan_order]
    names = max(rows, key=len, default={"cell_id": None})  # a training cell's has every column
    writer = csv.DictWriter(output, list(names), restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _csv_value(value) for key, value in row.items()})
    return output.getvalue()


def summary_json(summary: RunSummary) -> str:
    """Everything that the report shows, as JSON: the environment, and each cell with its figures."""
    experiment = summary.experiment
    content = {
        "schema_version": experiment.schema_version,
        "tool_version": experiment.tool_version,
        "run": summary.name,
        "experiment_name": experiment.config.experiment_name,
        "environment": experiment.environment.model_dump(mode="json"),
        "sittings": [
            {**one.sitting.model_dump(mode="json"), "launches": one.launches, "changed": list(one.changed)}
            for one in summary.sittings
        ],
        "problems": list(summary.problems),
        "cells": [_cell_json(cell) for cell in summary.cells],
        "machine": [ceiling_content(one) for one in summary.machine],
    }
    return json.dumps(content, indent=1, ensure_ascii=False)


def _cell_json(cell: CellSummary) -> dict[str, object]:
    figures: dict[str, object] | None = None
    if cell.figures is not None:
        figures = {
            key: value
            for key, value in vars(cell.figures).items()
            if key not in ("steps", "phases", "stop_rule", "parts", "bubble", "flops", "telemetry")
        }
        figures["stop_rule"] = cell.figures.stop_rule.value
        figures["phases"] = vars(cell.figures.phases)
        figures["parts"] = None if cell.figures.parts is None else vars(cell.figures.parts)
        figures["bubble"] = None if cell.figures.bubble is None else vars(cell.figures.bubble)
        for name in ("flops", "telemetry"):
            found = getattr(cell.figures, name)
            figures[name] = None if found is None else found.model_dump(mode="json")
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
        "compute": None if cell.compute is None else asdict(cell.compute),
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


def _machine_row(summary: CeilingSummary) -> dict[str, Value]:
    """A cell that measured the machine: how it ended; its figures are in the JSON."""
    return {
        "cell_id": summary.cell.id,
        "gpu_count": summary.cell.world_size,
        "state": summary.state.value,
        "reason": summary.reason,
        "launches": summary.launches,
        "kind": summary.cell.kind,
    }


def cell_row(summary: CellSummary) -> dict[str, Value]:
    """The columns of ``summary.csv`` for a training cell."""
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
        "kind": cell.kind,
        **_ceiling_columns(summary),
    }


def _ceiling_columns(summary: CellSummary) -> dict[str, Value]:
    """FLOP/s and what was read beside the ranks; GPUs' are means over GPUs."""
    compute, figures = summary.compute, summary.figures
    telemetry = None if figures is None else figures.telemetry
    gpus = () if telemetry is None else telemetry.gpus

    def mean(name: str) -> float | None:
        known = [value for gpu in gpus if (value := getattr(gpu, name)) is not None]
        return sum(known) / len(known) if known else None

    return {
        "flops_per_second_per_gpu": None if compute is None else compute.flops_per_second,
        "mfu": None if compute is None else compute.mfu,
        "bound": None if compute is None else compute.bound,
        "joules_per_step": None if figures is None else figures.joules_per_step,
        "samples_per_joule": None if figures is None else figures.samples_per_joule,
        "gpu_busy": mean("busy"),
        "gpu_power_watts": mean("power_watts"),
        "gpu_sm_clock_hertz": mean("sm_clock_hertz"),
        "cpu_busy": None if telemetry is None else telemetry.cpu_busy,
        "host_memory_peak_bytes": None if telemetry is None else telemetry.memory_used_peak_bytes,
        "sent_bytes_per_second": None if telemetry is None else telemetry.sent_bytes_per_second,
        "received_bytes_per_second": None if telemetry is None else telemetry.received_bytes_per_second,
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
