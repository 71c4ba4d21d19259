"""Names of a run's devices, its period, and its cells in order, shared by all sections and
formats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchscale.analysis.kinds import AnySummary
from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.table import Column, Identity
from torchscale.report.text.labels import identity_values, panel_title
from torchscale.report.values import shortened
from torchscale.schema.cells.training import TrainingCell
from torchscale.util.words import plural


def on_cuda(summary: RunSummary) -> bool:
    """Whether the run used GPUs: by its records, or by its plan where there are none."""
    kinds = (cell.facts.device_kind for cell in summary.in_plan_order)
    kind = next((kind for kind in kinds if kind is not None), None)
    if kind is not None:
        return kind == "cuda"
    experiment = summary.experiment
    return experiment.environment.cuda_available and experiment.config.device != "cpu"


def device_noun(summary: RunSummary, count: int = 2) -> str:
    """``GPUs`` or ``CPU ranks``, by number."""
    return ("GPU" if on_cuda(summary) else "CPU rank") + "s" * (count != 1)


def nodes_of(summary: AnySummary) -> int:
    """Machines that a cell's ranks ran on; 0 where none left a record."""
    return len({node.hostname for node in summary.facts.nodes})


def run_period(summary: RunSummary) -> tuple[str, str]:
    """When its first launch began and its last ended, as ISO 8601 in UTC; both when the folder was
    made without any."""
    facts = [cell.facts for cell in summary.in_plan_order if cell.facts.started_at]
    if not facts:
        return summary.experiment.created_at, summary.experiment.created_at
    return min(one.started_at for one in facts), max(one.ended_at for one in facts)


def device_names(summary: RunSummary) -> str:
    """``8 × NVIDIA H100 80GB HBM3``, or the processor with its cores."""
    environment = summary.experiment.environment
    if on_cuda(summary) and environment.devices:
        names = sorted({shortened(device.name) for device in environment.devices})
        return f"{len(environment.devices)} × {', '.join(names)}"
    return f"{shortened(environment.cpu)}, {plural(environment.cores, 'core')}"


def identity_columns(summary: RunSummary) -> tuple[Column, ...]:
    """The columns of :func:`~torchscale.report.text.labels.identity_values`."""
    return (
        Column("model", identifies=True),
        Column("setting", optional=True, identifies=True),
        Column("batch", True, identifies=True),
        Column(
            device_noun(summary),
            True,
            aliases=("ranks", "devices", "gpus", "cpus", "count", "n", "world_size"),
            identifies=True,
        ),
    )


def panels(cells: Sequence[TrainingSummary]) -> dict[str, list[list[TrainingSummary]]]:
    """Measured cells by panel, and there by series, each in order of world size."""
    found: dict[str, dict[str, list[TrainingSummary]]] = {}
    for summary in cells:
        found.setdefault(panel_title(summary.cell), {}).setdefault(summary.cell.series, []).append(
            summary
        )
    return {
        title: [
            sorted(members, key=lambda member: member.cell.world_size)
            for members in series.values()
        ]
        for title, series in found.items()
    }


def identity_of(summary: RunSummary, cells: Iterable[TrainingCell]) -> Identity:
    """Model, setting, batch and count of the cell of each row."""
    return identity_columns(summary), [identity_values(cell) for cell in cells]
