"""Collectives, peak rates and memory as JSON for other programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from pydantic import TypeAdapter

from torchscale.analysis.summary.machine import MachineSummary
from torchscale.report.kinds import report_kind
from torchscale.schema.exports.machine import AnyMachineExport


def ceilings_json(summaries: Iterable[MachineSummary]) -> str:
    """A list with an entry for each cell."""
    entries = tuple(machine_export(summary) for summary in summaries)
    return TypeAdapter(tuple[AnyMachineExport, ...]).dump_json(entries, indent=1).decode()


def machine_export(summary: MachineSummary) -> AnyMachineExport:
    """One cell: what was asked, how it ended, its figures."""
    return cast(
        AnyMachineExport, report_kind(summary.cell.kind).export(summary)
    )  # the kinds of a MachineSummary
