"""The results as a table on the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.document import TableValue, Tone, only_if, shortened
from torchscale.report.kinds import report_kind
from torchscale.report.text.figures import (
    PADDING,
    STEP_MEAN,
    THROUGHPUT,
    TOKENS,
    UTILIZATION,
    Quantity,
    efficiency_value,
    memory_quantity,
    state_value,
)
from torchscale.report.text.labels import (
    batch_label,
    panel_title,
    short_batch,
    short_title,
    variants,
)
from torchscale.report.text.measurement import flag_text
from torchscale.report.text.profile import finding_text
from torchscale.report.text.words import and_others, plural
from torchscale.schema.state import State

_STYLE = {
    Tone.PLAIN: "",
    Tone.GOOD: "green",
    Tone.CAUTION: "yellow",
    Tone.BAD: "red",
    Tone.DIM: "dim",
}
_MODEL_WIDTH = 12
"""Wide enough for a short model name; longer ones are folded into lines where the terminal is
narrow."""
_FOLDED_MODEL_WIDTH = 8
"""Where a row has two lines anyway."""
_WIDE = 100
"""Columns from which there is room for tokens/s; the line of each launch and the report have them
in any case."""
_ONE_LINE = 116
"""Columns from which intervals stand beside their values; on a narrower terminal they stand
below."""
_MAX_BOTTLENECKS = 8
"""A third of a screen, below the table of cells; the report lists all."""


def print_results(summary: RunSummary, console: Console) -> None:
    """One row per cell, then skipped cells, failed cells and the meaning of the flags."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    with_mfu = any(UTILIZATION.value(cell) is not None for cell in summary.cells)
    with_tokens = console.width >= _WIDE and any(
        TOKENS.value(cell) is not None for cell in summary.cells
    )
    with_padding = with_tokens and any(PADDING.value(cell) is not None for cell in summary.cells)
    figures = [
        THROUGHPUT,
        *only_if(with_tokens, TOKENS),
        *only_if(with_padding, PADDING),
        STEP_MEAN,
        memory_quantity(summary),
    ]
    one_line = console.width >= _ONE_LINE
    model_width = _FOLDED_MODEL_WIDTH
    if one_line:
        model_width = _MODEL_WIDTH
    table.add_column(_heading("model"), overflow="fold", min_width=model_width)
    headings = [
        "batch",
        "devices" if one_line else "n",
        *(quantity.heading for quantity in figures),
        "efficiency",
    ]
    for heading in headings:
        table.add_column(_heading(heading), justify="right", no_wrap=True)
    if with_mfu:
        table.add_column(_heading("MFU"), justify="right", no_wrap=True)
    table.add_column(_heading("state"), no_wrap=True)
    for cell in summary.cells:
        if cell.state is not State.SKIPPED:
            table.add_row(*_row(cell, figures, with_mfu=with_mfu, one_line=one_line))
    if table.row_count:
        console.print()
        console.print(table)
        console.print()
    lines = [
        *variants(cell.cell for cell in summary.cells),
        *_machine_lines(summary),
        *_bottleneck_lines(summary),
        *_pending_lines(summary),
        *_skipped_lines(summary),
        *_failed_lines(summary),
        *_flag_lines(summary),
        *_uncounted_lines(summary),
    ]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _uncounted_lines(summary: RunSummary) -> list[str]:
    """Why models have no MFU, each once."""
    reasons = {
        cell.cell.title: shortened(reason)
        for cell in summary.cells
        if (reason := summary.flops_unknown(cell))
    }
    return [f"No MFU of {title}: {reason}." for title, reason in reasons.items()]


def _machine_lines(summary: RunSummary) -> list[str]:
    """A line for each machine cell; failed ones are listed below with their reasons."""
    shown = [cell for cell in summary.machine if cell.state is State.OK]
    return [
        f"{cell.cell.title}, n={cell.cell.world_size}: {report_kind(cell.cell.kind).outcome(cell)}"
        for cell in shown
    ]


