"""Collectives, ceilings and memory for machines."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict

from torchscale.analysis.ceilings import CeilingSummary, CollectivesSummary, MemorySummary


def ceilings_json(summaries: Iterable[CeilingSummary]) -> str:
    """A list with an entry for each cell."""
    return json.dumps([ceiling_content(summary) for summary in summaries], indent=1, ensure_ascii=False)


def ceiling_content(summary: CeilingSummary) -> dict[str, object]:
    """One cell: what was asked, how it ended, its figures; bytes, seconds, and per second."""
    content: dict[str, object] = {
        "cell_id": summary.cell.id,
        "cell": summary.cell.model_dump(mode="json"),
        "state": summary.state.value,
        "reason": summary.reason,
        "launches": summary.launches,
    }
    if isinstance(summary, MemorySummary):
        ranks = [rank.model_dump(mode="json") for rank in summary.ranks]
        return {**content, "ranks": ranks, "prediction_error": summary.prediction_error}
    figures = None
    if summary.figures is not None:
        figures = asdict(summary.figures)
        for name in ("pairs", "disk"):  # schema objects, which dataclasses leave as they are
            if name in figures:
                figures[name] = _plain(figures[name])
    content["figures"] = figures
    if isinstance(summary, CollectivesSummary):
        content["verdict"] = None if summary.verdict is None else asdict(summary.verdict)
        content["transports"] = [] if summary.log is None else list(summary.log.transports)
    return content


def _plain(value: object) -> object:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else value
