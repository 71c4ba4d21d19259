"""The exports of a sweep: what ``export:`` asks for, at the end of each cell and of the sweep.

Between launches, so that no measurement is disturbed. What writes one file is rendered here, from
the summary that the sweep keeps anyway. Stores run in a process of their own with a time limit:
their libraries wait for servers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from torchscale.analysis.summary.run import RunSummary
from torchscale.config.choices import ExportTarget
from torchscale.config.experiment import Experiment
from torchscale.config.sections.export import AUTO
from torchscale.errors import TorchscaleError, UsageError
from torchscale.features.export.copies import copy_results
from torchscale.features.export.export import text_exporter
from torchscale.launch.control import StopRequest
from torchscale.observer import Observer
from torchscale.report.figures.figure import ExportedRun
from torchscale.report.figures.run import exported_run
from torchscale.util.addresses import storage_address
from torchscale.util.files import atomic_write_text, read_bounded
from torchscale.util.interpreter import module_command
from torchscale.util.processes.bounded import run_bounded

_SHARE = 0.05
"""Share of the time of a sweep that an exporter may take, so that exporting a large run after each
of many short cells costs little. What was left out comes with a later cell, at the latest at the
end of the sweep."""
_MAX_SUMMARY_BYTES = 2 * 1024 * 1024
"""Largest size of a job summary: GitHub refuses more than 1,024 kB."""
_BEGIN, _END = "<!-- torchscale {} -->\n", "<!-- end of torchscale {} -->\n"
"""Marks around our part of a job summary, which each export replaces."""


class CellExports:
    """Writes the exports of one sweep. A failure is a warning, the same one given once.

    Attributes:
        has_failed: Whether results are not copied that ``export.storage`` asks for.
    """

    def __init__(
        self, experiment: Experiment, directory: Path, observer: Observer, stop: StopRequest
    ) -> None:
        self._directory, self._observer, self._stop = directory, observer, stop
        self._places = {
            ExportTarget(key.replace("_", "-")): str(experiment.hidden.get(place, place))
            for key, place in experiment.export.places.items()
        }
        if experiment.export.storage is not None:
            storage_address(self._places[ExportTarget.STORAGE])  # refused before the first launch
        self.has_failed = False
        self._limit_seconds = experiment.export.timeout_seconds
        self._due: dict[ExportTarget, float] = {}
        self._warned: set[str] = set()

    def cell_ended(self, summary: RunSummary) -> None:
        """Export what the sweep has so far, where an exporter's share of the time allows it
        (writes)."""
        now = time.monotonic()
        self._export(
            summary,
            [target for target in self._places if self._due.get(target, now) <= now],
            final=False,
        )

    def sweep_ended(self, summary: RunSummary) -> None:
        """Export the sweep (writes). After an interrupt only what takes a moment; the rest is
        named."""
        files = [target for target in self._places if not target.is_store]
        copies = [target for target in self._places if target is ExportTarget.STORAGE]
        stores = [target for target in self._places if target.is_store and target not in copies]
        self._export(summary, files, final=not self._stop.asked)
        for target in stores:
            if not self._stop.asked:
                self._export(summary, [target], final=True)
            if self._stop.asked:  # before, or while it ran
                command = f"torchscale export --to {target.value} {self._directory}"
                self._warn(target, f"left out after the interrupt; {command}")
        for target in copies:
            asked = self._stop.count  # a copy is made after an interrupt too; the next one ends it
            self.has_failed |= not copy_results(
                self._directory,
                self._places[target],
                self._observer,
                lambda: self._stop.count > asked,  # noqa: B023 - called before it returns
            )

    def _export(self, summary: RunSummary, targets: list[ExportTarget], *, final: bool) -> None:
        run: ExportedRun | None = None
        for target in targets:
            started = time.monotonic()
            try:
                if target.is_store:
                    self._store(target, final=final)
                else:
                    if run is None:
                        run = exported_run(summary)
                    self._write(target, run)
            except UsageError as error:
                if final:  # before that, there may be nothing to say in this format yet
                    self._warn(target, error.message)
            except TorchscaleError as error:
                self._warn(target, error.message)
            ended = time.monotonic()
            self._due[target] = ended + (ended - started) / _SHARE

    def _write(self, target: ExportTarget, run: ExportedRun) -> None:
        path, text = Path(self._places[target]), text_exporter(target).render(run).text
        if target is ExportTarget.GITHUB_SUMMARY:
            path = _summary_path(self._places[target])
            text = _with_others(path, run.name, text)
        atomic_write_text(path, text)

    def _store(self, target: ExportTarget, *, final: bool) -> None:
        """``torchscale export`` in a process of its own. An address may hold a password, so that it
        goes through the environment, which only this user can read."""
        place = self._places[target]
        arguments = ["export", "--to", target.value, "--source", str(self._directory)]
        if not final:
            arguments.append("--no-report")
        # A service of W&B's that another process has started would keep the run of one that is
        # ended as in use.
        env = {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}
        if target is ExportTarget.MLFLOW and place != AUTO:
            env["MLFLOW_TRACKING_URI"] = place
        elif place != AUTO:
            arguments += ["--output", place]
        done = run_bounded(
            module_command("torchscale", *arguments),
            timeout_seconds=self._limit_seconds,
            env=env,
            cancelled=lambda: self._stop.asked,
        )
        if self._stop.asked:
            return
        if done.timed_out:
            self._warn(
                target, f"not done within {self._limit_seconds:g} s (export.timeout_seconds)"
            )
        elif done.returncode != 0:
            self._warn(target, _error_in(done.stderr) or f"ended with {done.returncode}")

    def _warn(self, target: ExportTarget, problem: str) -> None:
        text = f"warning: export to {target.value}: {problem}"
        if text not in self._warned:
            self._warned.add(text)
            self._observer.note(text)


def _error_in(stderr: str) -> str:
    """What an ended command says went wrong, with its advice."""
    lines = dict(
        line.split(": ", 1)
        for line in stderr.splitlines()
        if line.startswith(("error: ", "hint: "))
    )
    return "; ".join(lines[name] for name in ("error", "hint") if name in lines)


def _summary_path(place: str, environment: Mapping[str, str] = os.environ) -> Path:
    """The file of the running step of a GitHub job, or the one that is named.

    Raises:
        UsageError: no job is running.
    """
    if place != AUTO:
        return Path(place)
    path = environment.get("GITHUB_STEP_SUMMARY")
    if not path:
        raise UsageError(
            "export.github_summary=auto: $GITHUB_STEP_SUMMARY is not set; outside a job, name a "
            "file"
        )
    return Path(path)


def _with_others(path: Path, name: str, text: str) -> str:
    """The job summary with our part replaced, or added to what other commands of the step wrote."""
    try:
        before = read_bounded(path, _MAX_SUMMARY_BYTES).decode(errors="replace")
    except OSError:  # not there yet; what cannot be written is told by writing
        before = ""
    label = "".join(mark for mark in name if mark.isalnum() or mark in "._ ")
    begin, end = _BEGIN.format(label), _END.format(label)
    head, found, rest = before.partition(begin)
    tail = rest.partition(end)[2] if found else ""
    if head and not head.endswith("\n"):
        head += "\n"
    return f"{head}{begin}\n{text}\n{end}{tail}"
