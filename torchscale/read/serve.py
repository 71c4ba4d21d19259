"""Serve the report of a run while it grows, or before it has begun."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Protocol

from torchscale.door import Slot
from torchscale.observer import SILENT, Observer
from torchscale.read.folders import newest_run, run_by_name
from torchscale.read.report import RunReport
from torchscale.report.document import Document
from torchscale.report.figures.figure import ExportedRun
from torchscale.report.figures.prometheus import render, render_openmetrics
from torchscale.report.figures.run import exported_run
from torchscale.report.formats.html import render_html
from torchscale.report.server import LOOPBACK, LivePage, make_server
from torchscale.report.terminal.live import launch_label
from torchscale.results.reader import read_summary
from torchscale.schema.run.experiment_file import ExperimentFile
from torchscale.store.changes import RunningLaunch, ended_launches, fingerprint, running_launch
from torchscale.store.lock import is_locked
from torchscale.store.run_folder import RunFolder
from torchscale.util.gc import gc_paused
from torchscale.util.units import format_coarse_seconds
from torchscale.util.words import plural

_RECENT_LAUNCHES = 20
"""The time left rests on these: enough for a steady median, and all of the session at hand."""
_WAITING = "waiting"
"""Version of the page before the sweep has begun."""


class UnfinishedWork(Protocol):
    """What goes on in a folder before it holds a run, or adds another one to it: it has a page of
    its own until it leaves its result."""

    def is_there(self) -> bool:
        """Whether the folder is of this kind of work."""

    def version(self) -> str:
        """Changes when there is something new; empty while there is nothing to show."""

    def running(self) -> str:
        """How far it is, in a line; empty where nothing runs."""

    def is_unfinished(self) -> bool:
        """Whether its result is still to come, or never comes.

        Raises:
            StoreError: it cannot be read.
        """

    def document(self) -> Document:
        """The page.

        Raises:
            StoreError: it cannot be read.
        """

    def figures(self) -> ExportedRun:
        """The figures so far.

        Raises:
            StoreError: it cannot be read.
        """


_LIVE_PAGES: Slot[Callable[[Path], UnfinishedWork]] = Slot("live pages")


def _work_in(directory: Path) -> list[UnfinishedWork]:
    """Every kind of work, whether it is there or not."""
    return [_LIVE_PAGES[name](directory) for name in _LIVE_PAGES]


@dataclass(frozen=True)
class RunPage:
    """The report of a run folder as it is at the moment: the source of a live page."""

    directory: Path
    price: float | None = None

    def version(self) -> str:
        """Changes when a launch ends, a recording is analyzed, the plan grows, or unfinished work
        has something new."""
        work = self._unfinished()
        if work is not None:
            return work.version()
        if self._is_run():
            return fingerprint(self.directory)
        return _WAITING

    def running(self) -> str:
        """``launch 24 of 54: ResNet-50, 4 GPUs, batch 64: measuring, 40 steps; about 6 min left``;
        empty where nothing runs."""
        work = self._unfinished()
        if work is not None:
            return work.running()
        if not self._is_run() or not is_locked(self.directory):
            return ""
        return describe_progress(
            RunFolder.open(self.directory).experiment,
            ended_launches(self.directory),
            running_launch(self.directory),
        )

    @gc_paused()
    def render(self, version: str) -> str:
        """The HTML report; before the sweep has begun a page that says so.

        Raises:
            StoreError: the directory cannot be read.
        """
        return render_html(self._document(version), version=version)

    @gc_paused()
    def metrics(self, version: str, *, openmetrics: bool) -> str:
        """The figures of the run; none before the sweep has begun.

        Raises:
            StoreError: the directory cannot be read.
        """
        figures = self._figures(version)
        if openmetrics:
            return render_openmetrics(figures).text
        return render(figures).text

    def _document(self, version: str) -> Document:
        if version == _WAITING:
            return _waiting_document(self.directory)
        work = self._unfinished()
        if work is not None:
            return work.document()
        return RunReport(self.directory, read_summary(self.directory), self.price).document()

    def _figures(self, version: str) -> ExportedRun:
        if version == _WAITING:
            return ExportedRun(self.directory.resolve().name)
        work = self._unfinished()
        if work is not None:
            return work.figures()
        return exported_run(read_summary(self.directory))

    def _is_run(self) -> bool:
        return (self.directory / "experiment.json").is_file()

    def _unfinished(self) -> UnfinishedWork | None:
        """What is shown in place of the run: work without a result, or any where there is no
        run."""
        is_run = self._is_run()
        return next(
            (
                work
                for work in _work_in(self.directory)
                if work.version() and (not is_run or work.is_unfinished())
            ),
            None,
        )


def serve(
    source: Path | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8642,
    price: float | None = None,
    observer: Observer = SILENT,
    on_ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve the report of a run folder, rendered again as the run grows, until interrupted.

    Args:
        source: The run folder, which need not exist yet; by default the newest run in
            ``./results``.
        host: Address to listen on; any but a loopback address exposes the report to the network.
        port: 0 takes a free one.
        price: Dollars for a device and hour.
        observer: Shows the address.
        on_ready: Called with the address once the page can be opened.

    Raises:
        UsageError: no directory is named, and ``./results`` holds no run.
        StoreError: the directory holds something that cannot be read.
        MachineError: the address cannot be used.
    """
    if source is None:
        directory = newest_run(observer=observer)
    else:
        directory = run_by_name(source)
    is_run = (directory / "experiment.json").exists()
    is_empty = not directory.exists() or not any(directory.iterdir())
    is_work = any(work.is_there() for work in _work_in(directory))
    if is_run or not (is_empty or is_work):
        RunFolder.open(directory)
    with make_server(LivePage(RunPage(directory, price)), host, port) as server:
        name = host
        if ":" in host:
            name = f"[{host}]"
        address = f"http://{name}:{server.server_address[1]}/"
        waiting = "; it shows results as soon as there are any"
        if is_run or any(work.version() for work in _work_in(directory)):
            waiting = ""
        observer.note(f"Serving {directory} at {address} (Ctrl-C ends it){waiting}")
        if host not in LOOPBACK:
            observer.note(
                "warning: whoever reaches this address can read the report; it asks for no password"
            )
        on_ready(address)
        server.serve_forever(poll_interval=0.2)


