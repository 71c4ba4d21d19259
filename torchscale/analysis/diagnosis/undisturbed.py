"""A rank's compute where no communication disturbs it, against that of the others."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from torchscale.analysis.diagnosis.shared import EXPLAINED_SHARE, MIN_SAMPLES
from torchscale.analysis.diagnosis.signals import Matrix, SignalOrigin, Signals, SignalSeries
from torchscale.analysis.stats.estimate import Estimate
from torchscale.analysis.stats.peers import medians_of_others
from torchscale.util.units import format_change, format_seconds

COMPUTE_EXCESS = 0.03
"""How much slower than the others' median a straggler computes (docs/diagnosis.md). On real gloo
ranks with 2, 5 or 12 ms injected into steps of 32 to 45 ms it names the rank in 26 of 27 runs, and
no rank in 12 clean ones (docs/tested-on.md)."""
QUIET_EXCESS = 0.10
"""How much slower a rank's forward passes and optimizer steps are to confirm by themselves that it
is a straggler. Chosen above the per cents by which cores of a shared host differ for as long as a
run lasts: less than that must also show in passes without gradient synchronization."""
BLOCKS = 12
"""Parts that windows of steps are joined to, for the interval of a rank's mean: neighbouring
windows are not independent, parts of a run are nearly so, and with twelve of them t is 2.2."""
APART = {
    SignalOrigin.LAUNCH: "without gradient synchronization",
    SignalOrigin.JOB: "while no collective is under way",
    SignalOrigin.TRACE: "while no collective transfers",
}
"""When a rank's compute is undisturbed by communication, by where the signals are from."""


def quiet_evidence(signals: Signals, quiet: Undisturbed | None) -> list[str]:
    """What a straggler's phases without a transfer show; nothing where they show none."""
    if quiet is None or not quiet.slower or signals.origin is SignalOrigin.TRACE:
        return []
    where = "forward pass and optimizer, while no gradient is in transfer"
    if signals.origin is SignalOrigin.JOB:
        where = APART[SignalOrigin.JOB]
    return [f"{where}: {format_seconds(quiet.mine)} against {format_seconds(quiet.others)} a step"]


def unsynchronized_evidence(signals: Signals, unsynchronized: Undisturbed | None) -> list[str]:
    """What its passes without gradient synchronization show; nothing where they show none."""
    if unsynchronized is None or not unsynchronized.slower:
        return []
    excess = unsynchronized.mine / unsynchronized.others - 1
    return [
        f"{APART[signals.origin]} {format_seconds(unsynchronized.mine)} against "
        f"{format_seconds(unsynchronized.others)} a step ({format_change(excess)})"
    ]


@dataclass(frozen=True)
class Undisturbed:
    """A rank's compute that communication does not disturb, against the median of the others'.
    ``slower``: by enough to confirm a straggler, and beyond noise."""

    mine: float
    others: float
    slower: bool


def quiet_phases(signals: Signals, row: int, relative: float) -> Undisturbed | None:
    """Compare a rank with the others in the phases of all steps in which nothing is in transfer. A
    rank that is slower as a whole is slower there by the same share (``relative``), one that has
    extra work there by more: by half of that share at least, and by 10 %."""
    windows = signals.windows
    if windows is None or windows.quiet is None:
        return None
    blocks = run_blocks(windows.quiet, windows.steps)
    others = medians_of_others(blocks)[row]
    excess = Estimate.of_mean((blocks[row] - others).tolist())
    typical = float(others.mean())
    enough = excess.value >= max(QUIET_EXCESS, EXPLAINED_SHARE * relative) * typical
    return Undisturbed(float(blocks[row].mean()), typical, enough and excess.bounds[0] > 0)


def unsynchronized_passes(signals: Signals, row: int) -> Undisturbed | None:
    """Compare a rank with the others in compute that communication does not disturb. Medians are
    compared: one pass that something interrupted is one of twelve, and would widen an interval of
    the mean beyond what is looked for."""
    series_by_rank = signals.unsynchronized
    if series_by_rank is None or any(len(series) < MIN_SAMPLES for series in series_by_rank):
        return None
    medians = [float(np.median(series)) for series in series_by_rank]
    others = float(np.median(np.delete(medians, row)))
    least = [
        _least_shift(series_by_rank[row], series)
        for index, series in enumerate(series_by_rank)
        if index != row
    ]
    slower = float(np.median(least)) > 0 and medians[row] - others >= COMPUTE_EXCESS * others
    return Undisturbed(medians[row], others, slower)


def _least_shift(mine: SignalSeries, theirs: SignalSeries) -> float:
    """The least time by which ``mine`` are longer: the lower end of the 95 % interval of the shift
    between two samples (Hodges and Lehmann's, from the normal approximation of Mann and Whitney's
    test), which no outlier moves."""
    first, second = len(mine), len(theirs)
    place = max(
        0, int(first * second / 2 - 1.96 * math.sqrt(first * second * (first + second + 1) / 12))
    )
    return float(np.partition(np.subtract.outer(mine, theirs).ravel(), place)[place])


def run_blocks(values: Matrix, steps: SignalSeries) -> Matrix:
    """Samples as at most :data:`BLOCKS` parts of a run, each their mean weighted by ``steps``."""
    parts = np.array_split(np.arange(values.shape[1]), min(BLOCKS, values.shape[1]))
    return np.stack(
        [np.average(values[:, part], axis=1, weights=steps[part]) for part in parts], axis=1
    )
