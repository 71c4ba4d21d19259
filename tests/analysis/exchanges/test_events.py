"""Integers of the collector → moments, and what lies between them."""

from __future__ import annotations

import numpy as np

from torchscale.analysis.exchanges.events import CoreTime, MomentKind, Moments


def _packed(*moments: tuple[int, int, int]) -> np.ndarray:
    return np.array([time << 8 | detail << 5 | kind for time, kind, detail in moments], np.int64)


def test_a_mark_holds_time_kind_and_detail() -> None:
    moments = Moments.unpacked(
        _packed((1_000, MomentKind.STEP, 3), (2_000, MomentKind.DATA, 0)), 500
    )

    assert moments.time.tolist() == [1_500, 2_500]
    assert moments.kind.tolist() == [MomentKind.STEP, MomentKind.DATA]
    assert moments.at(MomentKind.STEP, 3).tolist() == [1_500]
    assert not len(moments.at(MomentKind.STEP, 1))


def test_marks_of_two_threads_are_put_in_order() -> None:
    moments = Moments.unpacked(_packed((20, MomentKind.DATA, 0), (10, MomentKind.COLLECTION, 0)), 0)

    assert moments.time.tolist() == [10, 20]


def test_nested_pairs_are_one_interval() -> None:
    moments = Moments.unpacked(
        _packed(
            (1, MomentKind.WAIT, 0),
            (2, MomentKind.WAIT, 0),
            (3, MomentKind.WAIT_END, 0),
            (7, MomentKind.WAIT_END, 0),
            (9, MomentKind.WAIT, 0),
            (12, MomentKind.WAIT_END, 0),
        ),
        0,
    )
    between = moments.between(MomentKind.WAIT, MomentKind.WAIT_END)

    assert between.start.tolist() == [1, 9]
    assert between.end.tolist() == [7, 12]


def test_an_end_whose_begin_was_cut_off_and_a_begin_without_an_end_are_left_out() -> None:
    moments = Moments.unpacked(
        _packed(
            (1, MomentKind.WAIT_END, 0),
            (5, MomentKind.WAIT, 0),
            (6, MomentKind.WAIT_END, 0),
            (8, MomentKind.WAIT, 0),
        ),
        0,
    )
    between = moments.between(MomentKind.WAIT, MomentKind.WAIT_END)

    assert between.start.tolist() == [5]
    assert between.end.tolist() == [6]


def test_time_without_a_core_is_read_between_readings() -> None:
    core = CoreTime(np.array([0, 100]), np.array([0, 40]))

    assert core.within(np.array([25]), np.array([50])).tolist() == [10.0]
    assert CoreTime(np.zeros(0, np.int64), np.zeros(0, np.int64)).within(
        np.array([1]), np.array([2])
    ).tolist() == [0.0]


def test_what_is_in_evaluation_while_an_optimizer_steps_is_no_evaluation() -> None:
    """A frozen part is switched once; each epoch ends with an evaluation."""
    moments = Moments.unpacked(
        _packed(
            (1, MomentKind.EVALUATION, 0),
            (4, MomentKind.STEP, 1),
            (6, MomentKind.EVALUATION, 0),
            (9, MomentKind.TRAINING, 0),
            (12, MomentKind.STEP, 0),
        ),
        0,
    )

    assert moments.evaluations.start.tolist() == [6]
    assert moments.evaluations.end.tolist() == [9]
