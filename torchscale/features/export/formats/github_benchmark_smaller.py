"""JSON of github-action-benchmark for ``tool: customSmallerIsBetter``: step times, memory."""

from __future__ import annotations

from torchscale.features.export.formats.github_benchmark import render_direction
from torchscale.report.figures.figure import Exported, ExportedRun


def render(run: ExportedRun) -> Exported:
    """The figures of which less is better.

    Raises:
        UsageError: there are none.
    """
    return render_direction(run, higher_is_better=False)
