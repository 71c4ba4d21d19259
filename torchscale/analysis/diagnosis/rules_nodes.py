"""Rules about the machines of a launch over several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from torchscale.analysis.diagnosis.rule import (
    BLAME,
    COMPUTE,
    WAIT,
    Judgement,
    not_staged,
    rule,
    several_ranks,
)
from torchscale.analysis.diagnosis.rules_straggler import ESTIMATED_FLOOR, straggler
from torchscale.analysis.diagnosis.signals import Matrix, SignalOrigin, Signals, SignalSeries
from torchscale.analysis.diagnosis.undisturbed import COMPUTE_EXCESS
from torchscale.schema.profiles.finding import Finding, FindingKind
from torchscale.util.units import format_seconds

_MIN_RANKS = 2
"""Minimum number of ranks on each machine: of one rank alone it cannot be told whether it or its
machine is slow."""


@rule(FindingKind.STRAGGLING_NODE, COMPUTE, where=(several_ranks, not_staged), also=(WAIT, BLAME))
def straggling_node(signals: Signals, compute: Matrix) -> Judgement:
    """All ranks of one machine compute longer than the median rank of the others, and the machines
    compared as if each were one rank make it a straggler."""
    hosts = signals.hosts or ()
    rows_of: dict[str, list[int]] = {}
    for row, host in enumerate(hosts):
        rows_of.setdefault(host, []).append(row)
    machines, rows = list(rows_of), list(rows_of.values())
    if len(machines) < 2 or min(map(len, rows)) < _MIN_RANKS:
        return None
    means = signals.mean(compute)
    slowest = max(range(len(machines)), key=lambda place: float(means[rows[place]].mean()))
    mine = means[rows[slowest]]
    others = float(
        np.median(
            [means[row] for place, part in enumerate(rows) if place != slowest for row in part]
        )
    )
    if float(mine.min()) < (1 + COMPUTE_EXCESS) * others:
        return None
    judgement = straggler.judge(by_machine(signals, rows), ())
    if not isinstance(judgement, Finding) or judgement.rank != slowest:
        return None  # the rule for ranks says what there is to say
    host, ranks = machines[slowest], [signals.ranks[row] for row in rows[slowest]]
    how = (
        f"their compute takes {format_seconds(float(mine.mean()))} a step, that of the others "
        f"{format_seconds(others)}"
    )
    if signals.origin is SignalOrigin.LENGTHS:
        about = "about " if signals.estimated_share >= ESTIMATED_FLOOR else ""
        how = f"the others wait {about}{format_seconds(judgement.cost_seconds)} a step for them"
    return judgement.model_copy(
        update={
            "kind": FindingKind.STRAGGLING_NODE,
            "rank": None,
            "hosts": (host,),
            "summary": f"all {len(ranks)} ranks of {host} ({_ranks(ranks)}) are late at the "
            f"collective: {how}",
            "advice": f"look at what the ranks of {host} share: power and cooling, clocks, the "
            "driver, memory, other processes; leave the node out to see whether the slowness goes "
            "with it",
        }
    )


def by_machine(signals: Signals, rows: Sequence[Sequence[int]]) -> Signals:
    """The signals with one row for each machine: means over its ranks, and the sum of their
    blame."""
    parts = [list(part) for part in rows]

    def means(values: Matrix | None) -> Matrix | None:
        return None if values is None else np.stack([values[part].mean(axis=0) for part in parts])

    def mean_of_each(values: SignalSeries | None) -> SignalSeries | None:
        return None if values is None else np.array([values[part].mean() for part in parts])

    windows, apart = signals.windows, signals.unsynchronized
    return replace(
        signals,
        ranks=tuple(range(len(parts))),
        hosts=None,
        compute=means(signals.compute),
        wait=means(signals.wait),
        blame=None
        if signals.blame is None
        else np.array([signals.blame[part].sum() for part in parts]),
        unsynchronized=None
        if apart is None
        else tuple(_mean_passes([apart[row] for row in part]) for part in parts),
        windows=None
        if windows is None
        else replace(
            windows, compute=_mean_rows(windows.compute, parts), quiet=means(windows.quiet)
        ),
        pauses=None,
        other_processes=mean_of_each(signals.other_processes),
        host_bound=mean_of_each(signals.host_bound),
        busy=mean_of_each(signals.busy),
    )


def _mean_passes(ranks: Sequence[SignalSeries]) -> SignalSeries:
    """Passes of the ranks of a machine, which run them at the same time."""
    shortest = min(map(len, ranks))
    return np.asarray(np.mean([passes[:shortest] for passes in ranks], axis=0))


def _mean_rows(values: Matrix, parts: Sequence[Sequence[int]]) -> Matrix:
    return np.stack([values[list(part)].mean(axis=0) for part in parts])


def _ranks(ranks: Sequence[int]) -> str:
    """``ranks 8 to 15``."""
    return f"ranks {ranks[0]} to {ranks[-1]}"
