"""The ranks that a table shows of very many: how their shares are distributed, and those that
differ most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from torchscale.report.text.profile import rank_shares
from torchscale.schema.profiles.analysis import RankBreakdown

MOST_ROWS = 32
"""Ranks that are shown one by one: as many as a page or a screen holds."""
_QUANTILES = (("least", 0.0), ("median", 0.5), ("95 % below", 0.95), ("most", 1.0))


class Distribution(NamedTuple):
    """One line: what of the shares it is, and that of each share; ``None`` was not measured."""

    label: str
    shares: tuple[float | None, ...]


def shown_ranks(ranks: Sequence[RankBreakdown]) -> list[RankBreakdown]:
    """All ranks where they are few; else those whose shares lie farthest from the median of all, of
    each share in turn, by rank."""
    if len(ranks) <= MOST_ROWS:
        return list(ranks)
    table = _table(ranks)
    with np.errstate(all="ignore"):
        apart = np.abs(table - _quantile(table, 0.5))
    orders = [
        np.argsort(-column, kind="stable")[: np.count_nonzero(column > 0)].tolist()
        for column in np.nan_to_num(apart).T
    ]
    chosen: dict[int, None] = {}
    for place in range(len(ranks)):
        for order in orders:
            if place < len(order) and len(chosen) < MOST_ROWS:
                chosen.setdefault(order[place])
        if len(chosen) >= MOST_ROWS:
            break
    return [ranks[number] for number in sorted(chosen)]


def distributions(ranks: Sequence[RankBreakdown]) -> list[Distribution]:
    """Least, median and most of each share over all ranks; none where all ranks are shown."""
    if len(ranks) <= MOST_ROWS:
        return []
    table = _table(ranks)
    lines = []
    for label, quantile in _QUANTILES:
        shares = _quantile(table, quantile).tolist()
        lines.append(Distribution(label, tuple(None if np.isnan(one) else one for one in shares)))
    return lines


def hidden_line(ranks: Sequence[RankBreakdown]) -> str:
    """``32 of 1,024 ranks, those that differ most; all are in the JSON``; empty where all are
    shown."""
    if len(ranks) <= MOST_ROWS:
        return ""
    shown = len(shown_ranks(ranks))
    return f"{shown} of {len(ranks):,} ranks, those that differ most; all are in the JSON"


def _table(ranks: Sequence[RankBreakdown]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Shares, a row a rank; NaN for what was not measured."""
    return np.array([rank_shares(rank) for rank in ranks], dtype=np.float64)


def _quantile(
    table: np.ndarray[tuple[int, int], np.dtype[np.float64]], quantile: float
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Of each column, of those ranks that have it; NaN where none has."""
    values = [column[~np.isnan(column)] for column in table.T]
    return np.array([np.quantile(column, quantile) if len(column) else np.nan for column in values])
