"""Names of cells, devices and dates, shared by all sections and formats."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.catalog.models import model_title
from torchscale.config.strategy import strategy_label
from torchscale.report.document import Column, TableValue, shortened
from torchscale.schema.cells.training import TrainingCell
from torchscale.util.units import format_percent

_NAME_CHARACTERS = 80


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


def format_run_days(summary: RunSummary) -> str:
    """``2026-11-20``, or ``2026-11-20 to 2026-11-22``: when its launches were measured."""
    return format_days(launch.started_at for cell in summary.in_plan_order for launch in cell.facts.launches) or (
        shortened(summary.experiment.created_at[:10])
    )


def format_days(times: Iterable[str]) -> str:
    """First and last day of times in ISO 8601; empty without any."""
    days = sorted({time[:10] for time in times})
    return shortened(" to ".join(dict.fromkeys([days[0], days[-1]]))) if days else ""


def device_names(summary: RunSummary) -> str:
    """``8 × NVIDIA H100 80GB HBM3``, or the processor with its cores."""
    environment = summary.experiment.environment
    if on_cuda(summary) and environment.devices:
        names = sorted({shortened(device.name) for device in environment.devices})
        return f"{len(environment.devices)} × {', '.join(names)}"
    return f"{shortened(environment.cpu)}, {plural(environment.cores, 'core')}"


def panel_title(cell: TrainingCell) -> str:
    """Model and settings: the title of a panel of charts."""
    return f"{shortened(model_title(cell.model))}, {cell.setting}"


def batch_label(cell: TrainingCell) -> str:
    """``batch 32`` per device, or ``global batch 256``."""
    return f"batch {cell.batch_size}" if cell.scaling == "weak" else f"global batch {cell.batch_size}"


def short_title(cell: TrainingCell) -> str:
    """The model and the settings that are not at their defaults, for tables with columns for batch and count."""
    label = strategy_label(cell.strategy)
    settings = [*([cell.precision] if cell.precision != "fp32" else []), *([label] if label != "ddp" else [])]
    return shortened(" ".join([model_title(cell.model), *settings, *cell.settings]))


def short_batch(cell: TrainingCell) -> str:
    """``32`` per device, or ``256 global``."""
    return str(cell.batch_size) if cell.scaling == "weak" else f"{cell.batch_size} global"


def identity_columns(summary: RunSummary) -> tuple[Column, ...]:
    """The columns of :func:`identity_values`."""
    return Column("model"), Column("setting"), Column("batch", True), Column(device_noun(summary), True)


def identity_values(cell: TrainingCell) -> tuple[TableValue, ...]:
    """The first columns of a cell's row: model, setting, batch, count."""
    return (
        TableValue(shortened(cell.model)),
        TableValue(cell.setting),
        TableValue(short_batch(cell), cell.batch_size),
        TableValue(str(cell.world_size), cell.world_size),
    )


def cell_label(cell: TrainingCell) -> str:
    """Everything that distinguishes a cell from the others, in one line."""
    return f"{panel_title(cell)}, {batch_label(cell)}, {plural(cell.world_size, 'device')}"


def chart_name(kind: str, title: str) -> str:
    """A chart's name in the document, of letters, digits and dashes; long titles that begin alike differ in a hash."""
    name = f"{kind}-{re.sub(r'[^a-z0-9]+', '-', title.lower()).strip('-')}"
    if len(name) <= _NAME_CHARACTERS:
        return name
    return f"{name[: _NAME_CHARACTERS - 9]}-{hashlib.sha256(title.encode()).hexdigest()[:8]}"


def plural(count: int, noun: str) -> str:
    """``1 cell``, ``2 cells``, ``2 launches``."""
    ending = "" if count == 1 else "es" if noun.endswith(("ch", "s")) else "s"
    return f"{count:,} {noun}{ending}"


def format_half_width(share: float) -> str:
    """``1.2 %``; ``> 100 %`` for all half widths larger than the value itself."""
    return format_percent(share) if share <= 1 else "> 100 %"


def listed(items: Sequence[str]) -> str:
    """``a, b and c``."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""


def panels(cells: Sequence[TrainingSummary]) -> dict[str, list[list[TrainingSummary]]]:
    """Measured cells by panel, and there by series, each in order of world size."""
    found: dict[str, dict[str, list[TrainingSummary]]] = {}
    for summary in cells:
        found.setdefault(panel_title(summary.cell), {}).setdefault(summary.cell.series, []).append(summary)
    return {
        title: [sorted(members, key=lambda member: member.cell.world_size) for members in series.values()]
        for title, series in found.items()
    }


def sentence(text: str) -> str:
    """``raise the batch size`` → ``Raise the batch size.``"""
    return f"{text[:1].upper()}{text[1:]}."
