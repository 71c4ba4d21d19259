"""Record one cell with a profiler, and analyze recordings on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torchscale.analysis.trace.analyze import analyze_trace
from torchscale.config.choices import DeviceKind, ProfileTarget, Tool, WindowChoice
from torchscale.errors import MachineError, TorchscaleError
from torchscale.launch.control import LaunchLimits, StopRequest, launch_task
from torchscale.launch.nsys import Nsys, export, find_nsys
from torchscale.launch.profile import EXPORT_SECONDS, record_cell
from torchscale.plan.expand import Plan
from torchscale.report.formats.perfetto import perfetto_json
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.progress import Progress
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.profiles.recording import Recording
from torchscale.schema.profiles.request import RecordRequest
from torchscale.schema.state import State
from torchscale.traces.recordings import REPORT_SUFFIX, find_recordings, read_recordings
from torchscale.util.files import atomic_write_bytes, atomic_write_model
from torchscale.util.scratch import scratch_directory

ANALYSIS, TIMELINE = "analysis.json", "timeline.perfetto.json.gz"


@dataclass(frozen=True)
class Profile:
    """A recording and its analysis; without anything to analyze, ``analysis`` is ``None`` and ``problem`` says why."""

    directory: Path
    recording: Recording
    analysis: ProfileAnalysis | None
    problem: str = ""


@dataclass(frozen=True)
class ProfilerChoice:
    """The profiler to use. ``note`` says why nsys was rejected, where it was tried."""

    tool: Tool
    nsys: Nsys | None
    note: str = ""


def choose_tool(requested: str, device: DeviceKind | None) -> ProfilerChoice:
    """``auto`` takes nsys where it is complete and the device is CUDA (or unknown), else torch.profiler.

    Raises:
        MachineError: nsys is asked for and cannot be used.
    """
    if requested == "kineto" or (requested == "auto" and device == "cpu"):
        return ProfilerChoice(Tool.KINETO, None)
    try:
        return ProfilerChoice(Tool.NSYS, find_nsys())
    except MachineError as error:
        if requested == "nsys":
            raise
        return ProfilerChoice(Tool.KINETO, None, f"recording with torch.profiler: {error.message}")


@dataclass(frozen=True)
class CellProfiler:
    """Profiles cells of a plan, each in a torchrun of its own that feeds no throughput."""

    plan: Plan
    choice: ProfilerChoice
    target: ProfileTarget
    seconds: float
    max_steps: int
    limits: LaunchLimits
    extra_env: Mapping[str, str]

    def profile(
        self, cell: TrainingCell, directory: Path, stop: StopRequest, on_progress: Callable[[Progress], None]
    ) -> Profile:
        """Record ``cell`` into ``directory`` and analyze it."""
        request = RecordRequest(
            tool=self.choice.tool,
            target=self.target,
            directory=str(directory.resolve()),
            seconds=self.seconds,
            max_steps=self.max_steps,
        )
        task = launch_task(self.plan, cell, self.limits, recording=request)
        recording = record_cell(
            task,
            directory,
            self.choice.nsys,
            limits=self.limits,
            extra_env=self.extra_env,
            stop=stop,
            on_progress=on_progress,
        )
        return analyze_recording(directory, recording)


def analyze_recording(directory: Path, recording: Recording) -> Profile:
    """Analyze what a recording left and write ``analysis.json`` and a timeline for Perfetto beside it."""
    if recording.state is not State.OK:
        return Profile(directory, recording, None, recording.reason)
    try:
        analysis = analyze_files([directory / name for name in recording.files], directory=directory)
    except TorchscaleError as error:
        return Profile(directory, recording, None, error.message)
    return Profile(directory, recording, analysis)


def analyze_files(
    paths: list[Path], window: WindowChoice = WindowChoice.AUTO, directory: Path | None = None
) -> ProfileAnalysis:
    """Analyze recordings; with ``directory`` also write the analysis and its timeline there.

    Raises:
        TraceError: they cannot be read, or hold nothing that can be analyzed.
        MachineError: a report of nsys is among them and cannot be exported here.
    """
    recordings = find_recordings(paths)
    reports = [path for path in recordings if path.suffix == REPORT_SUFFIX]
    with scratch_directory("profile") as scratch:
        if reports:
            nsys = find_nsys()
            exported = {}
            for number, report in enumerate(reports):
                link = scratch / str(number) / report.name
                link.parent.mkdir()
                link.symlink_to(report.resolve())  # the export is written beside it, and theirs may be read-only
                exported[report] = export(nsys, link, timeout_seconds=EXPORT_SECONDS)
            recordings = [exported.get(path, path) for path in recordings]
        trace = read_recordings(recordings)
    analysis = analyze_trace(trace, window)
    if directory is not None:
        atomic_write_bytes(directory / TIMELINE, perfetto_json(trace, analysis))
        atomic_write_model(directory / ANALYSIS, analysis)
    return analysis
