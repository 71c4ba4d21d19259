"""Results over time: run folders → a history → trends, change points, and whether they should fail
a build."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchscale.config.choices import Metric, ReportFormat
from torchscale.errors import ExitCode, UsageError
from torchscale.features.compare.analysis.compare import THRESHOLD
from torchscale.features.compare.history.export import history_json
from torchscale.features.compare.history.file import open_history
from torchscale.features.compare.history.next_commands import RunPlaces
from torchscale.features.compare.history.page import HistoryReport, history_document
from torchscale.features.compare.history.read import add_folders, history_trends, run_folders
from torchscale.features.compare.history.records import HistoryRun
from torchscale.features.compare.history.text import history_sentence
from torchscale.observer import SILENT, Observer
from torchscale.read.folders import run_by_name
from torchscale.read.rendering import render_document
from torchscale.store.locations import RESULTS

__all__ = ["HistoryReport", "HistoryRules", "history", "history_json", "render_history", "verdict"]


@dataclass(frozen=True)
class HistoryRules:
    """What is followed, and what counts.

    Attributes:
        metrics: Which figures; speed, and the peak of memory cells, by default.
        threshold: A newest level that is worse by at most this share is no regression.
        accept_flags: Count contended and throttled runs too.
    """

    metrics: tuple[Metric, ...] = ()
    threshold: float = THRESHOLD
    accept_flags: bool = False


def history(
    directories: Sequence[Path] = (),
    db: Path | None = None,
    rules: HistoryRules | None = None,
    observer: Observer = SILENT,
) -> HistoryReport:
    """Add run folders to a history, and look for changes in all that it holds.

    Args:
        directories: Run folders, or directories that hold some; ``results`` where neither these nor
            ``db`` is given.
        db: File of the history; created if there are directories. ``None`` reads the folders and
            keeps nothing.
        rules: What is followed.
        observer: Shows that reading takes a while.

    Raises:
        UsageError: a directory or the file does not exist, or there is no run.
        StoreError: the file is no history, or is damaged.
        OutputError: the file cannot be written.
    """
    if rules is None:
        rules = HistoryRules()
    sources = list(map(run_by_name, directories)) or ([] if db is not None else [RESULTS])
    with observer.status("Looking for run folders"):
        folders = list(
            dict.fromkeys(folder for directory in sources for folder in run_folders(directory))
        )
    if sources and not folders:
        raise UsageError(
            f"no run folder in {', '.join(map(str, sources))}",
            hint="measure something first: torchscale benchmark",
        )
    with open_history(db, create=bool(sources)) as opened:
        with observer.status(f"Reading {len(folders)} run folders"):
            added = add_folders(
                opened,
                folders,
                lambda number, folder: observer.detail(
                    f"Reading {number} of {len(folders)}: {folder}"
                ),
            )
        if sources and db is not None:
            observer.note(f"{db}: {added.new} runs added, {added.known} known")
        with observer.status("Looking for changes"):
            content, trends = history_trends(opened, rules.metrics, accept_flags=rules.accept_flags)
    places = _places(content.runs, folders, db)
    return HistoryReport(content.runs, tuple(trends), rules.threshold, added.left_out, places)


def _places(runs: Sequence[HistoryRun], folders: Sequence[Path], db: Path | None) -> RunPlaces:
    """Where runs can be read again: by their folder where one alone has the run's name."""
    names = Counter(run.name for run in runs)
    by_name: dict[str, list[Path]] = {}
    for folder in folders:
        by_name.setdefault(folder.name, []).append(folder)
    found = {
        name: str(of_name[0])
        for name, of_name in by_name.items()
        if len(of_name) == 1 == names[name]
    }
    return RunPlaces(found, "" if db is None else str(db), names)


def render_history(report: HistoryReport) -> bytes:
    """The HTML page, self-contained."""
    return render_document(ReportFormat.HTML, history_document(report))


def verdict(report: HistoryReport, *, fail_on_regression: bool) -> tuple[ExitCode, str]:
    """The exit code, and the reason where it is not 0."""
    if fail_on_regression and report.regressions:
        return ExitCode.FAILED, f"Failed: {history_sentence(report.trends, report.threshold)}"
    return ExitCode.OK, ""
