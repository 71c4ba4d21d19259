"""The launches of a search so far: what each setting measured, how long launches take, and how much
they scatter."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

from torchscale.features.decide.tune.gains import Gain, GainVerdict, verdict_of
from torchscale.features.decide.tune.surface import START, Setting

_USUAL_NOISE, _USUAL_DEGREES = 0.03, 1
"""Standard deviation from launch to launch before any is known, and what that counts: as much as
two launches of one setting."""


@dataclass(frozen=True)
class SettingLaunch:
    """How a launch of a setting ended.

    Attributes:
        log: Logarithm of its throughput; ``None`` where it failed.
        seconds: Wall time that it took.
        state: ``ok``, or how it failed.
        reason: Why it failed.
        recorded: Whether it ran before, and takes nothing of the budget.
    """

    log: float | None
    seconds: float
    state: str = "ok"
    reason: str = ""
    recorded: bool = False


@dataclass
class SettingTrial:
    """All launches of one setting.

    Attributes:
        setting: What was measured.
        logs: Logarithms of the launches that succeeded.
        launch_seconds: Wall time of each.
        state: ``ok``, or how its last launch failed.
        reason: Why.
        gain: Over the start, of the means of all launches; ``None`` for the start, and where it
            failed.
        verdict: What that says.
    """

    setting: Setting
    logs: list[float] = field(default_factory=list)
    launch_seconds: list[float] = field(default_factory=list)
    state: str = "ok"
    reason: str = ""
    gain: Gain | None = None
    verdict: GainVerdict = GainVerdict.OPEN

    @property
    def launches(self) -> int:
        """How many there were, failed ones too."""
        return len(self.launch_seconds)

    @property
    def seconds(self) -> float:
        """Wall time of all."""
        return math.fsum(self.launch_seconds)


class SettingTrials:
    """All launches so far.

    Attributes:
        of: Trials by setting, in the order in which they were first measured.
        history: Settings that were launched with the logarithms of their throughput, in order; not
            of a run that exchanges nothing.
        spent_seconds: Wall time of all launches.
        new_seconds: That of those that had not run before.
    """

    def __init__(self, costs: Mapping[str, float], probe: Setting) -> None:
        """
        Args:
            costs: Axis → how many times longer than others a launch with a change of it is expected
                to take, until there was one.
            probe: Exchanges nothing.
        """
        self._costs, self._probe = dict(costs), probe
        self.of: dict[Setting, SettingTrial] = {}
        self.history: list[tuple[Setting, float]] = []
        self.spent_seconds = self.new_seconds = 0.0

    @property
    def launch_seconds(self) -> float | None:
        """Wall time of a launch: the median over settings; ``None`` before the first."""
        seen = [
            statistics.median_low(trial.launch_seconds)
            for trial in self.of.values()
            if trial.launches
        ]
        if not seen:
            return None
        return statistics.median_low(seen)

    def expected_seconds(self, setting: Setting) -> float:
        """Wall time of its next launch: as those before it took, or those of its most expensive
        change alone."""
        typical = self.launch_seconds or 0.0
        trial = self.of.get(setting)
        if trial is not None and trial.launches:
            own = statistics.median_low(trial.launch_seconds)
            # The very first launch finds no file in memory: measured 2 to 3 times as long as the
            # next.
            is_cold = setting == START and trial.launches == 1
            return min(own, typical) if is_cold else own
        if len(setting) == 1:
            return typical * self._costs.get(setting[0].axis, 1.0)
        return max((self.expected_seconds((change,)) for change in setting), default=typical)

    @property
    def noise(self) -> tuple[float, int]:
        """Variance of the logarithm from launch to launch of a setting, pooled over all, and its
        degrees of freedom."""
        several = [trial.logs for trial in self.of.values() if len(trial.logs) > 1]
        degrees = sum(len(logs) - 1 for logs in several) + _USUAL_DEGREES
        squares = sum(statistics.variance(logs) * (len(logs) - 1) for logs in several)
        return (squares + _USUAL_DEGREES * _USUAL_NOISE**2) / degrees, degrees

    def gain(self, setting: Setting, over: Setting = START) -> Gain | None:
        """Gain of a setting over another, from the means of all launches; a setting that varies
        more than the others counts with its own variance. ``None`` where one was not measured."""
        mine, theirs = (self.of[one].logs if one in self.of else [] for one in (setting, over))
        if not mine or not theirs:
            return None
        variance, degrees = self.noise
        own = [
            max(variance, statistics.variance(logs)) if len(logs) > 2 else variance
            for logs in (mine, theirs)
        ]
        error = math.sqrt(own[0] / len(mine) + own[1] / len(theirs))
        rounds = min(len(mine), len(theirs))
        return Gain(statistics.fmean(mine) - statistics.fmean(theirs), error, degrees, rounds)

    def ran(self, setting: Setting) -> bool:
        """Whether its last launch did not fail."""
        return setting in self.of and self.of[setting].state == "ok"

    def runs(self, setting: Setting) -> int:
        """How many launches of it succeeded."""
        if setting not in self.of:
            return 0
        return len(self.of[setting].logs)

    def note(self, setting: Setting, measured: SettingLaunch) -> None:
        """Add what a launch measured."""
        trial = self.of.setdefault(setting, SettingTrial(setting))
        trial.launch_seconds.append(measured.seconds)
        self.spent_seconds += measured.seconds
        if not measured.recorded:
            self.new_seconds += measured.seconds
        trial.state, trial.reason = measured.state, measured.reason
        if measured.log is None:
            return
        trial.logs.append(measured.log)
        if setting != self._probe or setting == START:
            self.history.append((setting, measured.log))
        for one in self.of.values() if setting == START else (trial,):
            if one.setting != START and one.state == "ok":
                one.gain = self.gain(one.setting)
                one.verdict = GainVerdict.OPEN if one.gain is None else verdict_of(one.gain)
