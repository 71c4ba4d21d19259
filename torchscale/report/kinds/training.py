"""How training cells are shown."""

from __future__ import annotations

from torchscale.analysis.summary.run import summarize_any
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.config.strategy import strategy_label
from torchscale.report.figures.figure import Figure
from torchscale.report.figures.training import training_figures
from torchscale.report.formats.columns import ColumnValue, cell_row
from torchscale.report.text.cell_values import throughput_text
from torchscale.report.text.labels import batch_label, model_label
from torchscale.report.values import only_if
from torchscale.schema.cells.kinds import of_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.run.content import CellRun
from torchscale.schema.run.experiment_file import PlannedCell


def launch_label(cell: TrainingCell, devices: str, launch: int, repeats: int) -> str:
    """``ResNet-50, 4 GPUs, batch 128, bf16, launch 2 of 3``."""
    parts = [batch_label(cell)]
    if cell.script is not None:
        parts.append(cell.setting)
    else:
        label = strategy_label(cell.strategy)
        parts += only_if(cell.precision != "fp32", cell.precision)
        parts += [*only_if(label != "ddp", label), *cell.settings]
    if repeats > 1:
        parts.append(f"launch {launch + 1} of {repeats}")
    return ", ".join([model_label(cell), devices, *parts])


def outcome(summary: TrainingSummary, record: LaunchRecord | None = None) -> str:
    """``1,450 samples/s (1,440 to 1,460), 220 ms/step`` with the names of its flags: of the launch
    alone where one is given."""
    if record is not None:
        alone = CellRun(PlannedCell(cell=summary.cell), (record,))
        (summary,) = of_kind((summarize_any(alone),), TrainingSummary)
    if summary.figures is None:
        return f"{summary.state.value}: {summary.reason}"
    text = throughput_text(summary)
    if summary.flags:
        text += f"  warning: {', '.join(flag.value for flag in summary.flags)}"
    return text


def csv_row(summary: TrainingSummary) -> dict[str, ColumnValue]:
    """The only kind with a value for every column."""
    return cell_row(summary)


def figures(summary: TrainingSummary) -> tuple[Figure, ...]:
    """Throughput, step times, efficiency, memory, MFU, energy: what of them was measured."""
    return training_figures(summary)
