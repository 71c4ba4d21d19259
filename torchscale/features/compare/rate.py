"""A rate of false alarms."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AlarmRate:
    """How often a gate may fail though nothing changed.

    Attributes:
        text: As it was asked for: ``1/year``, ``1/20``.
        runs_per_day: Gates a day.
        chance: Chance of a false alarm in a run.
    """

    text: str
    runs_per_day: float
    chance: float
