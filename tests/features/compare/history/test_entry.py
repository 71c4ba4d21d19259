"""A run as a history keeps it: its figures with intervals, what identifies it, what makes it
new."""

from __future__ import annotations

import math
import statistics

import pytest

from tests.histories import nightly
from torchscale.analysis.stats.series import student_t_quantile
from torchscale.features.compare.history.entry import history_entry


def test_level_and_interval_by_hand() -> None:
    values = [100.0, 104.0, 98.0]
    (cell,) = history_entry(nightly(0, [values])).cells
    (figure,) = cell.figures
    logs = [math.log(value) for value in values]
    half = student_t_quantile(0.975, 2) * statistics.stdev(logs) / math.sqrt(3)
    assert figure.level == pytest.approx(math.exp(statistics.fmean(logs)))
    assert figure.low == pytest.approx(figure.level * math.exp(-half))
    assert figure.high == pytest.approx(figure.level * math.exp(half))
    assert figure.log_variance == pytest.approx(statistics.variance(logs))
    assert figure.launches == 3


def test_a_single_launch_has_no_interval() -> None:
    (cell,) = history_entry(nightly(0, [[100.0]])).cells
    (figure,) = cell.figures
    assert (figure.level, figure.low, figure.high, figure.log_variance) == (100.0, None, None, None)


def test_a_run_that_went_on_has_the_same_identity_and_another_digest() -> None:
    first, longer = (history_entry(nightly(0, [[100.0] * count])) for count in (1, 2))
    assert first.run.identity == longer.run.identity
    assert first.digest != longer.digest
    assert history_entry(nightly(1, [[100.0]])).run.identity != first.run.identity


def test_a_renamed_folder_is_the_same_run() -> None:
    results = nightly(0, [[100.0]])
    renamed = history_entry(
        results.model_copy(update={"name": "renamed", "problems": ("a file is damaged",)})
    )
    assert renamed.digest == history_entry(results).digest
    assert renamed.run.name == "renamed"


def test_what_can_explain_a_change_is_kept() -> None:
    entry = history_entry(nightly(0, [[1.0]], driver="570.1", git_commit="abc", git_branch="main"))
    assert (entry.run.driver, entry.run.git_commit, entry.run.git_branch) == (
        "570.1",
        "abc",
        "main",
    )
    assert entry.facts["driver"] == "570.1"
    assert entry.facts["git commit"] == "abc"
    assert entry.run.config_hash
