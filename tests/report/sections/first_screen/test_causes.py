"""Causes grouped over cells, and failures over reasons."""

from __future__ import annotations

from tests.factories import cells, failed_record, run
from tests.report.sections.test_lost_time import diagnosed_run
from tests.report.sections.test_lost_time import record as signals_record
from torchscale.analysis.summary.run import summarize
from torchscale.report.sections.first_screen.causes import (
    cause_groups,
    causes,
    cost_text,
    top_groups,
)
from torchscale.report.sections.first_screen.failures import failures
from torchscale.report.text.findings import confidence_text
from torchscale.schema.launch.failure import FailureKind, RankFailure
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.schema.state import State


def test_a_cause_is_listed_once_with_cells_cost_and_advice() -> None:
    summary = summarize(diagnosed_run())
    groups = cause_groups(summary)
    (straggler, *others) = causes(summary, groups)
    assert straggler.title == "Straggler: rank 1"
    assert straggler.cost == "26.7 % of the step"
    assert straggler.cells == "tiny ResNet (batch 8, 2 CPU ranks)"
    assert straggler.text.startswith("Rank 1 arrives 20.0 ms late")
    assert straggler.text.endswith("Confidence: high.")
    assert straggler.advice.startswith("Compare rank 1's cores")
    assert len({cause.advice for cause in (straggler, *others)}) == len(groups)
    assert [group.largest for group in groups] == sorted(
        (group.largest for group in groups), reverse=True
    )


def test_slower_compute_is_a_cause_where_no_straggler_explains_it() -> None:
    one, two = signals_record((0.0,)), signals_record((0.01, 0.01), 0.0005)
    summary = summarize(run({one.cell_id: [one], two.cell_id: [two]}))
    group = next(group for group in cause_groups(summary) if group.title == "Slower compute")
    assert (
        group.cells[0].text
        == "forward, backward and optimizer take 10.0 ms a step longer than on 1 device"
    )
    assert cost_text(group) == "16.3 % of the step"
    named = cause_groups(summarize(diagnosed_run()))
    assert "Slower compute" not in {group.title for group in named}


def test_the_first_screen_has_what_costs_more_than_the_noise() -> None:
    groups = cause_groups(summarize(diagnosed_run()))
    assert all(group.largest >= 0.02 for group in top_groups(groups))
    assert len(top_groups(groups)) <= 3


def test_conditions_that_make_a_finding_withhold_its_confidence() -> None:
    finding = Finding(
        kind=FindingKind.LOAD_IMBALANCE,
        cost_percent=12.0,
        cost_seconds=0.1,
        confidence=Confidence.HIGH,
        summary="ranks wait",
        advice="look",
    )
    assert confidence_text(finding) == "high"
    doubtful = finding.model_copy(update={"confidence": Confidence.LOW, "doubts": ("contended",)})
    assert confidence_text(doubtful) == "low (contended)"


def test_failures_are_grouped_by_reason_and_show_where_they_broke() -> None:
    plan = cells(batch_sizes=[8, 16], gpu_counts=[1])
    failure = RankFailure(
        rank=0,
        kind=FailureKind.ERROR,
        type="ValueError",
        message="bad label",
        traceback='  File "/home/me/net.py", line 12, in forward\n    raise '
        "ValueError\nValueError: bad label\n",
        time=1.0,
    )
    broken = [failed_record(cell, State.CRASHED, "ValueError: bad label") for cell in plan]
    launches = {
        record.cell_id: [record.model_copy(update={"failures": (failure,)})] for record in broken
    }
    (found,) = failures(summarize(run(launches, batch_sizes=[8, 16], gpu_counts=[1])))
    assert (
        found.cells
        == "tiny ResNet, fp32, batch 8, 1 device and tiny ResNet, fp32, batch 16, 1 device"
    )
    assert (found.state, found.reason) == ("crashed", "ValueError: bad label")
    assert found.excerpt[0] == "at /home/me/net.py:12 in forward"
    assert found.excerpt[-1] == f"log: cells/{plan[0].id}/launch-0/rank-0.stderr.log"
    assert failures(summarize(run())) == ()
