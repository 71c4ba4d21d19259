"""Collectives, peak rates and memory as JSON for other programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from pydantic import TypeAdapter

from torchscale.analysis.machine.collectives import CollectiveFigures, Curve
from torchscale.analysis.machine.hardware import HardwareFigures
from torchscale.analysis.machine.link_verdict import LinkVerdict
from torchscale.analysis.summary.machine import (
    CollectivesSummary,
    HardwareSummary,
    MachineSummary,
    MemorySummary,
)
from torchscale.report.kinds import report_kind
from torchscale.schema.exports.machine import (
    AnyMachineExport,
    CollectiveFiguresExport,
    CollectivePointExport,
    CollectivesExport,
    CopyRateExport,
    CurveExport,
    HardwareExport,
    HardwareFiguresExport,
    LatencyFitExport,
    LinkCauseExport,
    LinkCeilingExport,
    LinkVerdictExport,
    MatmulRatesExport,
    MemoryExport,
)


def ceilings_json(summaries: Iterable[MachineSummary]) -> str:
    """A list with an entry for each cell."""
    entries = tuple(machine_export(summary) for summary in summaries)
    return TypeAdapter(tuple[AnyMachineExport, ...]).dump_json(entries, indent=1).decode()


def machine_export(summary: MachineSummary) -> AnyMachineExport:
    """One cell: what was asked, how it ended, its figures."""
    return cast(
        AnyMachineExport, report_kind(summary.cell.kind).export(summary)
    )  # the kinds of a MachineSummary


def memory_export(summary: MemorySummary) -> MemoryExport:
    """Every rank, and how far the prediction was off."""
    return MemoryExport(
        cell_id=summary.cell.id,
        cell=summary.cell,
        state=summary.state,
        reason=summary.reason,
        launches=summary.launches,
        hosts=tuple(node.hostname for node in summary.facts.nodes),
        autopsy=summary.facts.autopsy,
        flags=(),
        ranks=summary.ranks,
        prediction_error=summary.prediction_error,
    )


def hardware_export(summary: HardwareSummary) -> HardwareExport:
    """Peak rates, and every shape's."""
    return HardwareExport(
        cell_id=summary.cell.id,
        cell=summary.cell,
        state=summary.state,
        reason=summary.reason,
        launches=summary.launches,
        hosts=tuple(node.hostname for node in summary.facts.nodes),
        autopsy=summary.facts.autopsy,
        flags=tuple(flag.value for flag in summary.flags),
        figures=None if summary.figures is None else _hardware_figures(summary.figures),
    )


def _hardware_figures(figures: HardwareFigures) -> HardwareFiguresExport:
    return HardwareFiguresExport(
        matmuls=tuple(
            MatmulRatesExport(
                dtype=rates.dtype,
                peak=rates.peak,
                peak_shape=rates.peak_shape,
                cold=rates.cold,
                typical=rates.typical,
                slowest_device=rates.slowest_device,
                shapes=rates.shapes,
            )
            for rates in figures.matmuls
        ),
        copies=tuple(
            CopyRateExport(
                kind=copy.kind,
                bytes_per_second=copy.bytes_per_second,
                slowest_device=copy.slowest_device,
                pinned=copy.pinned,
                source=copy.source,
                peer=copy.peer,
            )
            for copy in figures.copies
        ),
        disk=figures.disk,
        unsupported=figures.unsupported,
    )


def collectives_export(summary: CollectivesSummary) -> CollectivesExport:
    """Curves, the verdict on the link, and NCCL's transports."""
    return CollectivesExport(
        cell_id=summary.cell.id,
        cell=summary.cell,
        state=summary.state,
        reason=summary.reason,
        launches=summary.launches,
        hosts=tuple(node.hostname for node in summary.facts.nodes),
        autopsy=summary.facts.autopsy,
        flags=tuple(flag.value for flag in summary.flags),
        figures=None if summary.figures is None else _collective_figures(summary, summary.figures),
        verdict=None if summary.verdict is None else _verdict(summary.verdict),
        transports=() if summary.log is None else summary.log.transports,
    )


def _collective_figures(
    summary: CollectivesSummary, figures: CollectiveFigures
) -> CollectiveFiguresExport:
    return CollectiveFiguresExport(
        backend=figures.backend,
        curves=tuple(_curve(summary, curve) for curve in figures.curves),
        pairs=figures.pairs,
        unsupported=figures.unsupported,
    )


def _curve(summary: CollectivesSummary, curve: Curve) -> CurveExport:
    fit = curve.fit
    return CurveExport(
        operation=curve.operation,
        dtype=curve.dtype,
        points=tuple(
            CollectivePointExport(
                payload_bytes=point.payload_bytes,
                elements=point.elements,
                in_place=point.in_place,
                seconds=point.seconds,
                algbw=point.algbw,
                busbw=point.busbw,
                p50=point.p50,
                p95=point.p95,
                p99=point.p99,
                rank_spread=point.rank_spread,
                wrong_elements=point.wrong_elements,
                link_share=summary.link_share(point),
                flags=tuple(flag.value for flag in point.flags),
            )
            for point in curve.points
        ),
        fit=None
        if fit is None
        else LatencyFitExport(
            latency_seconds=fit.latency_seconds,
            bytes_per_second=fit.bytes_per_second,
            residual=fit.residual,
        ),
    )


def _verdict(verdict: LinkVerdict) -> LinkVerdictExport:
    ceiling = verdict.ceiling
    return LinkVerdictExport(
        text=verdict.text,
        share=verdict.share,
        fits=verdict.fits,
        causes=tuple(
            LinkCauseExport(text=cause.text, check=cause.check) for cause in verdict.causes
        ),
        ceiling=None
        if ceiling is None
        else LinkCeilingExport(
            bytes_per_second=ceiling.bytes_per_second,
            link=ceiling.link,
            expected_share=ceiling.expected_share,
        ),
    )
