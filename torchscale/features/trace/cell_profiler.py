"""Records cells of a sweep with a profiler, and analyzes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torchscale.config.choices import ProfileTarget
from torchscale.config.secrets import hidden_environment
from torchscale.errors import MachineError
from torchscale.features.trace.analyze import Profile, analyze_recording
from torchscale.features.trace.recording.choice import ProfilerChoice, choose_tool, most_steps
from torchscale.features.trace.recording.profile import record_cell
from torchscale.launch.control import LaunchLimits, StopRequest, launch_task
from torchscale.measure.context import PlannedRun
from torchscale.plan.expand import Plan
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.progress import Progress
from torchscale.schema.profiles.request import RecordRequest


@dataclass(frozen=True)
class RecordingProfiler:
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


def sweep_profiler(planned: PlannedRun) -> tuple[RecordingProfiler | None, tuple[str, ...]]:
    """The profiler that ``profiling`` of a config asks for, and notes on what it will not get;
    ``None`` where nothing can be recorded."""
    settings = planned.experiment.profiling
    try:
        choice = choose_tool(settings.tool, planned.plan.device)
    except MachineError as error:
        told = (
            f"no cell will be profiled: {error.message}; --profiling.tool=auto takes torch.profiler "
            "instead"
        )
        return None, (told,)
    notes = (choice.note,) * bool(choice.note)
    if any(cell.script is not None for cell in planned.plan.training):
        notes += (
            "scripts of your own are not recorded by a sweep; `torchscale profile -- COMMAND` "
            "records a program",
        )
    profiler = RecordingProfiler(
        planned.plan,
        choice,
        ProfileTarget(settings.target),
        settings.seconds,
        settings.max_steps,
        planned.limits,
        hidden_environment(planned.experiment),
    )
    return profiler, notes
