"""What a search for the fastest setting gave, and its document for programs and the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchscale.config.strategy import strategy_options
from torchscale.errors import ExitCode
from torchscale.features.decide.tune.export_schema import (
    ChangeExport,
    ContributionExport,
    RatioExport,
    RunnerUpExport,
    StrategyExport,
    StrategyState,
    TuningExport,
    TuningTrialExport,
)
from torchscale.features.decide.tune.gains import Gain
from torchscale.features.decide.tune.search import RunnerUp, SettingSearch
from torchscale.features.decide.tune.settings import SettingChange
from torchscale.features.decide.tune.space import Entry, StrategySpace
from torchscale.features.decide.tune.surface import AxisChange, Setting
from torchscale.features.decide.tune.trials import SettingTrial
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.state import State


@dataclass(frozen=True)
class TuneOutcome:
    """What a search gave.

    Attributes:
        directory: The run folder with every launch.
        search: Trials, winner, verification.
        cells: Setting → its cell.
        known: Every change that was considered.
        config: The file with the winning config; ``None`` where nothing better was verified.
        notes: What a user should know besides.
        title: What was tuned: ``ResNet-18, batch 32, 2 ranks``.
        interrupted: Whether Ctrl-C or TERM ended it.
        predicted_exposed_seconds: Bucket size → predicted exposed gradient sync of a step; empty
            where not predicted.
        space: The strategies that were compared; ``None`` where they were not searched.
        tokens_per_sample: Length of a sequence; ``None`` where samples have no tokens.
    """

    directory: Path
    search: SettingSearch
    cells: Mapping[Setting, TrainingCell]
    known: Mapping[AxisChange, SettingChange]
    config: Path | None
    notes: tuple[str, ...]
    title: str
    interrupted: bool
    predicted_exposed_seconds: Mapping[str, float] = field(default_factory=dict)
    space: StrategySpace | None = None
    tokens_per_sample: float | None = None

    @property
    def better(self) -> bool:
        """Whether a faster setting was verified, or one that runs where the config's own does
        not."""
        return self.config is not None

    @property
    def exit_code(self) -> ExitCode:
        """130 interrupted, 1 where the start could not be measured, 3 where the budget had no room
        for an answer, else 0: nothing better is an answer."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        if self.search.ending == "start failed":
            return ExitCode.FAILED
        if self.search.ending == "budget" and not self.better:
            return ExitCode.UNABLE
        return ExitCode.OK

    def export(self) -> TuningExport:
        """Everything that was tried and found, for programs and for the terminal."""
        search = self.search
        return TuningExport(
            ending=search.ending,
            better=self.better,
            winner=self._changes(search.winner),
            verified=_ratio(search.verified),
            contributions=tuple(
                ContributionExport(change=self._changes((one.change,))[0], gain=gain)
                for one in search.contributions
                if (gain := _ratio(one.gain)) is not None
            ),
            interaction=search.interaction,
            exposed_communication=_ratio(search.probe),
            predicted_exposed_seconds=dict(self.predicted_exposed_seconds),
            smallest_visible_gain=search.visible_gain,
            skipped=search.skipped,
            trials=tuple(map(self._trial, search.trials.values())),
            untried=self._changes(search.untried),
            budget_seconds=search.budget_seconds,
            launch_seconds=search.launch_seconds,
            launches_needed=search.launches_needed,
            seconds_needed=search.seconds_needed,
            seconds=search.spent_seconds,
            config=None if self.config is None else str(self.config),
            **self._of_strategies(),
        )

    def _of_strategies(self) -> dict[str, Any]:
        space, runner = self.space, self.search.runner_up
        if space is None:
            return {}
        return {
            "strategies": tuple(self._strategy(entry, space) for entry in space.entries),
            "start_strategy": space.start.choice.label,
            "moved_start": space.moved,
            "rank_memory_bytes": space.rank_bytes,
            "exhaustive_launches": space.exhaustive_launches,
            "runner_up": None if runner is None else self._runner_up(runner),
        }

    def _runner_up(self, runner: RunnerUp) -> RunnerUpExport | None:
        gain = _ratio(runner.gain)
        if gain is None:
            return None
        return RunnerUpExport(changes=self._changes(runner.setting), gain=gain)

    def _strategy(self, entry: Entry, space: StrategySpace) -> StrategyExport:
        """What is known of a strategy: in its fastest setting, or if all failed in its last."""
        mine = [
            trial
            for setting, trial in self.search.trials.items()
            if space.entry_of(setting) == entry
        ]
        best = max(mine, key=lambda trial: (bool(trial.logs), _mean(trial)), default=None)
        rate = None if best is None or not best.logs else math.exp(_mean(best))
        tokens = self.tokens_per_sample
        over = None if best is None else self.search.over_choice(best.setting)
        state, reason = self._state(entry, best, space)
        return StrategyExport(
            strategy=entry.choice.label,
            config={"name": entry.choice.strategy.name, **strategy_options(entry.choice.strategy)},
            predicted_bytes=None if entry.need is None else entry.need.rank_bytes,
            predicted_at_least=entry.need is not None and entry.need.at_least,
            state=state,
            reason=reason,
            throughput=rate,
            tokens_per_second=None if rate is None or tokens is None else rate * tokens,
            launches=sum(trial.launches for trial in mine),
            against_fastest=None if state == "fastest" else _ratio(over),
        )

    def _state(
        self, entry: Entry, best: SettingTrial | None, space: StrategySpace
    ) -> tuple[StrategyState, str]:
        if entry.left_out:
            return "left out", entry.left_out
        if best is None:
            return "not launched", self._why_not_launched
        if not best.logs:
            return "failed", f"{best.state}: {best.reason}"
        if entry == space.entry_of(self.search.choice):
            return "fastest", ""
        over = self.search.over_choice(best.setting)
        if over is not None and over.interval()[1] < 1:
            return "slower", ""
        return "tie", ""

    @property
    def _why_not_launched(self) -> str:
        if self.search.ending != "complete":
            return "the search ended before"
        if self.search.is_cut_short:
            return "the launches were used for what was expected to be faster"
        return "what was measured of its parts lets expect less"

    def _changes(self, setting: Setting) -> tuple[ChangeExport, ...]:
        entries = ((change, self.known[change]) for change in setting)
        return tuple(
            ChangeExport(axis=change.axis, setting=entry.key, value=change.value, note=entry.note)
            for change, entry in entries
        )

    def _trial(self, trial: SettingTrial) -> TuningTrialExport:
        return TuningTrialExport(
            changes=self._changes(trial.setting),
            cell_id=self.cells[trial.setting].id,
            state=trial.state,
            reason=trial.reason,
            throughput=math.exp(math.fsum(trial.logs) / len(trial.logs)) if trial.logs else None,
            launches=trial.launches,
            seconds=trial.seconds,
            gain=_ratio(trial.gain) if trial.state == State.OK.value else None,
            verdict=trial.verdict.value,
        )


def _ratio(gain: Gain | None) -> RatioExport | None:
    if gain is None:
        return None
    low, high = gain.interval()
    return RatioExport(ratio=gain.ratio, low=low, high=high, launches=gain.rounds)


def _mean(trial: SettingTrial) -> float:
    return math.fsum(trial.logs) / len(trial.logs) if trial.logs else -math.inf
