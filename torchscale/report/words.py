"""Words that the report's parts share."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

from torchscale.analysis.results import CellSummary, RunSummary
from torchscale.catalog.models import model_title
from torchscale.report.document import Column, Value, shortened
from torchscale.schema.cell import Cell
from torchscale.schema.strategy import strategy_label
from torchscale.units import format_percent

_NAME_CHARACTERS = 80


def on_cuda(summary: RunSummary) -> bool:
    """Whether the run used GPUs: as its records say, else as its plan would."""
    kinds = (one.facts.device_kind for one in summary.in_plan_order)
    kind = next((kind for kind in kinds if kind is not None), None)
    if kind is not None:
        return kind == "cuda"
    experiment = summary.experiment
    return experiment.environment.cuda_available and experiment.config.device != "cpu"


def device_noun(summary: RunSummary, count: int = 2) -> str:
    """``GPUs`` or ``CPU ranks``, by number."""
    return ("GPU" if on_cuda(summary) else "CPU rank") + "s" * (count != 1)


def days_words(summary: RunSummary) -> str:
    """``2026-11-20``, or ``2026-11-20 to 2026-11-22``: when its launches were measured."""
    return between_days(launch.started_at for one in summary.in_plan_order for launch in one.facts.launches) or (
        shortened(summary.experiment.created_at[:10])
    )


def between_days(times: Iterable[str]) -> str:
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


def panel_title(cell: Cell) -> str:
    """Model and settings: what one panel of charts is about."""
    return f"{shortened(model_title(cell.model))}, {cell.setting}"


def batch_words(cell: Cell) -> str:
    """``batch 32`` per device, or ``global batch 256``."""
    return f"batch {cell.batch_size}" if cell.scaling == "weak" else f"global batch {cell.batch_size}"


def short_title(cell: Cell) -> str:
    """The model and what of its setting is not the default, for tables that have columns for batch and count."""
    label = strategy_label(cell.strategy)
    settings = [*([cell.precision] if cell.precision != "fp32" else []), *([label] if label != "ddp" else [])]
    return shortened(" ".join([model_title(cell.model), *settings, *cell.settings]))


def short_batch(cell: Cell) -> str:
    """``32`` per device, or ``256 global``."""
    return str(cell.batch_size) if cell.scaling == "weak" else f"{cell.batch_size} global"


def identity_columns(summary: RunSummary) -> tuple[Column, ...]:
    """Of :func:`identity_values`."""
    return Column("model"), Column("setting"), Column("batch", True), Column(device_noun(summary), True)


def identity_values(cell: Cell) -> tuple[Value, ...]:
    """What a table says of a cell first: model, setting, batch, count."""
    return (
        Value(shortened(cell.model)),
        Value(cell.setting),
        Value(short_batch(cell), cell.batch_size),
        Value(str(cell.world_size), cell.world_size),
    )


def cell_words(cell: Cell) -> str:
    """All that tells a cell from the others, in a line."""
    return f"{panel_title(cell)}, {batch_words(cell)}, {plural(cell.world_size, 'device')}"


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


def half_width_words(share: float) -> str:
    """``1.2 %``; beyond the value itself its size says nothing more."""
    return format_percent(share) if share <= 1 else "> 100 %"


def listed(items: Sequence[str]) -> str:
    """``a, b and c``."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""


def panels(cells: Sequence[CellSummary]) -> dict[str, list[list[CellSummary]]]:
    """Measured cells by panel, and there by series, each in order of world size."""
    found: dict[str, dict[str, list[CellSummary]]] = {}
    for summary in cells:
        found.setdefault(panel_title(summary.cell), {}).setdefault(summary.cell.series, []).append(summary)
    return {
        title: [sorted(members, key=lambda member: member.cell.world_size) for members in series.values()]
        for title, series in found.items()
    }
