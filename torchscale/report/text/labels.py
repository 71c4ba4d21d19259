"""Names of cells and devices, shared by all sections and formats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchscale.analysis.kinds import AnySummary
from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.config.strategy import strategy_label
from torchscale.report.document import Column, TableValue, only_if, shortened
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


def panel_title(cell: TrainingCell) -> str:
    """Model and settings: the title of a panel of charts."""
    return f"{shortened(cell.title)}, {cell.setting}"


def batch_label(cell: TrainingCell) -> str:
    """``batch 32`` per device, or ``global batch 256``; a script that is not told it has its own."""
    if cell.batch_size is None:
        return "own batch"
    if cell.scaling == "weak":
        return f"batch {cell.batch_size}"
    return f"global batch {cell.batch_size}"


def short_title(cell: TrainingCell) -> str:
    """The model and the settings that are not at their defaults, for tables with columns for batch
    and count."""
    if cell.script is not None:
        return shortened(" ".join([cell.title, *only_if(cell.setting, cell.setting)]))
    label = strategy_label(cell.strategy)
    settings = [
        *only_if(cell.precision != "fp32", cell.precision),
        *only_if(label != "ddp", label),
    ]
    return shortened(" ".join([cell.title, *settings, *cell.settings]))


def variants(cells: Iterable[TrainingCell]) -> list[str]:
    """``decoder dm256 l2 h4: d_model=256, num_layers=2, num_heads=4`` for each name that only
    stands for its options."""
    named = {cell.model_name: cell.options_text for cell in cells if cell.options_text}
    return [
        shortened(f"{name}: {options}") for name, options in named.items() if options not in name
    ]


def short_batch(cell: TrainingCell) -> str:
    """``32`` per device, or ``256 global``; ``own`` of a script that is not told it."""
    if cell.batch_size is None:
        return "own"
    if cell.scaling == "weak":
        return str(cell.batch_size)
    return f"{cell.batch_size} global"


def identity_columns(summary: RunSummary) -> tuple[Column, ...]:
    """The columns of :func:`identity_values`."""
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


def identity_values(cell: TrainingCell) -> tuple[TableValue, ...]:
    """The first columns of a cell's row: model, setting, batch, count."""
    return (
        TableValue(shortened(cell.model_name)),
        TableValue(cell.setting),
        TableValue(short_batch(cell), cell.batch_size),
        TableValue(str(cell.world_size), cell.world_size),
    )


def cell_label(cell: TrainingCell) -> str:
    """Everything that distinguishes a cell from the others, in one line."""
    return f"{panel_title(cell)}, {batch_label(cell)}, {plural(cell.world_size, 'device')}"


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
