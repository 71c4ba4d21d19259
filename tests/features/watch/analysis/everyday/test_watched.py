"""What interruptions cost a job, and in which steps they were."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.features.watch.analysis.everyday.made import MS, Job
from torchscale.features.watch.analysis.everyday.watched import large


def test_what_a_device_makes_up_for_is_not_lost() -> None:
    """A host that is interrupted for 30 ms issues the next steps at once."""
    job = Job(steps=800)
    watched = job.watched(on_device=True)
    places = np.arange(100, 700, 60)
    wall = watched.table.wall.copy()
    wall[:, places] += 30 * MS
    made_up = wall.copy()
    for later in range(1, 7):
        made_up[:, places + later] -= 5 * MS
    seconds = np.zeros(len(watched.table))
    seconds[places] = 30 * MS

    lost, is_certain = replace(watched, table=replace(watched.table, wall=wall)).lost(seconds)
    assert lost == pytest.approx(seconds.mean(), rel=0.15)
    assert is_certain
    lost, _ = replace(watched, table=replace(watched.table, wall=made_up)).lost(seconds)
    assert lost < 0.15 * seconds.mean()


def test_whether_a_device_makes_up_for_what_comes_all_the_time_is_not_known() -> None:
    watched = Job().watched(on_device=True)
    seconds = np.zeros(len(watched.table))
    seconds[::5] = 30 * MS

    lost, is_certain = watched.lost(seconds)
    assert lost == pytest.approx(6 * MS)
    assert not is_certain


def test_a_cpu_makes_up_for_nothing() -> None:
    watched = Job().watched()
    seconds = np.zeros(len(watched.table))
    seconds[::50] = 30 * MS

    lost, is_certain = watched.lost(seconds)
    assert lost == pytest.approx(seconds.mean())
    assert is_certain


def test_slight_values_beside_large_ones_do_not_count() -> None:
    values = np.array([1.0] * 50 + [60.0, 80.0, 100.0])

    assert np.flatnonzero(large(values)).tolist() == [50, 51, 52]
    assert not large(np.zeros(4)).any()


def test_steps_are_numbered_from_the_job_s_first() -> None:
    watched = Job().watched()
    chosen = np.zeros(len(watched.table), bool)
    chosen[[0, 7]] = True

    assert watched.exact_steps(0, chosen) == (10, 17)
    assert watched.columns(np.array([3, 10, 17, 600])).tolist() == [-1, 0, 7, -1]
    assert watched.by_step(np.arange(590.0))[[9, 10, 17]].tolist() == [0.0, 0.0, 7.0]
