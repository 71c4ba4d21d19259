"""The report of a watched job that left no run."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.features.watch.analysis.jobs import START_NS
from torchscale.config.choices import ReportFormat
from torchscale.errors import UsageError
from torchscale.features.watch.job.job import WatchedJob
from torchscale.read.report import read_report
from torchscale.schema.watch.report import WatchReport
from torchscale.store.locations import WATCH_REPORT
from torchscale.util.files import atomic_write_model


def test_a_job_without_ranks_has_a_report(tmp_path: Path) -> None:
    report = WatchedJob(tmp_path, ("python", "x.py"), START_NS * 1e-9).report(START_NS * 1e-9, 1)
    atomic_write_model(tmp_path / WATCH_REPORT, report)
    found = read_report(tmp_path)

    assert (
        "x.py (failed: exit code 1): No step was seen" in found.render(ReportFormat.HTML).decode()
    )
    assert WatchReport.model_validate_json(found.render(ReportFormat.JSON)) == report
    with pytest.raises(UsageError, match="no rows for a spreadsheet"):
        found.render(ReportFormat.CSV)
    out = io.StringIO()
    found.print_to(Console(file=out))
    assert out.getvalue().startswith("No step was seen")
    with pytest.raises(UsageError, match="without a run"):
        found.cell_json("x")
    with pytest.raises(UsageError, match="without a run"):
        found.print_cell("x", Console())
