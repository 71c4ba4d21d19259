"""Profile training: record a workload of ours or the user's own program, and analyze recordings
made elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torchscale.config.choices import ProfileTarget, Tool, ToolChoice
from torchscale.config.experiment import Experiment
from torchscale.config.secrets import hidden_environment
from torchscale.errors import ExitCode, TorchscaleError, UsageError
from torchscale.features.trace.analyze import Profile, analyze_recording
from torchscale.features.trace.cell_profiler import RecordingProfiler
from torchscale.features.trace.profiled_workload import one_workload
from torchscale.features.trace.recording.choice import choose_tool, choose_tool_for, most_steps
from torchscale.features.trace.recording.own_program import record_program
from torchscale.features.trace.recording.user_program import UserRun
from torchscale.measure.context import measuring, plan_run, stop_on_signals, timestamped
from torchscale.observer import SILENT, Observer
from torchscale.report.text.labels import cell_label
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.profiles.recording import Recording
from torchscale.schema.profiles.request import RecordRequest
from torchscale.schema.run.experiment_file import PlannedCell
from torchscale.step_profiler import RECORD_VARIABLE
from torchscale.store.derived_files import write_derived_files
from torchscale.store.run_folder import PROFILED_ONLY, RunFolder
from torchscale.util.files import make_directory
from torchscale.util.processes.subprocesses import adopt_orphans
from torchscale.util.text import program_name

_PROGRAM_MARGIN_SECONDS = 1800.0
"""What the user's program may take beside the delay and the recording: start-up of a large job
takes minutes."""


@dataclass(frozen=True)
class ProfileOutcome:
    """What profiling gave.

    Attributes:
        directory: Directory of the recording.
        profile: The recording and its analysis; ``None`` where Ctrl-C or TERM ended it before
            anything was recorded.
        run_folder: What ``report`` takes: ``directory`` or the run folder around it.
        is_interrupted: Whether Ctrl-C or TERM ended it.
    """

    directory: Path
    profile: Profile | None
    run_folder: Path
    is_interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """130 interrupted; that of the user's program where it failed by itself; 1 where nothing
        could be analyzed; else 0."""
        if self.is_interrupted or self.profile is None:
            return ExitCode.INTERRUPTED
        if self.profile.recording.exit_code:
            return self.profile.recording.exit_code
        if self.profile.analysis is None:
            return ExitCode.FAILED
        return ExitCode.OK

    @property
    def problem(self) -> TorchscaleError | None:
        """Why there is nothing to analyze; ``None`` where there is."""
        if self.profile is not None and self.profile.analysis is not None:
            return None
        reason = "it was interrupted" if self.profile is None else self.profile.problem
        recorded = self.profile is not None and bool(self.profile.recording.files)
        hint = f"what it printed is in {self.directory}"
        if recorded:
            hint = f"the recording is in {self.directory}"
        return TorchscaleError(f"nothing to analyze: {reason}", hint=hint)

    @property
    def analysis(self) -> ProfileAnalysis:
        """The analysis.

        Raises:
            TorchscaleError: there is nothing to analyze; the message says why and where the
                recording is.
        """
        if self.profile is None or self.profile.analysis is None:
            raise self.problem or TorchscaleError("nothing to analyze")
        return self.profile.analysis


def profile_workload(
    experiment: Experiment,
    *,
    output_dir: Path | None = None,
    seconds: float = 10.0,
    max_steps: int | None = None,
    target: ProfileTarget = ProfileTarget.SYNC_STALLS,
    tool: ToolChoice = ToolChoice.AUTO,
    any_workload: bool = False,
    observer: Observer = SILENT,
) -> ProfileOutcome:
    """Record some steps of one workload, at its largest device count, and analyze them.

    Args:
        experiment: Describes one workload.
        output_dir: A run folder, new or to be joined; ``results/profile-<model>-<time>`` by
            default.
        seconds: Record this long, in whole steps,
        max_steps: but no more steps than this; 200 with torch.profiler and 1000 with nsys by
            default.
        target: What the recording is for.
        tool: Which profiler records.
        any_workload: Take the first of several workloads, and say which.
        observer: Shows messages.

    Raises:
        UsageError: the experiment describes several workloads.
        MachineError: this machine cannot run it, or lacks the profiler.
        StoreError: ``output_dir`` cannot be read.
        OutputError: it cannot be written.
    """
    planned = plan_run(experiment, observer)
    cell = one_workload(planned.plan, observer if any_workload else None)
    directory = output_dir or timestamped(f"profile-{_safe_name(cell.model)}")
    with observer.status("Looking for a profiler"):
        choice = choose_tool(tool.value, planned.plan.device)
    if choice.note:
        observer.note(choice.note)
    env = hidden_environment(planned.experiment)
    profiler = RecordingProfiler(
        planned.plan, choice, target, seconds, max_steps, planned.limits, env
    )
    profiled_only = (PlannedCell(cell=cell, skip_reason=PROFILED_ONLY),)
    with measuring(directory) as stop:
        folder = RunFolder.join(
            directory, planned.experiment_file().model_copy(update={"plan": profiled_only})
        )
        observer.note(f"Recording {cell_label(cell)} with {choice.tool.value}")
        write_derived_files(folder)  # the folder has a cell more
        with observer.status(f"Recording {seconds:g} s of steps, once they are steady"):
            profile = profiler.profile(cell, folder.begin_profile(cell), stop, lambda _: None)
        return ProfileOutcome(
            profile.directory, None if stop.asked else profile, directory, stop.asked
        )


def profile_program(
    command: Sequence[str],
    *,
    output_dir: Path | None = None,
    seconds: float = 10.0,
    max_steps: int | None = None,
    target: ProfileTarget = ProfileTarget.SYNC_STALLS,
    tool: ToolChoice = ToolChoice.AUTO,
    delay_seconds: float = 30.0,
    keep_running: bool = False,
    on_output: Callable[[bytes], None] = lambda _: None,
    on_profile: Callable[[ProfileOutcome], None] = lambda _: None,
    observer: Observer = SILENT,
) -> ProfileOutcome:
    """Record the user's own training and analyze it; nsys runs the command unmodified.

    Args:
        command: argv of the program.
        output_dir: Where the recording goes; ``results/profile-<program>-<time>`` by default.
        seconds, max_steps, target, tool: Options as of :func:`profile_workload`.
        delay_seconds: Under nsys, the time before recording starts; 0 for none.
        keep_running: Whether the program is left alone until it ends by itself.
        on_output: Gets what the program prints.
        on_profile: Called once with what was recorded and analyzed, while a program that is kept
            may still run.
        observer: Shows messages.

    Raises:
        UsageError: ``output_dir`` holds a recording already.
        MachineError: the program cannot be started, or the profiler cannot be used.
        OutputError: ``output_dir`` cannot be created.
    """
    directory = output_dir or timestamped(f"profile-{_program_name(command)}")
    with observer.status("Looking for a profiler"):
        choice = choose_tool_for(command, tool.value)
    if choice.note:
        observer.note(choice.note)
    make_directory(directory)
    if (directory / "recording.json").exists() or any(directory.glob("recorded-rank-*.json")):
        raise UsageError(f"{directory} holds a recording already", hint="name another --output-dir")
    request = RecordRequest(
        tool=choice.tool,
        target=target,
        directory=str(directory.resolve()),
        seconds=seconds,
        max_steps=most_steps(max_steps, choice.tool),
    )
    handed_on: list[ProfileOutcome] = []

    def hand_on(recording: Recording) -> None:
        with observer.status("Analyzing the recording"):
            profile = analyze_recording(directory, recording)
        handed_on.append(ProfileOutcome(directory, profile, directory))
        if profile.analysis is not None:
            on_profile(handed_on[0])
        observer.note("The program goes on; Ctrl-C ends it")

    program = UserRun(
        command=command,
        delay_seconds=delay_seconds,
        keep_running=keep_running,
        timeout_seconds=_PROGRAM_MARGIN_SECONDS + delay_seconds + seconds,
        env={RECORD_VARIABLE: request.model_dump_json()} if choice.tool is Tool.KINETO else {},
        on_output=on_output,
        on_recorded=hand_on,
    )
    adopt_orphans()
    with stop_on_signals() as stop:
        recording = record_program(program, request, choice.nsys, stop)
        is_interrupted = stop.asked and recording.exit_code is None
        if is_interrupted and not recording.files:
            observer.note("Interrupted before anything was recorded")
            return ProfileOutcome(directory, None, directory, is_interrupted)
        if recording.files and recording.exit_code is None and not (keep_running or is_interrupted):
            observer.note("The recording is complete: the program was ended")
        if handed_on and handed_on[0].profile is not None:
            profile = replace(handed_on[0].profile, recording=recording)
        else:
            with observer.status("Analyzing the recording"):
                profile = analyze_recording(directory, recording)
        outcome = ProfileOutcome(directory, profile, directory, is_interrupted)
        if profile.analysis is not None and not handed_on:
            on_profile(outcome)
        if profile.analysis is not None and recording.exit_code:
            observer.note(
                f"The program exited with {recording.exit_code}: "
                f"{recording.failure or 'it printed nothing'}"
            )
        return outcome


def _safe_name(text: str) -> str:
    """``my.net:build`` → ``my.net-build``: for a directory."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:60] or "workload"


def _program_name(command: Sequence[str]) -> str:
    """``train`` of ``torchrun … train.py``, else the program itself."""
    return _safe_name(program_name(command).removesuffix(".py"))
