"""The search for the fastest setting: every change once by itself, then the launches from which
most is expected, until little more is, then the winner against the start in launches of its own.
Pure: it asks for launches and is told what they measured.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import Literal, NamedTuple

from torchscale.analysis.stats.series import student_t_quantile
from torchscale.features.decide.tune.gains import (
    Gain,
    paired_gain,
    smallest_visible,
)
from torchscale.features.decide.tune.surface import (
    START,
    SURE,
    AxisChange,
    Outlook,
    Setting,
    Surface,
    Traits,
)
from torchscale.features.decide.tune.trials import SettingLaunch, SettingTrial, SettingTrials

REGRET = 0.004
"""The search for a winner ends where the fastest of all combinations is expected to be faster than
the best by less, as a logarithm: a verification could hardly show it."""
MOST_LAUNCHES = 10
"""Maximum number of launches for each value of each axis, on the average: with launches that differ
by a tenth the expected regret stays above :data:`REGRET` for very long."""
_MIN_LAUNCHES = 2
"""Minimum number of launches of the best combination before the search ends, and of the winner
without each of its changes."""
_PROBE_ROUNDS = 4
"""Start against a run that exchanges nothing: with fewer than three degrees of freedom an interval
is wide."""
_MIN_PAIRS, _MAX_PAIRS = 4, 12
"""Minimum and maximum number of pairs of the verification: below four its t quantile is above 3;
twelve halve the interval of four."""
FEWEST_OF_VERIFICATION = 2 * _MIN_PAIRS
"""Launches of the shortest verification."""
_OF_MEMORY = ("oom", "skipped")
"""States of a setting that took too much memory, or is predicted to."""
_PROBE_SHARE = 0.25
"""Largest share of the budget for telling whether communication is exposed: it only saves the
launches of settings of communication, of which there are about as many as it takes itself."""


class Contribution(NamedTuple):
    """What one change of the winner gives: the winner over the winner without it."""

    change: AxisChange
    gain: Gain


class RunnerUp(NamedTuple):
    """The strongest rival of a start that nothing is faster than, and its gain over the start in
    launches by turns."""

    setting: Setting
    gain: Gain


Ending = Literal["complete", "budget", "interrupted", "start failed"]


class SettingSearch:
    """A search over changes along axes. Drive :meth:`launches`; every attribute is valid at any
    time.

    Attributes:
        trials: Trials by setting, in the order in which they were first measured.
        winner: The fastest setting so far; the start where nothing is known to be faster.
        probe: The gain of exchanging nothing at all over the start; ``None`` where it was not
            measured.
        runner_up: The strongest rival of the start, where nothing is faster than that; of searches
            over an axis with traits alone.
        skipped: Axis → why nothing was tried on it.
        ending: Why the search is over.
        is_cut_short: Whether the largest number of launches ended the comparison, with more to be
            expected of some settings.
        budget_seconds: Wall time that new launches may take.
    """

    def __init__(
        self,
        axes: Mapping[str, Sequence[AxisChange]],
        *,
        budget_seconds: float,
        probe: Setting = START,
        probed: Sequence[str] = (),
        choose: Callable[[str, Sequence[AxisChange]], Sequence[AxisChange]] = lambda _, changes: (
            changes
        ),
        costs: Mapping[str, float] = {},
        is_recorded: Callable[[Setting], bool] = lambda _: False,
        traits: Mapping[str, Traits] = {},
        held: Collection[AxisChange] = (),
        most_launches: int | None = None,
    ) -> None:
        """
        Args:
            axes: Axes to search, those that are expected to gain most first.
            budget_seconds: Wall time that new launches may take.
            probe: Exchanges nothing.
            probed: Axes that change communication alone. Where the budget has room for the probe
                they are tried only if it gains anything, and then with the changes that ``choose``
                returns for an axis.
            choose: Narrows the changes of an axis.
            costs: Axis → how many times longer than others a launch with a change of it is expected
                to take, until there was one.
            is_recorded: Whether the next launch of a setting ran before, so that it takes no time.
            traits: Axis → what its values have in common (:class:`Surface`). What takes too much
                memory with one of these may run with another.
            held: Changes that are not launched by themselves: only where the traits that they
                share with others let expect that they are the fastest.
            most_launches: Maximum number of launches, but for the fewest of a verification.
        """
        self._axes, self._probe, self._probed = dict(axes), probe, tuple(probed)
        self.budget_seconds = budget_seconds
        self._choose, self._is_recorded = choose, is_recorded
        self._traits, self._held, self._most_launches = traits, frozenset(held), most_launches
        self._launched = SettingTrials(costs, probe)
        self.trials = self._launched.of
        self.winner: Setting = START
        self.probe: Gain | None = None
        self.runner_up: RunnerUp | None = None
        self.skipped: dict[str, str] = {}
        self.ending: Ending = "interrupted"
        self.is_cut_short = False
        self._verifications: dict[Setting, list[tuple[float, float]]] = {}
        self._outlook: Outlook | None = None
        self._budget_used_up = False
        self._keeps_room = True

    @property
    def is_verified(self) -> bool:
        """Whether the winner is faster than the start: the 95 % interval of launches by turns
        excludes no gain."""
        return (
            self.verified is not None
            and self.verified.rounds >= _MIN_PAIRS
            and self.verified.interval()[0] > 1
        )

    @property
    def visible_gain(self) -> float | None:
        """The smallest gain over the start that could have been seen, as a share: by the
        verification, or of a single change by all launches. ``None`` before there are any."""
        if self.verified is not None:
            return smallest_visible(self.verified.error, self.verified.degrees)
        if self._outlook is None or self._outlook.single_error is None:
            return None
        return smallest_visible(self._outlook.single_error, self._launched.noise[1])

    @property
    def interaction(self) -> float | None:
        """The winner's gain over the product of the gains of its changes alone, as a share: what
        they add to or take from each other. ``None`` for a winner of one change, and where the
        noise hides whether they do."""
        together = self._launched.gain(self.winner)
        alone = [
            gain for change in self.winner if (gain := self._launched.gain((change,))) is not None
        ]
        if len(self.winner) < 2 or together is None or len(alone) < len(self.winner):
            return None
        log = together.log - math.fsum(gain.log for gain in alone)
        error = math.hypot(together.error, *(gain.error for gain in alone))
        if abs(log) > student_t_quantile(0.975, together.degrees) * error:
            return math.expm1(log)
        return None

    @property
    def untried(self) -> tuple[AxisChange, ...]:
        """Changes that were not launched by themselves, and for no other reason than time."""
        return tuple(change for change in self._singles() if (change,) not in self.trials)

    @property
    def spent_seconds(self) -> float:
        """Wall time of all launches, of those recorded before too."""
        return self._launched.spent_seconds

    @property
    def new_seconds(self) -> float:
        """Wall time of the launches that had not run before."""
        return self._launched.new_seconds

    @property
    def launch_seconds(self) -> float | None:
        """Wall time of a launch: the median over settings; ``None`` before the first."""
        return self._launched.launch_seconds

    @property
    def launches_needed(self) -> int:
        """The fewest more that give an answer: each change that was not tried once, and a
        verification."""
        return len(self.untried) + FEWEST_OF_VERIFICATION

    @property
    def seconds_needed(self) -> float:
        """Wall time that these are expected to take; 0 before the first launch."""
        return (
            math.fsum(self._launched.expected_seconds((change,)) for change in self.untried)
            + self._verification_seconds
        )

    @property
    def _verification_seconds(self) -> float:
        """Expected wall time of the fewest launches that verify what is ahead."""
        return _MIN_PAIRS * (
            self._launched.expected_seconds(START) + self._launched.expected_seconds(self.winner)
        )

    def launches(self) -> Generator[Setting, SettingLaunch, None]:
        """Settings to launch, one at a time; send what each measured."""
        self.ending = "interrupted"
        yield from self._measure(START)
        if not self._start_failed:
            yield from self._find_winner()
        if self._start_failed:
            self.ending = "start failed"
            return
        if self.winner != START:
            yield from self._verify_winner()
        elif self._traits:
            yield from self._challenge()
        self.ending = "budget" if self._budget_used_up else "complete"

    @property
    def _start_failed(self) -> bool:
        start = self.trials.get(START)
        return start is not None and start.state != "ok"

    def _find_winner(self) -> Generator[Setting, SettingLaunch, None]:
        """Compare settings, with room kept for a verification; what is left of it, if nothing is
        ahead, goes to what was not tried."""
        yield from self._compare_settings()
        if self.winner != START or not self._budget_used_up or self._start_failed:
            return
        self._keeps_room, self._budget_used_up = False, False
        yield from self._compare_settings()

    def _compare_settings(self) -> Generator[Setting, SettingLaunch, None]:
        yield from self._measure_singles(without=self._probed)
        yield from self._probe_communication()
        if self._start_failed:
            return
        yield from self._measure_singles()
        surface = Surface(self._that_run(), self._traits)
        for trial in self.trials.values():
            if trial.state != "ok":
                surface.exclude(trial.setting, alone=self._says_nothing_of_others(trial))
        yield from self._explore(surface)
        yield from self._measure_contributions(surface)

    def _probe_communication(self) -> Generator[Setting, SettingLaunch, None]:
        """Skip axes that change communication alone if a run without any is not faster. Where that
        takes too much of the budget, they are tried as the others are."""
        axes = [axis for axis in self._probed if self._axes.get(axis)]
        if (
            self._probe == START
            or not axes
            or self._probe in self.trials
            or not self._affords_probe
        ):
            return
        pairs: list[tuple[float, float]] = []
        yield from self._alternate(self._probe, _PROBE_ROUNDS, pairs)
        self.probe = paired_gain(pairs)
        if self.probe is None:
            return
        low, high = self.probe.interval()
        if low <= 1:
            most = max(0.0, high - 1)
            for axis in axes:
                self.skipped[axis] = (
                    "exposed communication cannot be told from noise: exchanging nothing at all "
                    f"gains at most {100 * most:.1f} %"
                )
            return
        for axis in axes:
            self._axes[axis] = tuple(self._choose(axis, self._axes[axis]))
            if not self._axes[axis]:
                self.skipped[axis] = "none is predicted to be faster"

    @property
    def _affords_probe(self) -> bool:
        if self._is_recorded(self._probe):
            return True
        seconds = _PROBE_ROUNDS * (
            self._launched.expected_seconds(START) + self._launched.expected_seconds(self._probe)
        )
        return seconds <= min(
            _PROBE_SHARE * self.budget_seconds, self.budget_seconds - self._launched.new_seconds
        )

    def _singles(self, without: Sequence[str] = ()) -> list[AxisChange]:
        """Every change, the first of each axis first: the others of an axis are its likely next
        best."""
        left = {axis for axis in self._axes if axis not in self.skipped and axis not in without}
        by_axis = [changes for axis, changes in self._axes.items() if axis in left]
        ranks = itertools.zip_longest(*by_axis)
        return [
            change
            for rank in ranks
            for change in rank
            if change is not None and change not in self._held
        ]

    def _measure_singles(
        self, without: Sequence[str] = ()
    ) -> Generator[Setting, SettingLaunch, None]:
        """Every change by itself: which of them run at all, and roughly what each gives."""
        for change in self._singles(without):
            if (change,) not in self.trials:
                yield from self._measure((change,))

    def _that_run(self) -> Mapping[str, Sequence[AxisChange]]:
        """Changes that ran by themselves or may run with others, by axis."""
        kept = {
            axis: [one for one in changes if self._may_run(one)]
            for axis, changes in self._axes.items()
        }
        return {axis: changes for axis, changes in kept.items() if changes}

    def _may_run(self, change: AxisChange) -> bool:
        trial = self.trials.get((change,))
        if trial is None:
            return change in self._held
        return bool(trial.logs) or self._says_nothing_of_others(trial)

    def _says_nothing_of_others(self, trial: SettingTrial) -> bool:
        """Whether a setting that failed took too much memory, and another value of an axis with
        traits could make room for its changes."""
        return trial.state in _OF_MEMORY and any(
            change.axis not in self._traits for change in trial.setting
        )

    def _explore(self, surface: Surface) -> Generator[Setting, SettingLaunch, None]:
        """Launch what is expected to be the fastest, and its strongest rivals, until little is
        expected of the rest."""
        most = len(self._launched.history) + MOST_LAUNCHES * sum(
            1 + len(changes) for changes in self._that_run().values()
        )
        if self._most_launches is not None:
            most = min(most, self._most_launches - FEWEST_OF_VERIFICATION)
        while self._launched.runs(START):
            outlook = self._look_ahead(surface)
            enough = outlook.regret < REGRET and self._launched.runs(outlook.best) >= _MIN_LAUNCHES
            if enough or len(self._launched.history) >= most:
                self.is_cut_short = not enough
                return
            measured = yield from self._measure(outlook.next)
            if measured is None:
                return
            if measured.log is None:
                if outlook.next == START:
                    return
                failed = self.trials[outlook.next]
                surface.exclude(failed.setting, alone=self._says_nothing_of_others(failed))

    def _look_ahead(self, surface: Surface) -> Outlook:
        """What is expected after the launches so far; the winner is the simplest that is known to
        be faster."""
        self._outlook = outlook = surface.outlook(self._launched.history, self._launched.noise[0])
        self.winner = outlook.simplest if outlook.gain > SURE * outlook.error else START
        return outlook

    def _verify_winner(self) -> Generator[Setting, SettingLaunch, None]:
        """Verify the winner. Over an axis with traits, whose values are many and launched once or
        twice, the launches of the verification may show that another is faster: the comparison then
        goes on, and that one is verified in its turn. An earlier winner keeps its verification."""
        yield from self._verify()
        while self._traits and self._has_room_for_another:
            verified = self.winner
            yield from self._compare_settings()
            if self.winner == START:
                self.winner = verified
            if self.winner in self._verifications:
                return
            yield from self._verify()
            if not self.is_verified:
                self.winner = verified
                return

    @property
    def _has_room_for_another(self) -> bool:
        """Whether the bounds leave room for one more verification."""
        if self._budget_used_up or not self._can_verify or self._most_launches is None:
            return False
        return len(self._launched.history) + FEWEST_OF_VERIFICATION <= self._most_launches

    def _verify(self) -> Generator[Setting, SettingLaunch, None]:
        """Start and winner by turns (ABBA). How many pairs is fixed beforehand, from the noise so
        far; none where the budget has no room for the fewest that say anything."""
        if not self._is_recorded(self.winner) and not self._can_verify:
            self._budget_used_up = True
            return
        pairs = self._verifications.setdefault(self.winner, [])
        yield from self._alternate(self.winner, self._pairs_needed(), pairs)

    def _challenge(self) -> Generator[Setting, SettingLaunch, None]:
        """The start and its strongest rival by turns, as in a verification: that nothing is faster
        than the start is a claim too. A rival that is shown to be faster is the winner."""
        ran = [one for one in self.trials.values() if one.setting != START and one.logs]
        if not ran or not self._launched.runs(START):
            return
        rival = max(ran, key=lambda trial: statistics.fmean(trial.logs)).setting
        if not self._is_recorded(rival) and not self._can_verify:
            self._budget_used_up = True
            return
        pairs: list[tuple[float, float]] = []
        yield from self._alternate(rival, _MIN_PAIRS, pairs)
        gain = paired_gain(pairs)
        if gain is None:
            return
        if gain.rounds >= _MIN_PAIRS and gain.interval()[0] > 1:
            self.winner = rival
            self._verifications[rival] = pairs
            return
        self.runner_up = RunnerUp(rival, gain)

    @property
    def verified(self) -> Gain | None:
        """The winner over the start, in alternating launches that decided nothing else."""
        return paired_gain(self._verifications.get(self.winner, []))

    def _alternate(
        self, setting: Setting, rounds: int, pairs: list[tuple[float, float]]
    ) -> Generator[Setting, SettingLaunch, None]:
        """Launch ``setting`` and the start by turns, until one fails or the budget ends; adds the
        logarithms of both to ``pairs``."""
        for number in range(rounds):
            logs: dict[Setting, float] = {}
            for one in (START, setting) if number % 2 == 0 else (setting, START):
                measured = yield from self._measure(one, reserve=False)
                if measured is None or measured.log is None:
                    return
                logs[one] = measured.log
            pairs.append((logs[setting], logs[START]))

    def _measure_contributions(self, surface: Surface) -> Generator[Setting, SettingLaunch, None]:
        """The winner without each of its changes, where that was not measured on the way: a change
        that turns out to give nothing leaves."""
        while len(self.winner) > 1:
            winner = self.winner
            for without in (_without(winner, change) for change in winner):
                while self._launched.runs(without) < _MIN_LAUNCHES and (
                    without not in self.trials or self._launched.ran(without)
                ):
                    if (yield from self._measure(without)) is None:
                        return
            self._look_ahead(surface)
            if not set(self.winner) < set(winner):
                self.winner = winner
                return

    @property
    def contributions(self) -> tuple[Contribution, ...]:
        """What each change of the winner gives, of all launches."""
        if len(self.winner) == 1 and self.verified is not None:
            return (Contribution(self.winner[0], self.verified),)
        gains = {
            change: self._launched.gain(self.winner, _without(self.winner, change))
            for change in self.winner
        }
        return tuple(
            Contribution(change, gain) for change, gain in gains.items() if gain is not None
        )

    def _pairs_needed(self) -> int:
        """Number of pairs with which the interval's half-width is about a third of the gain
        seen."""
        gain = 0.0 if self._outlook is None else self._outlook.gain
        wanted = max(gain / 3, 0.003)
        needed = (
            2 * self._launched.noise[0] * (student_t_quantile(0.975, 2 * _MIN_PAIRS) / wanted) ** 2
        )
        most = _MAX_PAIRS
        if self._most_launches is not None:
            most = min(most, (self._most_launches - len(self._launched.history)) // 2)
        return max(_MIN_PAIRS, min(most, math.ceil(needed)))

    @property
    def choice(self) -> Setting:
        """The winner; the start where a verification could not show that the winner is faster, or
        before it was launched."""
        is_refuted = self.verified is not None and not self.is_verified
        if is_refuted or not self._launched.runs(self.winner):
            return START
        return self.winner

    def over_choice(self, setting: Setting) -> Gain | None:
        """A setting over :attr:`choice`, from all launches of both; ``None`` where one of them was
        not measured."""
        return self._launched.gain(setting, self.choice)

    def _measure(
        self, setting: Setting, *, reserve: bool = True
    ) -> Generator[Setting, SettingLaunch, SettingLaunch | None]:
        """What a launch measured; ``None`` where the budget has no room for it."""
        if not self._affords(setting, reserve=reserve):
            self._budget_used_up = True
            return None
        measured = yield setting
        self._launched.note(setting, measured)
        return measured

    def _affords(self, setting: Setting, *, reserve: bool) -> bool:
        """Whether the budget leaves room for a launch of it, and for a verification afterwards. The
        first launch tells how long one takes."""
        if self.launch_seconds is None or self._is_recorded(setting):
            return True
        kept = self._kept_seconds if reserve else 0.0
        return (
            self._launched.new_seconds + self._launched.expected_seconds(setting) + kept
            <= self.budget_seconds
        )

    @property
    def _kept_seconds(self) -> float:
        """Seconds kept for a verification: none where it has no room any more, and none while there
        is nothing to verify and the rest of the budget is of no other use."""
        if not self._can_verify:
            return 0.0
        return self._verification_seconds if self._keeps_room or self.winner != START else 0.0

    @property
    def _can_verify(self) -> bool:
        return self._launched.new_seconds + self._verification_seconds <= self.budget_seconds


def _without(setting: Setting, change: AxisChange) -> Setting:
    return tuple(one for one in setting if one != change)
