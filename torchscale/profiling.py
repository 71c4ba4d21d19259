"""From a recording request, or recordings of others, to an analysis on disk."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torchscale.analysis.rank_window import WindowChoice
from torchscale.analysis.stalls import analyse
from torchscale.errors import MachineError, TorchscaleError
from torchscale.launch.nsys import Nsys, export, find_nsys
from torchscale.launch.recording import EXPORT_SECONDS, record_cell
from torchscale.launch.torchrun import LaunchLimits, StopRequest
from torchscale.plan import Plan
from torchscale.report.perfetto import perfetto_json
from torchscale.schema.cell import Cell, DeviceKind
from torchscale.schema.profile import ProfileAnalysis
from torchscale.schema.progress import Progress
from torchscale.schema.record import State
from torchscale.schema.record_request import RecordRequest, Target, Tool
from torchscale.schema.recording import Recording
from torchscale.schema.task import LaunchTask
from torchscale.store import atomic_write_bytes, atomic_write_model
from torchscale.traces.recordings import REPORT_SUFFIX, find_recordings, read_recordings

ANALYSIS, TIMELINE = "analysis.json", "timeline.perfetto.json.gz"


@dataclass(frozen=True)
class Profile:
    """What came of profiling. ``analysis`` is ``None`` where there is nothing to analyse; ``problem`` says why."""

    directory: Path
    recording: Recording
    analysis: ProfileAnalysis | None
    problem: str = ""


@dataclass(frozen=True)
class Choice:
    """Who records. ``note`` says why not nsys, where it was looked for and does not do."""

    tool: Tool
    nsys: Nsys | None
    note: str = ""


def choose_tool(asked: str, device: DeviceKind | None) -> Choice:
    """``auto`` takes nsys where it is complete and the device is CUDA (or unknown), else torch.profiler.

    Raises:
        MachineError: nsys is asked for and cannot be used.
    """
    if asked == "kineto" or (asked == "auto" and device == "cpu"):
        return Choice(Tool.KINETO, None)
    try:
        return Choice(Tool.NSYS, find_nsys())
    except MachineError as error:
        if asked == "nsys":
            raise
        return Choice(Tool.KINETO, None, f"recording with torch.profiler: {error.message}")


@dataclass(frozen=True)
class CellProfiler:
    """Profiles cells of a plan, each in a torchrun of its own that feeds no throughput."""

    plan: Plan
    choice: Choice
    target: Target
    seconds: float
    max_steps: int
    limits: LaunchLimits
    extra_env: Mapping[str, str]

    def profile(
        self, cell: Cell, directory: Path, stop: StopRequest, on_progress: Callable[[Progress], None]
    ) -> Profile:
        """Record ``cell`` into ``directory`` and analyse it."""
        request = RecordRequest(
            tool=self.choice.tool,
            target=self.target,
            directory=str(directory.resolve()),
            seconds=self.seconds,
            max_steps=self.max_steps,
        )
        task = LaunchTask(
            cell=cell,
            launch=0,
            device=self.plan.device,
            device_indices=self.plan.device_indices_of(cell.world_size),
            cpu_sets=self.plan.cpu_sets(cell.world_size),
            own_cores=self.plan.has_own_cores(cell.world_size),
            oversubscribed=self.plan.is_oversubscribed(cell.world_size),
            threads_per_rank=self.plan.threads_per_rank,
            started_at=time.time(),
            collective_timeout_seconds=self.limits.collective_seconds,
            recording=request,
        )
        recording = record_cell(
            task,
            directory,
            self.choice.nsys,
            limits=self.limits,
            extra_env=self.extra_env,
            stop=stop,
            on_progress=on_progress,
        )
        return analyse_recording(directory, recording)


def analyse_recording(directory: Path, recording: Recording) -> Profile:
    """Analyse what a recording left and write ``analysis.json`` and a timeline for Perfetto beside it."""
    if recording.state is not State.OK:
        return Profile(directory, recording, None, recording.reason)
    try:
        analysis = analyse_files([directory / name for name in recording.files], directory=directory)
    except TorchscaleError as error:
        return Profile(directory, recording, None, error.message)
    return Profile(directory, recording, analysis)


def analyse_files(
    paths: list[Path], window: WindowChoice = WindowChoice.AUTO, directory: Path | None = None
) -> ProfileAnalysis:
    """Analyse recordings; with ``directory`` also write the analysis and its timeline there.

    Raises:
        TraceError: they cannot be read, or hold nothing that can be analysed.
        MachineError: a report of nsys is among them and cannot be exported here.
    """
    found = find_recordings(paths)
    reports = [path for path in found if path.suffix == REPORT_SUFFIX]
    with tempfile.TemporaryDirectory(prefix="torchscale-") as scratch:
        if reports:
            nsys = find_nsys()
            exported = {}
            for number, report in enumerate(reports):
                link = Path(scratch) / str(number) / report.name
                link.parent.mkdir()
                link.symlink_to(report.resolve())  # the export is written beside it, and theirs may be read-only
                exported[report] = export(nsys, link, timeout_seconds=EXPORT_SECONDS)
            found = [exported.get(path, path) for path in found]
        trace = read_recordings(found)
    analysis = analyse(trace, window)
    if directory is not None:
        atomic_write_bytes(directory / TIMELINE, perfetto_json(trace, analysis))
        atomic_write_model(directory / ANALYSIS, analysis)
    return analysis
