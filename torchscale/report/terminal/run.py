"""A run on the terminal: the first screen of its report and the table of cells."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from torchscale.analysis.summary.run import RunSummary
from torchscale.report.build import build_document
from torchscale.report.document import Block, Bullets, Document, Failure, Overview, Section
from torchscale.report.formats.console import print_document
from torchscale.report.kinds import report_kind
from torchscale.report.sections.first_screen.recorded import profiled_only
from torchscale.report.table import Table
from torchscale.report.values import only_if
from torchscale.schema.state import State

_MACHINE = ("profiles", "checkpoints", "memory", "collectives", "ceilings")
"""Shown of a run that has no table of cells."""
_REMARKS = "remarks"


def print_run(
    summary: RunSummary, directory: Path, console: Console, *, price: float | None = None
) -> None:
    """Print the answer, what it rests on, what costs most, what failed, and the cells.

    Args:
        summary: The run.
        directory: Its folder: logs are named with it.
        console: Where to.
        price: Dollars for a device and hour.
    """
    document = build_document(summary, price=price)
    if document.overview is not None:
        document = replace(document, overview=_with_logs(document.overview, directory))
    sections = _with_remarks(
        (*map(_said_once, document.sections), Section("", _REMARKS, _of_every_cell(document))),
        (*_meanings(summary), *_unmeasured(summary)),
    )
    document = replace(document, sections=sections)
    anchors = ["cells", _REMARKS, *only_if(price is not None, "cost")]
    if summary.job is not None:
        anchors = ["watched", _REMARKS]
    if not _has_table(summary):
        anchors += _MACHINE
    words = ["torchscale", "report", str(directory)]
    if price is not None:
        words += ["--cost", f"{price:g}"]
    command = shlex.join(words)
    print_document(document, console, anchors=anchors, elsewhere=f"The report has all: {command}")


def _has_table(summary: RunSummary) -> bool:
    return bool(summary.cells) and not profiled_only(summary)


def _of_every_cell(document: Document) -> tuple[Block, ...]:
    """What stands below the table of all cells, where the first of them alone are shown: the
    meaning of warnings, machine cells without figures, damaged files."""
    section = document.section("all-cells")
    if section is None:
        return ()
    return section.blocks[1:]


def _said_once(section: Section) -> Section:
    """A profile without its findings, which are above already, with what they cost."""
    if section.anchor != "profiles":
        return section
    blocks = tuple(block for block in section.blocks if not isinstance(block, Bullets))
    return replace(section, blocks=blocks)


def _with_remarks(sections: Sequence[Section], remarks: tuple[str, ...]) -> tuple[Section, ...]:
    """The sections with remarks: in the list that says what warnings mean, where one is printed,
    else at the end."""
    found = list(sections)
    for place, section in enumerate(sections):
        for number, block in enumerate(section.blocks):
            leads = not number or isinstance(section.blocks[number - 1], Table)
            if section.anchor in ("cells", _REMARKS) and isinstance(block, Bullets) and leads:
                blocks = list(section.blocks)
                blocks[number] = Bullets((*block.items, *remarks))
                found[place] = replace(section, blocks=tuple(blocks))
                return tuple(found)
    last = found[-1]
    found[-1] = replace(last, blocks=(*last.blocks, *only_if(remarks, Bullets(remarks))))
    return tuple(found)


def _meanings(summary: RunSummary) -> Iterator[str]:
    """What the table of cells does not say by itself, and figures of machine cells beside it."""
    if not _has_table(summary) or summary.job is not None:
        return
    efficiencies = [cell.efficiency for cell in summary.cells if cell.efficiency is not None]
    if any(efficiency.flags for efficiency in efficiencies):
        yield "An efficiency with * is of a cell with a warning, or rests on one."
    for cell in summary.machine:
        if cell.state is State.OK:
            count = cell.cell.world_size
            yield f"{cell.cell.title}, n={count}: {report_kind(cell.cell.kind).outcome(cell)}"
    reasons = {cell.cell.title: summary.flops_unknown(cell) for cell in summary.cells}
    for title, reason in reasons.items():
        if reason:
            yield f"No MFU of {title}: {reason}."


def _unmeasured(summary: RunSummary) -> Iterator[str]:
    """What devices cannot do, and why memory has no prediction."""
    for ceilings in summary.hardware:
        if ceilings.figures is not None:
            yield from (
                f"not measured: {what}: {said}" for what, said in ceilings.figures.unsupported
            )
    for memory in summary.memory:
        if memory.ranks and memory.ranks[0].not_predicted:
            yield f"no prediction: {memory.ranks[0].not_predicted}"


def _with_logs(overview: Overview, directory: Path) -> Overview:
    """With paths of logs from here."""
    return replace(
        overview, failures=tuple(_with_log(failure, directory) for failure in overview.failures)
    )


def _with_log(failure: Failure, directory: Path) -> Failure:
    lines = (
        f"log: {directory}/{line.removeprefix('log: ')}" if line.startswith("log: ") else line
        for line in failure.excerpt
    )
    return replace(failure, excerpt=tuple(lines))
