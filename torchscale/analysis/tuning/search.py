"""The search for the fastest setting: races single changes against the start, combines the winners, tries the rest once
more around the combination, and verifies the winner against the start in launches of its own. Pure: it asks for
launches and is told what they measured.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from torchscale.analysis.stats.series import student_t_quantile
from torchscale.analysis.tuning.racing import (
    MARGIN,
    Gain,
    Race,
    Verdict,
    paired_gain,
    smallest_visible,
)

ROUNDS = 5
"""Of a race: the standard error of five paired rounds is 0.63 of a launch's noise, and each further round takes as long
as the first for less and less."""
MOST_ROUNDS = 12
"""Of settings that seem to gain after five, while the noise hides whether they do: the standard error of twelve is two
thirds of that of five."""
_PROBE_ROUNDS = 4
"""Start against a run that exchanges nothing: with fewer than three degrees of freedom an interval is wide."""
_MIN_PAIRS, _MAX_PAIRS = 4, 12
"""Of the verification: below four its t quantile is above 3; twelve halve the interval of four."""
_HOPELESS = math.log(0.9)
"""What loses a tenth by itself is not tried again with others: interactions of the settings here are smaller."""
_RESERVE = 0.4
"""Largest share of the budget that is kept for combining and verifying."""
_ONE_SIDED = 0.95
"""Confidence that a change gains before it is combined; the verification decides, so this is not corrected for the
number of changes."""


class Change(NamedTuple):
    """One key of the start at another value."""

    axis: str
    value: str


Setting = tuple[Change, ...]
"""Changes of the start, by axis; empty for the start itself."""

START: Setting = ()


@dataclass(frozen=True)
class Measured:
    """How a launch of a setting ended.

    Attributes:
        log: Logarithm of its throughput; ``None`` where it failed.
        seconds: Wall time that it took.
        state: ``ok``, or how it failed.
        reason: Why it failed.
    """

    log: float | None
    seconds: float
    state: str = "ok"
    reason: str = ""


@dataclass
class Trial:
    """All launches of one setting.

    Attributes:
        setting: What was measured.
        logs: Of the launches that succeeded.
        seconds: Wall time of all.
        state: ``ok``, or how its last launch failed.
        reason: Why.
        gain: Over the start, from the race that measured both; ``None`` where they share no round.
        verdict: What ended its race.
    """

    setting: Setting
    logs: list[float] = field(default_factory=list)
    seconds: float = 0.0
    launches: int = 0
    state: str = "ok"
    reason: str = ""
    gain: Gain | None = None
    verdict: Verdict = Verdict.OPEN


class Contribution(NamedTuple):
    """What one change of the winner gives: the winner over the winner without it."""

    change: Change
    gain: Gain


Ending = Literal["complete", "budget", "interrupted", "start failed"]


class Search:
    """A search over changes along axes. Drive :meth:`launches`; every attribute is valid at any time.

    Attributes:
        trials: By setting, in the order in which they were first measured.
        winner: The fastest setting so far; the start where nothing is known to be faster.
        verified: The winner over the start, in alternating launches that decided nothing else.
        contributions: What each change of the winner gives.
        probe: The gain of exchanging nothing at all over the start; ``None`` where it was not measured.
        skipped: Axis → why nothing was tried on it.
        ending: Why the search is over.
    """

    def __init__(
        self,
        axes: Mapping[str, Sequence[Change]],
        *,
        budget_seconds: float,
        probe: Setting = START,
        probed: Sequence[str] = (),
        choose: Callable[[str, Sequence[Change]], Sequence[Change]] = lambda _, changes: changes,
    ) -> None:
        """``probe``: exchanges nothing. The axes in ``probed`` change communication alone: they are tried only if the
        probe gains anything, and then with the changes that ``choose`` returns for an axis."""
        self._axes, self._budget, self._probe, self._probed = dict(axes), budget_seconds, probe, tuple(probed)
        self._choose = choose
        self.trials: dict[Setting, Trial] = {}
        self.winner: Setting = START
        self.verified: Gain | None = None
        self.contributions: tuple[Contribution, ...] = ()
        self.probe: Gain | None = None
        self.skipped: dict[str, str] = {}
        self.ending: Ending = "interrupted"
        self.spent_seconds = 0.0
        self._noise: list[float] = []
        self._budget_used_up = False

    @property
    def is_verified(self) -> bool:
        """Whether the winner is faster than the start: the 95 % interval of launches by turns excludes no gain."""
        return self.verified is not None and self.verified.rounds >= _MIN_PAIRS and self.verified.interval()[0] > 1

    @property
    def visible_gain(self) -> float | None:
        """The smallest gain over the start that a verified comparison could have shown, as a share; ``None`` where
        nothing was measured twice."""
        if self.verified is not None:
            return smallest_visible(self.verified.error, self.verified.degrees)
        gains = [trial.gain for trial in self.trials.values() if trial.gain is not None and trial.state == "ok"]
        if not gains:
            return None
        largest = max(gains, key=lambda gain: gain.rounds)
        return smallest_visible(largest.error, largest.degrees)

    @property
    def interaction(self) -> float | None:
        """The winner's gain over the product of the gains of its changes alone, as a share: what they add to or take
        from each other. ``None`` for a winner of one change."""
        together = self.trials[self.winner].gain if self.winner in self.trials else None
        alone = [self.trials[change,].gain for change in self.winner if (change,) in self.trials]
        if len(self.winner) < 2 or together is None or len(alone) < len(self.winner):
            return None
        return math.expm1(together.log - math.fsum(gain.log for gain in alone if gain is not None))

    def launches(self) -> Generator[Setting, Measured, None]:
        """Settings to launch, one at a time; send what each measured."""
        self.ending = "interrupted"
        yield from self._probe_communication()
        singles: dict[Setting, str] = {(change,): axis for axis, changes in self._tried_axes() for change in changes}
        race = yield from self._race(START, singles)
        if self._start_failed:
            self.ending = "start failed"
            return
        best = self._best_of_axes(race, singles)
        if len(best) > 1:
            yield from self._combine(best)
        elif best:
            self.winner = best[0]
        if self.winner != START:
            for _ in self._axes:
                before = self.winner
                yield from self._try_around_the_winner()
                if self.winner == before:
                    break
            yield from self._verify()
        self.ending = "budget" if self._budget_used_up else "complete"

    @property
    def _start_failed(self) -> bool:
        start = self.trials.get(START)
        return start is not None and start.state != "ok"

    def _tried_axes(self) -> list[tuple[str, Sequence[Change]]]:
        return [(axis, changes) for axis, changes in self._axes.items() if axis not in self.skipped]

    def _probe_communication(self) -> Generator[Setting, Measured, None]:
        """Skip axes that change communication alone if a run without any is not faster."""
        axes = [axis for axis in self._probed if self._axes.get(axis)]
        if self._probe == START or not axes:
            return
        race = yield from self._race(START, {self._probe: "probe"}, rounds=_PROBE_ROUNDS, judged=False)
        self.probe = race.gain(self._probe)
        if self.probe is None:
            return
        low, high = self.probe.interval()
        if low <= 1:
            most = max(0.0, high - 1)
            for axis in axes:
                self.skipped[axis] = (
                    f"exposed communication cannot be told from noise: exchanging nothing at all gains at most "
                    f"{100 * most:.1f} %"
                )
            return
        for axis in axes:
            self._axes[axis] = tuple(self._choose(axis, self._axes[axis]))
            if not self._axes[axis]:
                self.skipped[axis] = "none is predicted to be faster"

    def _race(
        self, reference: Setting, groups: Mapping[Setting, str], *, rounds: int = ROUNDS, judged: bool = True
    ) -> Generator[Setting, Measured, Race[Setting]]:
        """Measure all once a round, in an order that turns around from round to round, until each is judged."""
        logs: dict[Setting, list[float]] = {setting: [] for setting in (reference, *groups)}
        still_open = list(groups)
        for number in range(rounds):
            order = [reference, *still_open]
            for setting in order if number % 2 == 0 else order[::-1]:
                if setting not in still_open and setting != reference:
                    continue
                if not self._affords(setting):
                    self._budget_used_up = True
                    if setting == reference:
                        return self._ended(Race(reference, logs), {})
                    still_open.remove(setting)  # a cheaper one may still fit
                    continue
                measured = yield setting
                trial = self._note(setting, measured)
                if measured.log is not None:
                    logs[setting].append(measured.log)
                elif setting == reference:
                    return self._ended(Race(reference, logs), {})
                else:
                    still_open.remove(setting)
                    logs[setting].clear()
                    trial.verdict = Verdict.OPEN
            race = Race(reference, logs)
            judging = {setting: groups[setting] for setting in groups if logs[setting]}
            verdicts = race.verdicts(judging, looks=rounds - 1) if judged else {}
            self._ended(race, verdicts)
            if number > 0:
                still_open = [one for one in still_open if verdicts.get(one, Verdict.OPEN) is Verdict.OPEN]
            if not still_open:
                break
        if judged:
            yield from self._measure_longer(reference, logs, still_open, rounds)
        return self._ended(Race(reference, logs), {})

    def _measure_longer(
        self, reference: Setting, logs: dict[Setting, list[float]], still_open: Sequence[Setting], rounds: int
    ) -> Generator[Setting, Measured, None]:
        """Further rounds of settings that seem to gain, until each surely does, seems to no more, or has had
        :data:`MOST_ROUNDS`. To ask after each round whether a change gains takes some that do not; the verification, in
        launches of its own, finds that."""
        for number in range(rounds, MOST_ROUNDS):
            race = Race(reference, logs)
            still_open = [one for one in still_open if self._is_promising(race.gain(one))]
            if not still_open:
                return
            order = [reference, *still_open]
            for setting in order if number % 2 == 0 else order[::-1]:
                if not self._affords(setting):
                    self._budget_used_up = True
                    return
                measured = yield setting
                self._note(setting, measured)
                if measured.log is None:
                    return
                logs[setting].append(measured.log)
            self._ended(Race(reference, logs), {})

    @staticmethod
    def _is_promising(gain: Gain | None) -> bool:
        return gain is not None and gain.log > MARGIN and gain.bound(1 - _ONE_SIDED) <= 0

    def _ended(self, race: Race[Setting], verdicts: Mapping[Setting, Verdict]) -> Race[Setting]:
        """Note gains over the start and verdicts with the trials."""
        for setting in race.logs:
            trial = self.trials.get(setting)
            if trial is None or setting == race.reference or trial.state != "ok":
                continue
            gain = race.gain(setting, START) if START in race.logs else None
            if gain is not None and (trial.gain is None or gain.rounds >= trial.gain.rounds):
                trial.gain = gain
            if setting in verdicts:
                trial.verdict = verdicts[setting]
        noise = race.noise
        if noise is not None:
            self._noise = [*self._noise[-1:], noise.variance]
        return race

    def _best_of_axes(self, race: Race[Setting], groups: Mapping[Setting, str]) -> list[Setting]:
        """The fastest setting of each group, where it is surely faster than the reference; fastest first."""
        best: dict[str, tuple[float, Setting]] = {}
        for setting, group in groups.items():
            gain = race.gain(setting)
            failed = setting in self.trials and self.trials[setting].state != "ok"
            if gain is None or failed or gain.bound(1 - _ONE_SIDED) <= 0:
                continue
            if group not in best or gain.log > best[group][0]:
                best[group] = gain.log, setting
        return [setting for _, setting in sorted(best.values(), reverse=True)]

    def _combine(self, best: Sequence[Setting]) -> Generator[Setting, Measured, None]:
        """The changes one upon the other, and all without each: the fastest of these wins."""
        nested = [_joined(best[: number + 1]) for number in range(len(best))]
        whole = nested[-1]
        without = [_without(whole, change) for change in whole]
        contenders = list(dict.fromkeys([*nested, *without]))
        race = yield from self._race(START, dict.fromkeys(contenders, "combination"))
        gains = {one: race.gain(one) for one in contenders if self._ran(one)}
        known = {one: gain for one, gain in gains.items() if gain is not None and gain.bound(1 - _ONE_SIDED) > 0}
        # a dropped setting's mean rests on fewer rounds; it lost to one that is still here
        alive = [one for one in known if self.trials[one].verdict is not Verdict.SLOWER] or list(known)
        self.winner = max(alive, key=lambda one: known[one].log, default=best[0])
        self._contribute(race)

    def _contribute(self, race: Race[Setting]) -> None:
        """What each change gives to the winner, from a race that had the winner with and without it."""
        found = {}
        for change in self.winner:
            gain = race.gain(self.winner, _without(self.winner, change))
            if gain is not None:
                found[change] = Contribution(change, gain)
        kept = {one.change: one for one in self.contributions if one.change in self.winner}
        self.contributions = tuple(
            found.get(change) or kept[change] for change in self.winner if change in found | kept
        )

    def _try_around_the_winner(self) -> Generator[Setting, Measured, None]:
        """Changes that lost by themselves may gain together with others: those that did not lose much once more."""
        winner = self.winner
        taken = {change.axis for change in winner}
        groups: dict[Setting, str] = {}
        for axis, changes in self._tried_axes():
            for change in changes:
                trial = self.trials.get((change,))
                gain = None if trial is None or trial.state != "ok" else trial.gain
                setting = _joined([_without_axis(winner, axis), (change,)])
                lost = gain is None or gain.log < _HOPELESS or trial is None or trial.verdict is Verdict.NO_GAIN
                if not lost and setting not in self.trials and (axis not in taken or len(winner) > 1):
                    groups[setting] = axis
        if not groups:
            return
        race = yield from self._race(winner, groups, rounds=ROUNDS)
        better = self._best_of_axes(race, groups)
        if better:
            self.winner = better[0]
            self._contribute(race)

    def _verify(self) -> Generator[Setting, Measured, None]:
        """Start and winner by turns (ABBA). How many pairs is fixed beforehand, from the noise of the races."""
        pairs: list[tuple[float, float]] = []
        for number in range(self._pairs_needed()):
            logs: dict[Setting, float] = {}
            for setting in (START, self.winner) if number % 2 == 0 else (self.winner, START):
                if not self._affords(setting, reserve=False):
                    self._budget_used_up = True
                    self.verified = paired_gain(pairs)
                    return
                measured = yield setting
                self._note(setting, measured)
                if measured.log is None:
                    return
                logs[setting] = measured.log
            pairs.append((logs[self.winner], logs[START]))
            self.verified = paired_gain(pairs)
        if len(self.winner) == 1 and self.verified is not None:
            self.contributions = (Contribution(self.winner[0], self.verified),)

    def _pairs_needed(self) -> int:
        """So many that the interval's half-width is about a third of the gain seen."""
        gain = self.trials[self.winner].gain
        if gain is None or not self._noise:
            return _MIN_PAIRS
        variance = statistics.fmean(self._noise)
        wanted = max(gain.log / 3, 0.003)
        needed = 2 * variance * (student_t_quantile(0.975, 2 * _MIN_PAIRS) / wanted) ** 2
        return max(_MIN_PAIRS, min(_MAX_PAIRS, math.ceil(needed)))

    def _affords(self, setting: Setting, *, reserve: bool = True) -> bool:
        """Whether the budget leaves room for a launch of it, and for a verification afterwards."""
        seen = [trial.seconds / trial.launches for trial in self.trials.values() if trial.launches]
        if not seen:
            return True
        typical = statistics.median(seen)
        own = self.trials.get(setting)
        expected = own.seconds / own.launches if own is not None and own.launches else typical
        kept = min(_RESERVE * self._budget, 2 * _MIN_PAIRS * typical) if reserve else 0.0
        return self.spent_seconds + expected + kept <= self._budget

    def _ran(self, setting: Setting) -> bool:
        return setting in self.trials and self.trials[setting].state == "ok"

    def _note(self, setting: Setting, measured: Measured) -> Trial:
        trial = self.trials.setdefault(setting, Trial(setting))
        trial.seconds += measured.seconds
        trial.launches += 1
        self.spent_seconds += measured.seconds
        trial.state, trial.reason = measured.state, measured.reason
        if measured.log is not None:
            trial.logs.append(measured.log)
        return trial


def _joined(settings: Sequence[Setting]) -> Setting:
    return tuple(sorted(change for setting in settings for change in setting))


def _without(setting: Setting, change: Change) -> Setting:
    return tuple(one for one in setting if one != change)


def _without_axis(setting: Setting, axis: str) -> Setting:
    return tuple(change for change in setting if change.axis != axis)
