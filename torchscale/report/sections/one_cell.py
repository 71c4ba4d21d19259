"""One cell as a vertical table: what was asked, how it ended, every figure."""

from __future__ import annotations

from torchscale.analysis.kinds import AnySummary
from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.config.strategy import strategy_label
from torchscale.report.kinds import report_kind
from torchscale.report.text.cell_values import efficiency_value, memory_quantity, rates, state_value
from torchscale.report.text.figures import (
    COMPILING,
    COMPUTE,
    ENERGY,
    PADDING,
    PHASES,
    QUANTILES,
    STEP_MEAN,
    THROUGHPUT_PER_DEVICE,
    TOKENS,
    UTILIZATION,
)
from torchscale.report.text.findings import finding_text
from torchscale.report.text.labels import batch_label
from torchscale.report.text.lost_parts import LOST_PARTS
from torchscale.report.text.run_labels import device_names, device_noun
from torchscale.report.values import DASH, only_if, shortened
from torchscale.schema.cells.kinds import as_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.util.units import format_flops

_Rows = list[tuple[str, str]]


def cell_rows(summary: RunSummary, cell: AnySummary) -> _Rows:
    """Names and texts of the report of each figure; what was not measured is left out."""
    training = as_kind(cell, TrainingSummary)
    if training is None:
        rows = _machine_rows(summary, cell)
    else:
        rows = _training_rows(summary, training)
    return [(name, shortened(text)) for name, text in rows if text and text != DASH.text]


def _machine_rows(summary: RunSummary, cell: AnySummary) -> _Rows:
    count = cell.cell.world_size
    return [
        ("cell", cell.cell.id),
        ("measures", ", ".join([cell.cell.title, *cell.cell.settings])),
        (device_noun(summary), str(count)),
        ("hardware", device_names(summary)),
        ("state", cell.state.value),
        ("launches", str(cell.launches)),
        (
            "result" if cell.state.has_figures else "reason",
            report_kind(cell.cell.kind).outcome(cell),
        ),
    ]


def _training_rows(summary: RunSummary, training: TrainingSummary) -> _Rows:
    cell, diagnosis = training.cell, training.diagnosis
    if diagnosis is not None:
        findings = diagnosis.findings
    else:
        findings = ()
    quantities = (
        *rates([training]),
        THROUGHPUT_PER_DEVICE,
        TOKENS,
        PADDING,
        STEP_MEAN,
        *QUANTILES,
        *PHASES,
        COMPUTE,
        COMPILING,
        memory_quantity(summary),
    )
    return [
        ("cell", cell.id),
        ("model", cell.title),
        *only_if(cell.options_text, ("options", cell.options_text)),
        *_asked_rows(cell),
        ("batch", _batch(cell)),
        (device_noun(summary), str(cell.world_size)),
        ("settings", ", ".join(cell.settings)),
        ("hardware", device_names(summary)),
        ("state", state_value(training).text),
        ("launches", launches_text(training)),
        ("reason", training.reason),
        ("warnings", ", ".join(flag.value for flag in training.flags)),
        *((quantity.heading, quantity.of(training).text) for quantity in quantities),
        ("efficiency", efficiency_value(training).text),
        *_compute_rows(training),
        ("MFU", summary.flops_unknown(training)),
        *_lost_rows(training),
        *(("finding", finding_text(finding)) for finding in findings),
    ]


def _asked_rows(cell: TrainingCell) -> _Rows:
    """Strategy and precision; of a script its command line, and the precision where it is told."""
    if cell.script is None:
        return [("strategy", strategy_label(cell.strategy)), ("precision", cell.precision)]
    told = only_if(cell.script.knows_precision, ("precision", str(cell.precision)))
    return [(cell.script.form, cell.script.text), *told]


def _batch(cell: TrainingCell) -> str:
    if cell.batch_size is None:
        return "not known: the script is not told it ({batch_size})"
    return f"{batch_label(cell)}, {cell.global_batch_size} in all"


def launches_text(training: TrainingSummary) -> str:
    """``6``, or ``6 in 2 sessions``."""
    if training.sessions < 2:
        return str(training.launches)
    return f"{training.launches} in {training.sessions} sessions"


def _compute_rows(training: TrainingSummary) -> _Rows:
    compute = training.compute
    rows = []
    if compute is not None:
        rows.append(("FLOP/s per device", format_flops(compute.flops_per_second)))
        rows.append((UTILIZATION.heading, UTILIZATION.value_text(training)))
        rows.append(("bound by", compute.bound or ""))
    return [*rows, (ENERGY.heading, ENERGY.value_text(training))]


def _lost_rows(training: TrainingSummary) -> _Rows:
    """The parts that this device count adds to the ideal step."""
    lost = training.decomposition
    if lost is None:
        return []
    return [(part.heading, part.of(lost).text) for part in LOST_PARTS]
