"""Record one cell with a profiler, and analyze recordings on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torchscale.config.choices import DeviceKind, ProfileTarget, Tool, WindowChoice
from torchscale.errors import MachineError, TorchscaleError, UsageError
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.features.trace.analysis.windows import StepRange
from torchscale.features.trace.perfetto import perfetto_json
from torchscale.features.trace.program_python import has_cuda_device
from torchscale.features.trace.readers.files import REPORT_SUFFIX
from torchscale.features.trace.readers.recordings import (
    DEFAULT_MEMORY,
    Reading,
    find_recordings,
    read_recordings,
)
from torchscale.features.trace.readers.selection import RankRanges
from torchscale.features.trace.recording.nsys import (
    NO_RECORDING,
    Nsys,
    export,
    find_exporter,
    find_nsys,
)
from torchscale.features.trace.recording.profile import EXPORT_SECONDS, record_cell
from torchscale.launch.control import LaunchLimits, StopRequest, launch_task
from torchscale.plan.expand import Plan
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.progress import Progress
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.profiles.recording import Recording
from torchscale.schema.profiles.request import RecordRequest
from torchscale.schema.state import State
from torchscale.util.files import atomic_write_bytes, atomic_write_model
from torchscale.util.scratch import scratch_directory
from torchscale.util.units import format_seconds, parse_bytes

ANALYSIS, TIMELINE = "analysis.json", "timeline.perfetto.json.gz"


@dataclass(frozen=True)
class Profile:
    """A recording and its analysis; without anything to analyze, ``analysis`` is ``None`` and
    ``problem`` says why."""

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


_MOST_STEPS = {Tool.KINETO: 200, Tool.NSYS: 1000}
"""torch.profiler keeps up to megabytes for every step, in the memory of the rank; nsys keeps
kilobytes, elsewhere. So many steps of 10 ms are the 10 s below which a slow device cannot be told
from a passing disturbance."""


def most_steps(requested: int | None, tool: Tool) -> int:
    """The most steps that are recorded, where ``requested`` does not say it."""
    if requested is None:
        return _MOST_STEPS[tool]
    return requested


def choose_tool(requested: str, device: DeviceKind) -> ProfilerChoice:
    """The profiler for a workload. ``auto`` takes nsys where it is complete and the device is CUDA,
    else torch.profiler.

    Raises:
        MachineError: nsys is asked for and cannot be used.
    """
    if requested == "kineto" or (requested == "auto" and device != "cuda"):
        return ProfilerChoice(Tool.KINETO, None)
    if device not in ("cuda", "cpu"):
        raise MachineError(f"nsys does not record {device} devices", hint=NO_RECORDING)
    return _nsys_if_complete(requested, for_cpus=device == "cpu")


def choose_tool_for(command: Sequence[str], requested: str) -> ProfilerChoice:
    """The profiler for a user's program: ``auto`` takes nsys where it is complete and the program's
    Python has a CUDA device, else torch.profiler.

    Raises:
        MachineError: nsys is asked for and cannot be used.
    """
    if requested == "kineto":
        return ProfilerChoice(Tool.KINETO, None)
    if requested == "auto" and not has_cuda_device(command):
        return ProfilerChoice(
            Tool.KINETO, None, "recording with torch.profiler: PyTorch finds no CUDA device here"
        )
    return _nsys_if_complete(requested, for_cpus=False)


def _nsys_if_complete(requested: str, *, for_cpus: bool) -> ProfilerChoice:
    try:
        return ProfilerChoice(Tool.NSYS, find_nsys(for_cpus=for_cpus))
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
    max_steps: int | None
    limits: LaunchLimits
    extra_env: Mapping[str, str]

    def profile(
        self,
        cell: TrainingCell,
        directory: Path,
        stop: StopRequest,
        on_progress: Callable[[Progress], None],
    ) -> Profile:
        """Record ``cell`` into ``directory`` and analyze it."""
        request = RecordRequest(
            tool=self.choice.tool,
            target=self.target,
            directory=str(directory.resolve()),
            seconds=self.seconds,
            max_steps=most_steps(self.max_steps, self.choice.tool),
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
    """Analyze what a recording left and write ``analysis.json`` and a timeline for Perfetto beside
    it."""
    if recording.state is not State.OK:
        return Profile(directory, recording, None, recording.reason)
    try:
        analysis = analyze_files(
            [directory / name for name in recording.files], directory=directory
        )
    except TorchscaleError as error:
        return Profile(directory, recording, None, error.message)
    return Profile(directory, recording, analysis)


@dataclass(frozen=True)
class Parts:
    """What of recordings is analyzed, and what reading may take.

    Attributes:
        ranks: ``None`` for all.
        sample: How many of them; ``None`` for all.
        steps: Numbers of the first and the last step; ``None`` for all.
        memory_bytes: Memory for columns of events and for processes that read at once.
    """

    ranks: RankRanges | None = None
    sample: int | None = None
    steps: StepRange | None = None
    memory_bytes: int = DEFAULT_MEMORY


def make_parts(
    ranks: str | None, sample: int | None, steps: str | None, memory: str | None
) -> Parts:
    """What a user asks for in text; ``None`` for what is not asked for.

    Raises:
        UsageError: it is not as it is to be written.
    """
    parts = Parts(sample=sample)
    if ranks is not None:
        parts = replace(parts, ranks=RankRanges.parse(ranks))
    if steps is not None:
        parts = replace(parts, steps=StepRange.parse(steps))
    if memory is None:
        return parts
    try:
        return replace(parts, memory_bytes=parse_bytes(memory))
    except ValueError as error:
        raise UsageError(f"--memory {memory}: {error}") from error


def analyze_files(
    paths: list[Path],
    window: WindowChoice = WindowChoice.AUTO,
    directory: Path | None = None,
    *,
    parts: Parts | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> ProfileAnalysis:
    """Analyze recordings; with ``directory`` also write the analysis and its timeline there.

    Args:
        paths: Files, and directories of them.
        window: Which part is analyzed.
        directory: Where the analysis and the timeline are written; ``None`` writes nothing.
        parts: Which ranks and steps are analyzed; by default all.
        say: Called with what is being done.

    Raises:
        TraceError: they cannot be read, or hold nothing that can be analyzed.
        MachineError: a report of nsys is among them and cannot be exported here.
        OutputError: there is no space for files.
    """
    parts = parts or Parts()
    recordings = find_recordings(paths)
    reports = [path for path in recordings if path.suffix == REPORT_SUFFIX]
    with scratch_directory("profile") as scratch:
        if reports:
            nsys = find_exporter()
            exported = {
                report: scratch / str(number) / report.stem for number, report in enumerate(reports)
            }
            for report, target in exported.items():
                target.parent.mkdir()  # not beside the report: its directory may be read-only
                exported[report] = target.with_name(f"{target.name}.sqlite")
                export(nsys, report, exported[report], timeout_seconds=EXPORT_SECONDS)
            recordings = [exported.get(path, path) for path in recordings]
        reading = Reading(
            directory=scratch,
            memory_bytes=parts.memory_bytes,
            ranks=parts.ranks,
            sample=parts.sample,
            on_read=ReadingProgress(say).told,
        )
        trace = read_recordings(recordings, reading)
        analysis = analyze_trace(trace, window, steps=parts.steps, say=say)
        if directory is not None:
            atomic_write_bytes(directory / TIMELINE, perfetto_json(trace, analysis))
            atomic_write_model(directory / ANALYSIS, analysis)
    return analysis


_TIME_LEFT_AFTER = 3.0
"""Seconds of reading, from which on what is left can be told."""


class ReadingProgress:
    """Says how many files are read, and about how long the others take."""

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say, self._clock = say, clock
        self._began = clock()

    def told(self, done: int, total: int) -> None:
        """``done`` of ``total`` files are read."""
        text = f"Reading the recordings: {done:,} of {total:,}"
        spent = self._clock() - self._began
        if spent >= _TIME_LEFT_AFTER and done < total:
            text += f", about {format_seconds(spent / done * (total - done), 2)} left"
        self._say(text)