def _bottleneck_lines(summary: RunSummary) -> list[str]:
    """The costliest finding of each cell at the largest count; the report lists all."""
    diagnosed = [(cell, cell.diagnosis) for cell in summary.measured if cell.diagnosis is not None]
    largest = max((cell.cell.world_size for cell, _ in diagnosed), default=0)
    lines = [
        f"  {panel_title(cell.cell)}, {batch_label(cell.cell)}{'*' * bool(cell.flags)}: "
        + finding_text(diagnosis.findings[0])
        for cell, diagnosis in diagnosed
        if diagnosis.findings and cell.cell.world_size == largest
    ]
    if not lines:
        return []
    more = []
    if len(lines) > _MAX_BOTTLENECKS:
        more.append(f"  … and {len(lines) - _MAX_BOTTLENECKS} more in the report")
    return [f"Largest cost at {largest} devices:", *lines[:_MAX_BOTTLENECKS], *more]


def _pending_lines(summary: RunSummary) -> list[str]:
    """How much is still to run: a resumed command goes on with it."""
    states = Counter(cell.state for cell in summary.everything if cell.state.is_pending)
    lines = [
        f"partial: {plural(states[State.PARTIAL], 'cell')} with some launches done, the others "
        "still to run"
    ]
    waiting = [f"waiting: {plural(states[State.WAITING], 'cell')} not run yet"]
    return [*only_if(states[State.PARTIAL], *lines), *only_if(states[State.WAITING], *waiting)]


def _skipped_lines(summary: RunSummary) -> list[str]:
    reasons = Counter(cell.reason for cell in summary.everything if cell.state is State.SKIPPED)
    return [
        f"skipped {count} cell{'s' * (count > 1)}: {reason}" for reason, count in reasons.items()
    ]


def _failed_lines(summary: RunSummary) -> list[str]:
    fine = (State.OK, State.SKIPPED, State.PARTIAL, State.WAITING)
    reasons: dict[tuple[str, str], list[str]] = {}
    for cell in summary.everything:
        if cell.state not in fine:
            reasons.setdefault((cell.state.value, cell.reason), []).append(cell.cell.id)
    failed = []
    for (state, reason), cells in reasons.items():
        more = and_others(len(cells) - 1)
        failed.append(f"{state}: {cells[0]}{more}: {reason}")
    return failed + [f"skipped: {problem}" for problem in summary.problems]


def _flag_lines(summary: RunSummary) -> list[str]:
    flags = Counter(flag for cell in summary.cells for flag in cell.flags)
    lines = [
        f"{flag.value} ({count}): {flag_text(flag, summary.cells)}."
        for flag, count in sorted(flags.items())
    ]
    if lines:
        return ["* has a warning, or is based on a cell with one:", *lines]
    return []


def _row(
    summary: TrainingSummary, figures: Sequence[Quantity], *, with_mfu: bool, one_line: bool
) -> list[str]:
    cell, state = summary.cell, state_value(summary)
    efficiency = efficiency_value(summary)
    texts = [quantity.of(summary).text for quantity in figures]
    if not one_line:
        efficiency = efficiency._replace(text=_interval_below(efficiency.text))
        texts = [_interval_below(text) for text in texts]
    state = state._replace(
        text=state.text.removesuffix(" launches")
    )  # 80 columns; the lines below say the rest
    return [
        escape(short_title(cell)),
        short_batch(cell),
        str(cell.world_size),
        *texts,
        _styled(efficiency),
        *only_if(with_mfu, UTILIZATION.value_text(summary)),
        _styled(state) + "[yellow]*[/yellow]" * bool(summary.flags),
    ]


def _heading(text: str) -> str:
    """Two lines, at the bottom of them: rows begin at the top."""
    if " " in text:
        return text.replace(" ", "\n")
    return f"\n{text}"


def _interval_below(text: str) -> str:
    """``1,234`` and on the next line ``1,200 to 1,260``."""
    return text.replace(" (", "\n").removesuffix(")")


def _styled(value: TableValue) -> str:
    style = _STYLE[value.tone]
    if style:
        return f"[{style}]{escape(value.text)}[/{style}]"
    return escape(value.text)
