"""The lines of the program in which slow steps are longer than the others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from torchscale.analysis.diagnosis.shared import EXPLAINED_SHARE
from torchscale.features.watch.analysis.everyday.cause import LineSeconds
from torchscale.features.watch.analysis.everyday.watched import Marks, Series, WatchedSteps
from torchscale.features.watch.analysis.evidence import ShownByRank
from torchscale.schema.watch.rank import ProgramLine

K = TypeVar("K", bound=Hashable)

_LEAST_SAMPLES = 3
"""At a line in slow steps: one or two may be of any line."""
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
    return f"{line.file.rpartition('/')[2]}:{line.line} ({line.function})"


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
    return _Samples(evidence, slow, typical, seconds).longer(lambda line: line)


def work_in(evidence: ShownByRank, slow: Marks, typical: Marks, seconds: Series) -> SlowWork | None:
    """The function in which slow steps are longer by more than half of what they are longer; the
    arguments are those of :func:`lines_in`."""
    samples = _Samples(evidence, slow, typical, seconds)
    functions = samples.longer(_function)
    excess = samples.length - samples.usual
    if not functions or functions[0][1] <= EXPLAINED_SHARE * excess or excess <= 0:
        return None
    function, more = functions[0]
    inside = Counter(
        {line: count for line, count in samples.counts.items() if _function(line) == function}
    )
    line = inside.most_common(1)[0][0]
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
    counts, beside = mine.lines.counts(chosen), [one.lines.counts(chosen) for one in others]
    total, totals = counts.total(), [one.total() for one in beside]
    if not total or not all(totals):
        return []
    found = []
    for line, count in counts.items():
        shares = [one[line] / rest for one, rest in zip(beside, totals, strict=True)]
        more = (count / total - float(np.median(shares))) * step_seconds
        if more > 0:
            found.append((line, more))
    return sorted(found, key=lambda pair: -pair[1])


def _function(line: ProgramLine) -> tuple[str, str]:
    """The function of a line; of a program without functions, the line itself."""
    name = f"line {line.line}" if line.function == _OUTSIDE else line.function
    return line.file, name


class _Samples:
    """Samples of slow steps and of typical ones.

    Attributes:
        counts: Of slow steps, by line.
        length, usual: Mean seconds of a slow step, and of a typical one.
    """

    def __init__(self, evidence: ShownByRank, slow: Marks, typical: Marks, seconds: Series) -> None:
        self.counts = evidence.lines.counts(slow)
        self._others = evidence.lines.counts(typical)
        self.length = float(seconds[slow].mean()) if slow.any() else 0.0
        self.usual = float(seconds[typical].mean()) if typical.any() else 0.0

    def longer(self, key: Callable[[ProgramLine], K]) -> list[tuple[K, float]]:
        """Seconds that a slow step is longer, by a key of lines."""
        counts, others = _summed(self.counts, key), _summed(self._others, key)
        total, rest = counts.total(), others.total()
        if not total or not rest:
            return []
        found = []
        for item, count in counts.items():
            more = count / total * self.length - others[item] / rest * self.usual
            scatter = math.hypot(
                _deviation(count, total) * self.length, _deviation(others[item], rest) * self.usual
            )
            if count >= _LEAST_SAMPLES and more > _DEVIATIONS * scatter:
                found.append((item, more))
        return sorted(found, key=lambda pair: -pair[1])


def _summed(counts: Counter[ProgramLine], key: Callable[[ProgramLine], K]) -> Counter[K]:
    sums: Counter[K] = Counter()
    for line, count in counts.items():
        sums[key(line)] += count
    return sums


def _deviation(count: int, total: int) -> float:
    """Standard error of a share."""
    share = count / total
    return math.sqrt(share * (1 - share) / total)


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
