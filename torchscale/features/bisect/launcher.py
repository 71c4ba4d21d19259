"""One launch of the command in an environment, and the figure that it gave."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from torchscale.errors import MachineError
from torchscale.features.bisect.cell import cell_seconds, is_benchmark, one_launch
from torchscale.features.bisect.printed import NoNumberError, PrintedNumber, check_pattern
from torchscale.features.bisect.state import LARGEST_FIGURE, LEAST_FIGURE
from torchscale.features.watch.job.logged_program import ProgramEnd, run_logged
from torchscale.features.watch.job.program_steps import ProgramSteps
from torchscale.launch.control import StopRequest
from torchscale.util.files import make_directory, remove_tree
from torchscale.util.interpreter import installed_program
from torchscale.util.processes.subprocesses import tail
from torchscale.util.redaction import redact_text
from torchscale.util.units import format_seconds

MetricName = Literal["step", "wall", "cpu", "number", "change"]
TIMEOUT_SECONDS = 1800.0
"""Of a launch by default, as of a launch of a benchmark."""
LAUNCH_SECONDS = 5.0
"""Steps are measured for so long in a launch by default: what differs from launch to launch is not
averaged out by longer ones."""
_LOG_BYTES = 1 << 20


@dataclass(frozen=True)
class LaunchMetric:
    """What a launch is judged by; of every one less is better, but for ``change``.

    Attributes:
        name: ``step``: mean seconds of an optimizer's step. ``wall``: seconds from start to end of
            the command. ``cpu``: seconds of CPU time of all its processes. ``number``: what it
            prints. ``change``: any number that it prints or writes; the question is whether it
            changed.
        pattern: Of ``number``: its first group is the number; the last line that matches counts.
        higher_is_better: Of ``number``: a rate, whose inverse counts.
        source: Of ``change``: where the number is found.
    """

    name: MetricName
    pattern: str = ""
    higher_is_better: bool = False
    source: PrintedNumber = field(default_factory=PrintedNumber)

    def __post_init__(self) -> None:
        """
        Raises:
            UsageError: the pattern is none, or has no group.
        """
        if self.name == "number":
            check_pattern(self.pattern)

    @property
    def unit(self) -> str:
        """Of its figures; empty for a number that is printed."""
        return "" if self.name in ("number", "change") else "s"

    def shown(self, value: float) -> str:
        """A figure with its unit."""
        if self.name == "change":
            return repr(value)
        return f"{value:.6g}" if self.name == "number" else format_seconds(value, 4)

    def printed(self, text: str) -> float | None:
        """The last number that a program printed by the pattern, as it stands there; ``None`` for
        none that is a figure."""
        matches = list(re.finditer(self.pattern, text))
        if not matches:
            return None
        try:
            value = float(matches[-1][1].replace(",", ""))
        except (ValueError, AttributeError):
            return None
        return value if is_figure(value) else None


def is_figure(value: float) -> bool:
    """Whether a launch can have it: more than nothing, and no more than can be weighed."""
    return LEAST_FIGURE <= value <= LARGEST_FIGURE


@dataclass(frozen=True)
class Launch:
    """How a launch ended.

    Attributes:
        value: Seconds, or the number that was printed; ``None`` where it failed.
        state: ``ok``, ``failed``, ``timeout`` or ``interrupted``.
        reason: Why it failed.
        seconds: Wall time.
    """

    value: float | None
    state: Literal["ok", "failed", "timeout", "interrupted"]
    reason: str
    seconds: float


@dataclass(frozen=True)
class CommandLauncher:
    """Starts the command.

    Attributes:
        command: argv.
        metric: What counts.
        logs: Directory for what launches print.
        timeout_seconds: Of a launch.
        stop: Whether the user wants to stop.
        launch_seconds: For how long steps are measured.
    """

    command: tuple[str, ...]
    metric: LaunchMetric
    logs: Path
    timeout_seconds: float
    stop: StopRequest
    launch_seconds: float = LAUNCH_SECONDS

    def run(self, number: int, variables: Mapping[str, str], cwd: Path | None) -> Launch:
        """Launch ``number`` with these variables, in ``cwd`` or here. No process is left.

        Raises:
            MachineError: the command cannot be started.
            OutputError: the log cannot be written.
        """
        make_directory(self.logs)
        if self._program(variables) is None:
            raise MachineError(f"cannot start {self.command[0]}: no such program")
        log = self.logs / f"launch-{number:03d}.log"
        # Of a launch that was interrupted; a link or a pipe is no log of ours.
        for earlier in (log, log.with_suffix("")):
            remove_tree(earlier)
        if self.metric.name == "change":
            before = self.metric.source.written(cwd)
            return self._with_number(self._run(log, variables, cwd, None), log, cwd, before)
        if self.metric.name != "step" or self.is_cell:
            return self._run(log, variables, cwd, None)
        steps = ProgramSteps(self.command, log.with_suffix(""), self.launch_seconds)
        try:
            return self._run(log, steps.environment(variables), cwd, steps)
        finally:
            steps.close()

    def _program(self, variables: Mapping[str, str]) -> str | None:
        """The program of the command; torchscale's own need not be on PATH."""
        found = shutil.which(self.command[0], path=variables.get("PATH"))
        if found is None and self.command[0] == "torchscale":
            return installed_program("torchscale")
        return found

    @property
    def is_cell(self) -> bool:
        """Whether torchscale itself is launched."""
        return is_benchmark(self.command)

    def _run(
        self, log: Path, variables: Mapping[str, str], cwd: Path | None, steps: ProgramSteps | None
    ) -> Launch:
        command = self.command
        if self.is_cell:
            program = self._program(variables) or command[0]
            command = one_launch((program, *command[1:]), log.with_suffix(""))
        end = run_logged(
            command,
            log,
            variables,
            cwd=cwd,
            timeout_seconds=self.timeout_seconds,
            stop=self.stop,
            is_measured=(lambda: False) if steps is None else steps.is_measured,
        )
        if end.state != "ok":
            return Launch(None, end.state, end.reason, end.seconds)
        return self._measured(log, steps, end)

    def _with_number(
        self, launch: Launch, log: Path, cwd: Path | None, before: tuple[int, ...]
    ) -> Launch:
        """A launch with the number that it printed or wrote, where it did not fail."""
        if launch.state != "ok":
            return launch
        try:
            return replace(launch, value=self.metric.source.read(log, cwd, before))
        except NoNumberError as error:
            return Launch(None, "failed", redact_text(str(error)), launch.seconds)

    def _measured(self, log: Path, steps: ProgramSteps | None, end: ProgramEnd) -> Launch:
        value: float | None = end.seconds
        problem = ""
        if steps is not None:
            value = steps.seconds()
            problem = steps.shortfall if value is None else ""
        elif self.metric.name == "step":
            value, problem = cell_seconds(log.with_suffix(""))
        elif self.metric.name == "cpu":
            value = end.cpu_seconds
        elif self.metric.name == "number":
            value = self.metric.printed(tail(log, _LOG_BYTES))
            problem = (
                f"printed no number from {LEAST_FIGURE:g} to {LARGEST_FIGURE:g} that "
                f"{self.metric.pattern!r} finds"
            )
        if value is not None and not is_figure(value):
            value, problem = None, f"its {self.metric.name} is {value:g} s, too little to be timed"
        if value is None:
            return Launch(None, "failed", problem, end.seconds)
        return Launch(value, "ok", "", end.seconds)