def describe_progress(
    file: ExperimentFile, ended: list[tuple[str, int]], running: RunningLaunch | None
) -> str:
    """How far a sweep is, in a line; arguments as :mod:`torchscale.store.changes` returns them.
    Pure."""
    expected = expected_launches(file)
    done = sum(cell_id in expected for cell_id, _ in ended)
    total = max(sum(expected.values()), done)
    left = _time_left([stamp for _, stamp in ended], total - done)
    if running is None:
        now = "finishing"
        if done < total:
            now = f"{done} of {plural(total, 'launch')} ended, the next one starts"
        return f"{now}{left}"
    cells = {entry.cell.id: entry.cell for entry in file.plan}
    cell = cells.get(running.cell_id)
    cuda = file.environment.cuda_available and file.config.device != "cpu"
    repeats = expected.get(running.cell_id, 1)
    name = running.cell_id
    if cell is not None:
        name = launch_label(cell, "cuda" if cuda else "cpu", running.launch, repeats)
    steps = ""
    if running.steps:
        steps = f", {plural(running.steps, 'step')}"
    return f"launch {min(done + 1, total)} of {total}: {name}: {running.phase}{steps}{left}"


def expected_launches(file: ExperimentFile) -> dict[str, int]:
    """Cell id → launches that are planned; without skipped cells. A cell that another command put
    into the folder has one."""
    config = file.config
    return {
        entry.cell.id: config.benchmark.repeats if entry.cell.kind in config.measure else 1
        for entry in file.plan
        if entry.skip_reason is None
    }


def _time_left(stamps: list[int], waiting: int) -> str:
    """The time left, from the times between the last launches that ended; empty without two of
    them."""
    recent = stamps[-_RECENT_LAUNCHES:]
    gaps = [(later - earlier) / 1e9 for earlier, later in itertools.pairwise(recent)]
    if gaps and waiting > 0:
        return f"; about {format_coarse_seconds(median(gaps) * waiting)} left"
    return ""


def _waiting_document(directory: Path) -> Document:
    text = (
        f"No measurement has begun in {directory}. This page shows results as soon as there are "
        "any."
    )
    return Document(
        title=f"Waiting for {directory.name}",
        subtitle="",
        verdict=(text,),
        key_figures=(),
        sections=(),
    )
