"""Step times: their distribution, and the phases of a step."""

from __future__ import annotations

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.document import ChartGrid, Paragraph, ReportPart, Section
from torchscale.report.sections.charts import distribution_charts
from torchscale.report.sections.workloads import bubble_values
from torchscale.report.table import ColumnOf, table_of
from torchscale.report.text.figures import COMPILING, COMPUTE, PHASES, QUANTILES, STEP_MEAN
from torchscale.report.text.run_labels import identity_of
from torchscale.report.values import only_if
from torchscale.util.words import format_range


def step_times_section(summary: RunSummary) -> Section:
    """Step-time distributions, quantiles and phases; empty where nothing was measured."""
    charts = distribution_charts(summary)
    if not charts:
        return Section("Step times", "steps", ())
    piped = any(
        cell.figures is not None and cell.figures.bubble is not None for cell in summary.measured
    )
    compiled = any(cell.cell.compile for cell in summary.measured)
    scripted = any(cell.cell.script is not None for cell in summary.measured)
    phases = (*PHASES, *only_if(scripted, COMPUTE))
    columns: tuple[ColumnOf[TrainingSummary], ...] = (
        *(quantity.shown for quantity in (STEP_MEAN, *QUANTILES, *phases)),
        ColumnOf("bubble", lambda cell: bubble_values(cell)[0], numeric=True, shown=piped),
        ColumnOf("scheduled", lambda cell: bubble_values(cell)[1], numeric=True, shown=piped),
        *only_if(compiled, COMPILING.shown),
    )
    identity = identity_of(summary, (cell.cell for cell in summary.measured))
    note = (
        "A step lasts from the end of one optimizer step to the end of the next; with several "
        "ranks, the slowest rank counts. Quantiles and distributions are over all steps of all "
        "launches of a cell; the mean step is the one that throughput is derived from, where each "
        "launch counts once. Phases are means over ranks. Backward ends when the last gradient is "
        "computed. Exposed sync is gradient sync that does not overlap with backward, waiting for "
        "other ranks included, plus the sync of buffers; where it is –, backward includes it."
    )
    if piped:
        note += (
            " Bubble: share of the pipeline's passes in which a rank's stages are idle; scheduled: "
            "the share that the schedule implies."
        )
    if scripted:
        note += " Compute: passes and optimizer of a script of your own, which are not told apart."
    if compiled:
        note += " Compiling: time spent in torch.compile, excluded from step times."
    return Section(
        "Step times",
        "steps",
        (
            Paragraph(note),
            ChartGrid(tuple(charts), on_paper=False),
            table_of("Step times and phases", columns, summary.measured, identity),
        ),
        ReportPart.RESULTS,
        _key(summary),
    )


def _key(summary: RunSummary) -> str:
    """The range of mean steps."""
    means = [cell.figures.step_mean for cell in summary.measured if cell.figures is not None]
    return format_range(means, STEP_MEAN.text, f"{STEP_MEAN.heading} ")
