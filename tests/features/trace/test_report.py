"""The report of a directory that holds a recording."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.test_run_folder import measured, profile_of
from torchscale.config.choices import ReportFormat
from torchscale.errors import StoreError, UsageError
from torchscale.features.trace.report import RecordingReport
from torchscale.read.report import RunReport, read_report


def test_a_directory_with_one_recording_is_told_from_a_run_folder(tmp_path: Path) -> None:
    folder = measured(tmp_path / "run")
    directory = profile_of(folder)
    found = read_report(directory)
    assert isinstance(found, RecordingReport)
    assert found.analysis.sync_stall_percent == 12.5
    assert isinstance(read_report(tmp_path / "run"), RunReport)
    copied = (directory / "analysis.json").read_bytes()
    (tmp_path / "run" / "analysis.json").write_bytes(copied)
    shown = read_report(tmp_path / "run")
    assert isinstance(shown, RunReport), "what was measured there is shown"
    (directory / "analysis.json").write_text("{}")
    with pytest.raises(StoreError, match="Field required"):
        read_report(directory)


def test_a_recording_has_no_rows_and_no_cells(tmp_path: Path) -> None:
    report = read_report(profile_of(measured(tmp_path / "run")))
    with pytest.raises(UsageError, match="has no rows for a spreadsheet"):
        report.render(ReportFormat.CSV)
    with pytest.raises(UsageError, match=r"--cell n2: .* which has no cells"):
        report.cell_json("n2")
    assert report.render(ReportFormat.JSON).startswith(b"{\n")
