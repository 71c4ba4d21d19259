"""The lines of the program in which slow steps are longer than the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from torchscale.analysis.diagnosis.shared import EXPLAINED_SHARE
from torchscale.features.watch.analysis.everyday.cause import LineSeconds
from torchscale.features.watch.analysis.everyday.watched import Marks, Series, WatchedSteps
from torchscale.features.watch.analysis.evidence import K, ShownByRank, TimeShare
from torchscale.features.watch.hang.stacks import place_text
from torchscale.schema.watch.rank import ProgramLine

_LEAST_SAMPLES = 2
"""At a line, for it to be told: one may be of any line."""
_DEVIATIONS = 2.0
"""By which a line's share must exceed its share of other steps: 2 % of lines do so by chance, and
these by little."""

_OUTSIDE = "<module>"
"""What Python calls code that is in no function."""

_DOES = {
    "synchronize": "waits for the device",
    "empty_cache": "empties the cache of the device's allocator",
    "barrier": "waits at a barrier",
    "monitored_barrier": "waits at a barrier",
    "all_gather_object": "sends Python objects between ranks",
    "gather_object": "sends Python objects between ranks",
    "broadcast_object_list": "sends Python objects between ranks",
    "clip_grad_norm_": "clips gradients",
    "savefig": "draws a figure",
    "add_scalar": "writes to TensorBoard",
    "add_scalars": "writes to TensorBoard",
    "add_histogram": "writes to TensorBoard",
    "add_image": "writes to TensorBoard",
    "memory_summary": "prints the memory of the device",
}
"""What a Python function that the program calls does, where its name leaves no doubt. Functions of
C, such as ``print`` and ``item``, have no frame: the line of the program is all that is seen of
them."""

_WAITS = frozenset(
    (
        "backward",
        "barrier",
        "monitored_barrier",
        "wait",
        "all_reduce",
        "all_gather",
        "all_gather_into_tensor",
        "all_gather_object",
        "reduce_scatter_tensor",
        "all_to_all",
        "all_to_all_single",
        "broadcast",
        "broadcast_object_list",
        "recv",
    )
)
"""Functions of torch in which a rank waits for others: what is longer there tells of another
one."""


@dataclass(frozen=True)
class SlowWork:
    """A function of the program in which slow steps are longer.

    Attributes:
        line: Its line with most of it.
        seconds: A slow step is longer there than another one.
        share: Of what slow steps are longer in all.
    """

    line: ProgramLine
    seconds: float
    share: float

    @property
    def place(self) -> str:
        """``train.py:31 (log_metrics)``."""
        return place_of(self.line)

    @property
    def does(self) -> str:
        """``draws a figure``; empty where the name of what it calls leaves a doubt."""
        return _DOES.get(self.line.called.rpartition(".")[2], "")

    @property
    def is_wait(self) -> bool:
        """Whether ranks wait there for one another."""
        return self.line.called in _WAITS


def place_of(line: ProgramLine) -> str:
    """``train.py:31 (log_metrics)``."""
    return place_text(line.file, line.line, line.function)


def lines_in(
    evidence: ShownByRank, slow: Marks, typical: Marks, seconds: Series
) -> list[tuple[ProgramLine, float]]:
    """Lines with the seconds that a slow step is longer there than a typical one, the longest
    first. Those within what chance makes of samples are left out.

    Args:
        evidence: Of the rank.
        slow, typical: By step, from step 0 on.
        seconds: The rank's time by step.
    """
    return _slower(evidence, slow, typical, seconds, _line)


def work_in(evidence: ShownByRank, slow: Marks, typical: Marks, seconds: Series) -> SlowWork | None:
    """The function in which slow steps are longer by more than half of what they are longer; the
    arguments are those of :func:`lines_in`."""
    functions = _slower(evidence, slow, typical, seconds, _function)
    excess = _mean(seconds, slow) - _mean(seconds, typical)
    if not functions or functions[0][1] <= EXPLAINED_SHARE * excess or excess <= 0:
        return None
    function, more = functions[0]
    shares = evidence.lines.time_shares(slow, _line)
    inside = [line for line in shares if _function(line) == function]
    line = max(inside, key=lambda line: shares[line].samples)
    return SlowWork(line, min(more, excess), min(1.0, more / excess))


def lines_beside(
    mine: ShownByRank, others: Sequence[ShownByRank], chosen: Marks, step_seconds: float
) -> list[tuple[ProgramLine, float]]:
    """Lines with the seconds a step that a rank is longer there than the others (their median), the
    longest first.

    Args:
        mine, others: Of the rank, and of the others.
        chosen: Steps that count, from step 0 on.
        step_seconds: Mean step.
    """
    shares = mine.lines.time_shares(chosen, _line)
    beside = [one.lines.time_shares(chosen, _line) for one in others]
    if not all(beside):
        return []
    medians = {}
    for line in shares:
        theirs = [one.get(line, TimeShare()) for one in beside]
        share, variance = (median(getattr(one, of) for one in theirs) for of in _OF_SHARES)
        medians[line] = TimeShare(0, share, variance)
    return _longer(shares, medians, step_seconds, step_seconds)


_OF_SHARES = ("share", "variance")


def _slower(
    evidence: ShownByRank,
    slow: Marks,
    typical: Marks,
    seconds: Series,
    key: Callable[[ProgramLine], K],
) -> list[tuple[K, float]]:
    """By a key of lines, the seconds that a slow step is longer than a typical one."""
    shares = evidence.lines.time_shares(slow, key)
    others = evidence.lines.time_shares(typical, key)
    if not others:
        return []
    return _longer(shares, others, _mean(seconds, slow), _mean(seconds, typical))


def _longer(
    shares: Mapping[K, TimeShare], others: Mapping[K, TimeShare], length: float, usual: float
) -> list[tuple[K, float]]:
    """Keys with more of a step of one length than of another one, by more than chance; the seconds,
    the longest first."""
    found = []
    for key, share in shares.items():
        other = others.get(key, TimeShare())
        more = share.share * length - other.share * usual
        scatter = math.sqrt(share.variance * length**2 + other.variance * usual**2)
        if share.samples >= _LEAST_SAMPLES and more > _DEVIATIONS * scatter:
            found.append((key, more))
    return sorted(found, key=lambda pair: -pair[1])


def _mean(seconds: Series, chosen: Marks) -> float:
    return float(seconds[chosen].mean()) if chosen.any() else 0.0


def _line(line: ProgramLine) -> ProgramLine:
    return line


def _function(line: ProgramLine) -> tuple[str, str]:
    """The function of a line; of a program without functions, the line itself."""
    name = f"line {line.line}" if line.function == _OUTSIDE else line.function
    return line.file, name


def slow_lines(
    watched: WatchedSteps, row: int, steps: Sequence[int], excess: float
) -> tuple[LineSeconds, SlowWork | None]:
    """Where a rank is in its slow steps: lines, each with its mean over all steps, and the function
    that explains them.

    Args:
        watched: The job.
        row: Of the rank.
        steps: Numbers of the slow steps.
        excess: Seconds that one is longer.
    """
    if row >= len(watched.evidence) or not steps:
        return (), None
    slow = np.zeros(watched.first + watched.steps, bool)
    slow[list(steps)] = True
    typical = ~slow
    typical[: watched.first] = False
    usual = float(np.median(watched.table.wall[row]))
    seconds = np.where(slow, usual + excess, usual)
    evidence = watched.evidence[row]
    share = len(steps) / watched.steps
    lines = tuple((line, more * share) for line, more in lines_in(evidence, slow, typical, seconds))
    return lines, work_in(evidence, slow, typical, seconds)
