"""The rounds of ``validate --acceptance``: everything is measured once on every device, again and
again, until the figures can be judged or the time is over."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from torchscale.features.validate.acceptance.figures import (
    RoundFigure,
    round_conditions,
    round_figures,
    series_of,
)
from torchscale.features.validate.acceptance.power import predict_power, round_noise
from torchscale.features.validate.acceptance.rounds import is_narrow, undisturbed, widest_interval
from torchscale.features.validate.names import ACCEPTANCE
from torchscale.features.validate.run.acceptance_plan import (
    expected_seconds,
    plan_rounds,
    refuse_other,
    what_is_asked,
)
from torchscale.features.validate.run.burn_in import gpu_use
from torchscale.features.validate.run.surroundings import (
    counted,
    numbers_of_gpus,
    outside_conditions,
    read_counters,
)
from torchscale.features.validate.text.acceptance import power_lines, round_line
from torchscale.launch.control import StopRequest
from torchscale.launch.counters import CounterReading
from torchscale.launch.machine import detect_machine
from torchscale.launch.telemetry import sampling
from torchscale.measure.context import PlannedRun, measuring
from torchscale.measure.launcher import Launcher, Pending, open_launcher
from torchscale.observer import Observer
from torchscale.schema.ident import file_name
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.node.acceptance import Acceptance, AcceptanceRun, Baseline, Power, Round
from torchscale.schema.node.policy import Policy
from torchscale.schema.node.probe import NodeFacts
from torchscale.schema.state import State
from torchscale.store.derived_files import write_derived_files
from torchscale.store.run_folder import RunFolder
from torchscale.util.control_groups import cpu_quota
from torchscale.util.cpu import is_virtual
from torchscale.util.files import atomic_write_model
from torchscale.util.scratch import scratch_directory
from torchscale.util.units import format_coarse_seconds
from torchscale.util.words import plural

BUDGET_SECONDS = 1200.0
_READING_SECONDS = 1.0
_MAX_ROUNDS = 10_000
"""More than a week has of the shortest rounds."""
_PREDICT_AFTER = (2, 5)
"""Two rounds are the first that tell anything of the noise, and tell little; five tell more."""
_OTHER_BUDGETS = (300.0, 1200.0, 3600.0)

Ended = Literal["narrow", "budget", "interrupted", "failed"]


@dataclass(frozen=True)
class AcceptanceOptions:
    """What an acceptance is asked for.

    Attributes:
        budget_seconds: Time for its rounds.
        baseline: An earlier acceptance to hold it against.
        policy: What *keep* asks for.
        nodes: Nodes that are accepted together.
        sizes: Overrides of what a round measures, by key of the config: for tests and small
            machines.
    """

    budget_seconds: float = BUDGET_SECONDS
    baseline: Baseline | None = None
    policy: Policy = field(default_factory=Policy)
    nodes: int = 1
    sizes: Mapping[str, object] = field(default_factory=dict)


def measure_acceptance(
    facts: NodeFacts,
    options: AcceptanceOptions,
    *,
    output_dir: Path,
    stop: StopRequest | None = None,
    observer: Observer,
) -> Acceptance:
    """Measure the rounds of this node, in a folder of their own in ``output_dir``.

    Args:
        facts: Of this node.
        options: Budget and baseline.
        output_dir: Where results go; its disk is measured.
        stop: Ends it after the running launch; ``None``: Ctrl-C does.
        observer: Gets the prediction, and a line for each round.

    Raises:
        MachineError: torch cannot be used.
        UsageError: the baseline is of another kind of device.
        OutputError: the folder cannot be written.
    """
    planned = plan_rounds(detect_machine(), output_dir, options.sizes)
    refuse_other(options.baseline, planned)
    moment = f"{datetime.now():%Y%m%d-%H%M%S}"
    hostname = file_name(planned.machine.environment.hostname)
    directory = output_dir / f"acceptance-{hostname}-{moment}"
    with measuring(directory) as own:
        folder = RunFolder.create(directory, planned.experiment_file())
        asked = own if stop is None else stop
        rounds = _Rounds(planned, folder, facts, options, asked, observer)
        acceptance = Acceptance(
            folder=directory.name,
            run=rounds.measure(),
            baseline=options.baseline,
            power=rounds.power,
        )
        atomic_write_model(directory / ACCEPTANCE, acceptance)
        write_derived_files(folder)
    observer.note(f"Records and {ACCEPTANCE}, a baseline for later nodes: {directory}")
    observer.note(f"As a page: torchscale report {shlex.quote(str(directory))}")
    return acceptance


@dataclass
class _Rounds:
    """The rounds of one acceptance, as they are measured."""

    planned: PlannedRun
    folder: RunFolder
    facts: NodeFacts
    options: AcceptanceOptions
    stop: StopRequest
    observer: Observer
    power: Power | None = None
    ended: Ended = "budget"
    rounds: list[Round] = field(default_factory=list)
    figures: list[list[RoundFigure]] = field(default_factory=list)
    counters: list[CounterReading] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def measure(self) -> AcceptanceRun:
        """Rounds until they can be judged, or the time is over."""
        plan = self.planned.plan
        self._predict(expected_seconds(self.planned, self.options.baseline)[0])
        self.counters = read_counters(self.facts)
        with open_launcher(
            self.planned.experiment, plan, self.folder, self.stop, lambda _: None
        ) as launcher:
            while self._goes_on():
                self._measure_round(launcher)
                self._report()
        new_counts = counted(self.counters, read_counters(self.facts))
        return self.run().model_copy(update={"counters": new_counts})

    def run(self) -> AcceptanceRun:
        """What was measured so far."""
        plan, environment = self.planned.plan, self.planned.machine.environment
        versions = environment.versions.model_dump()
        return AcceptanceRun(
            hostname=environment.hostname,
            device=plan.device,
            asked=what_is_asked(plan.to_run),
            world_size=max(cell.world_size for cell in plan.to_run),
            virtual_cores=plan.device == "cpu" and is_virtual(),
            nodes=self.options.nodes,
            versions={
                **{name: value for name, value in versions.items() if value is not None},
                "kernel": environment.system,
            },
            budget_seconds=self.options.budget_seconds,
            seconds=time.monotonic() - self.began,
            ended=self.ended,
            rounds=tuple(self.rounds),
            series=series_of(self.figures),
        )

    def _goes_on(self) -> bool:
        """Whether there is a next round."""
        if self.stop.asked:
            self.ended = "interrupted"
            return False
        if not self.rounds:
            return True
        last = self.rounds[-1]
        if len(self.rounds) > 1 and all(each.problems for each in self.rounds[-2:]):
            self.ended = "failed"
            return False
        if is_narrow(self.run(), self.options.policy.rounds):
            self.ended = "narrow"
            return False
        left = self.options.budget_seconds - (time.monotonic() - self.began)
        return left >= last.seconds and len(self.rounds) < _MAX_ROUNDS

    def _measure_round(self, launcher: Launcher) -> None:
        plan, began = self.planned.plan, time.time()
        started = time.monotonic()
        records: list[LaunchRecord] = []
        figures: list[RoundFigure] = []
        problems: list[str] = []
        left = list(plan.to_run)
        number, numbers = len(self.rounds), numbers_of_gpus(self.facts)
        quota = cpu_quota()
        uuids = tuple(plan.uuids.values())
        with (
            scratch_directory("acceptance") as directory,
            sampling(directory, _READING_SECONDS if uuids else None, uuids),
            self.observer.status(f"Round {number + 1}") as say,
        ):
            while left and not self.stop.asked:
                cell = left[0]
                say(f"Round {number + 1}: {cell.title}")
                record = launcher.run(Pending(cell, number))
                if record.state is State.INTERRUPTED:
                    break
                left.pop(0)
                records.append(record)
                figures += round_figures(cell, record, numbers)
                if record.state is not State.OK:
                    problems.append(f"{cell.title}: {record.state.value}: {record.reason}")
            gpus = gpu_use(directory, began, uuids)
        if not records:  # interrupted before anything was measured
            return
        seconds = time.monotonic() - started
        outside = outside_conditions(records, gpus, quota, seconds, self.planned.machine.node_cores)
        self.figures.append(figures)
        self.rounds.append(
            Round(
                started_at=datetime.fromtimestamp(began, timezone.utc).isoformat(
                    timespec="seconds"
                ),
                seconds=seconds,
                conditions=round_conditions(records, outside),
                problems=tuple(problems),
                missing=tuple(cell.title for cell in left),
            )
        )

    def _report(self) -> None:
        """A line on the round that has ended; after some, what the rest can tell."""
        if self.stop.asked:
            self.observer.note(f"Interrupted after {plural(len(self.rounds), 'round')}")
            return
        run = self.run()
        left = max(0.0, self.options.budget_seconds - run.seconds)
        self.observer.note(round_line(run, left, widest_interval(run)))
        if len(self.rounds) in _PREDICT_AFTER:
            mean = sum(each.seconds for each in self.rounds) / len(self.rounds)
            self._predict(mean, round_noise(run, undisturbed(run) or (0, 1)))

    def _predict(self, round_seconds: float, noise: Mapping[str, float] | None = None) -> None:
        run_series = series_of(self.figures)
        kinds: dict[str, int] = {}
        for series in run_series:
            kinds[series.figure] = kinds.get(series.figure, 0) + 1
        baseline = self.options.baseline
        powers = [
            predict_power(
                budget,
                round_seconds,
                noise or {},
                figures=max(10, len(run_series)) * self.options.nodes,
                peers=max(kinds.values(), default=0),
                nodes=self.options.nodes,
                baseline_rounds=None if baseline is None else len(undisturbed(baseline.run)),
                measured=len(self.rounds) if noise else 0,
                loss=self.options.policy.baseline_loss_percent / 100,
            )
            for budget in (self.options.budget_seconds, *_OTHER_BUDGETS)
        ]
        self.power = powers[0]
        others = dict(zip(_OTHER_BUDGETS, powers[1:], strict=True))
        for line in power_lines(powers[0], others, has_baseline=baseline is not None):
            self.observer.note(line)
        least = self.options.policy.rounds
        if powers[0].rounds < least:
            self.observer.note(
                f"warning: {format_coarse_seconds(self.options.budget_seconds)} are about "
                f"{plural(powers[0].rounds, 'round')}, and keep asks for {least}: about "
                f"--budget {least * round_seconds:.0f}s"
            )
