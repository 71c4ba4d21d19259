"""Names of cells and devices, shared by all sections and formats."""

from __future__ import annotations

from collections.abc import Iterable

from torchscale.config.strategy import strategy_label
from torchscale.report.values import TableValue, only_if, shortened
from torchscale.schema.cells.training import TrainingCell
from torchscale.util.words import plural


def model_label(cell: TrainingCell) -> str:
    """The model as people call it; a script with the arguments that tell it from others."""
    return shortened(" ".join([cell.title, *only_if(cell.apart, cell.apart)]))


def panel_title(cell: TrainingCell) -> str:
    """Model and settings: the title of a panel of charts."""
    return f"{model_label(cell)}, {cell.setting}"


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
        return shortened(" ".join([model_label(cell), *only_if(cell.setting, cell.setting)]))
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


def identity_values(cell: TrainingCell) -> tuple[TableValue, ...]:
    """The first columns of a cell's row: model, setting, batch, count."""
    return (
        TableValue(shortened(" ".join([cell.model_name, *only_if(cell.apart, cell.apart)]))),
        TableValue(cell.setting),
        TableValue(short_batch(cell), cell.batch_size),
        TableValue(str(cell.world_size), cell.world_size),
    )


def cell_label(cell: TrainingCell) -> str:
    """Everything that distinguishes a cell from the others, in one line."""
    return f"{panel_title(cell)}, {batch_label(cell)}, {plural(cell.world_size, 'device')}"
