from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.factories import cells, environment, experiment
from torchscale.analysis.comparison.compare import Change, Outcome, Pair, Verdict, compare
from torchscale.analysis.comparison.matching import differences
from torchscale.config.choices import Metric
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.run.experiment_file import Session
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import LaunchFigures, ResultCell, ResultSet
from torchscale.schema.state import State

STEADY = (100.0, 100.1, 99.9)


def result(cell: TrainingCell, rates: Sequence[float] = STEADY, state: State = State.OK, **changes: Any) -> ResultCell:
    """A cell whose launches had these throughputs; its steps and memory follow."""
    launches = tuple(
        LaunchFigures(
            values={
                MetricKey(metric=Metric.THROUGHPUT): rate,
                MetricKey(metric=Metric.STEP_P95): 10 / rate,
                MetricKey(metric=Metric.MEMORY): 1000.0,
            }
        )
        for rate in rates
    )
    content = {"device": "NVIDIA H100", "torch": "2.13.0", "launches": launches if state is State.OK else ()}
    return ResultCell(cell=cell, state=state, **{**content, **changes})


def side(*found: ResultCell, name: str = "side", **changes: Any) -> ResultSet:
    defaults: dict[str, Any] = {"environment": environment(8), "config": experiment(), "tool_version": "0.1.0"}
    return ResultSet(name=name, cells=found, **{**defaults, **changes})


def throughput(pair: Pair, at: int = 0) -> Change:
    return next(change for change in pair.cells[at].changes if change.metric is Metric.THROUGHPUT)


def scaled(rates: Sequence[float], by: float) -> list[float]:
    return [rate * by for rate in rates]


def test_a_clear_change_beyond_the_threshold_is_told_in_its_direction() -> None:
    (cell, *_) = cells()
    slower = compare(side(result(cell)), side(result(cell, scaled(STEADY, 0.95))))
    faster = compare(side(result(cell)), side(result(cell, scaled(STEADY, 1.05))))
    assert throughput(slower).verdict is Verdict.WORSE
    assert throughput(slower).ratio.value == pytest.approx(0.95)
    assert throughput(faster).verdict is Verdict.BETTER
    longer = next(change for change in slower.cells[0].changes if change.metric is Metric.STEP_P95)
    assert longer.ratio.value == pytest.approx(1 / 0.95)
    assert longer.verdict is Verdict.WORSE, "a longer step is worse"
    assert slower.regressions(()) == [cell.id]
    assert faster.regressions(()) == []


def test_a_real_but_small_change_is_none() -> None:
    (cell, *_) = cells()
    pair = compare(side(result(cell)), side(result(cell, scaled(STEADY, 0.99))))
    assert (throughput(pair).adjusted_p or 1.0) < 0.05
    assert throughput(pair).verdict is Verdict.SAME
    assert compare(side(result(cell)), side(result(cell, scaled(STEADY, 0.99))), threshold=0.005).regressions(()) == [
        cell.id
    ]


def test_noise_is_unclear_and_not_the_same() -> None:
    (cell, *_) = cells()
    noisy = (90.0, 100.0, 110.0)
    pair = compare(side(result(cell, noisy)), side(result(cell, scaled(noisy, 0.95))))
    assert throughput(pair).verdict is Verdict.UNCLEAR
    assert pair.regressions(()) == []
    assert pair.undecided(()) == [cell.id]


def test_a_change_in_every_cell_is_seen_in_their_mean_where_none_shows_it_alone() -> None:
    plan = cells(batch_sizes=list(range(1, 13)), gpu_counts=[1])
    noisy = [scaled((97.0, 100.0, 103.0), 1 + 0.001 * number) for number in range(12)]
    before = side(*(result(cell, rates) for cell, rates in zip(plan, noisy, strict=True)))
    after = side(*(result(cell, scaled(rates, 0.96)) for cell, rates in zip(plan, noisy, strict=True)))
    pair = compare(before, after)
    assert {throughput(pair, at).verdict for at in range(12)} == {Verdict.UNCLEAR}
    (overall,) = [one for one in pair.overall if one.metric is Metric.THROUGHPUT]
    assert overall.verdict is Verdict.WORSE
    assert pair.regressions(()) == []
    assert pair.overall_regressions(()) == [Metric.THROUGHPUT]
    assert pair.overall_regressions((Metric.MEMORY,)) == []
    assert compare(before, before).overall_regressions(()) == []


def test_two_launches_decide_nothing_whatever_they_say() -> None:
    (cell, *_) = cells()
    pair = compare(side(result(cell)), side(result(cell, (50.0, 50.0))))
    assert throughput(pair).verdict is Verdict.NOT_DECIDABLE
    assert throughput(pair).adjusted_p is None
    assert pair.overall[0].verdict is Verdict.NOT_DECIDABLE
    assert pair.regressions(()) == []
    assert pair.undecided(()) == [cell.id]


def test_many_cells_are_corrected_for() -> None:
    """p = 0.03 alone is a change, and among twenty of its kind it is what chance gives."""
    plan = cells(batch_sizes=list(range(1, 21)), gpu_counts=[1])
    before, after = (100.0, 102.0, 98.0), (104.5, 106.5, 103.5)
    alone = compare(side(result(plan[0], before)), side(result(plan[0], after)))
    assert throughput(alone).verdict is Verdict.BETTER
    others = [result(cell, before) for cell in plan[1:]]
    among = compare(side(result(plan[0], before), *others), side(result(plan[0], after), *others))
    assert throughput(among).ratio == throughput(alone).ratio
    assert throughput(among).verdict is Verdict.UNCLEAR


def test_a_cell_that_now_fails_is_a_regression_and_one_that_is_missing_is_undecided() -> None:
    first, second = cells()
    lost = compare(side(result(first), result(second)), side(result(first), result(second, state=State.OOM)))
    assert [cell.outcome for cell in lost.cells] == [Outcome.COMPARED, Outcome.LOST]
    assert lost.regressions(()) == [second.id]
    gone = compare(side(result(first), result(second)), side(result(first)))
    assert gone.cells[1].outcome is Outcome.UNMATCHED
    assert gone.regressions(()) == []
    assert gone.undecided(()) == [second.id]
    skipped = compare(side(result(first)), side(result(first, state=State.SKIPPED)))
    assert skipped.cells[0].outcome is Outcome.UNMEASURED
    assert skipped.undecided(()) == [first.id]
    back = compare(side(result(first, state=State.OOM)), side(result(first)))
    assert back.cells[0].outcome is Outcome.GAINED


def test_the_score_is_speed_times_the_share_that_succeeded() -> None:
    first, second = cells()
    faster = side(result(first, scaled(STEADY, 1.2)), result(second, state=State.CRASHED))
    pair = compare(side(result(first), result(second)), faster)
    assert pair.score is not None
    assert pair.score.ratio == pytest.approx(1.2)
    assert (pair.score.measured, pair.score.of) == (1, 2)
    assert pair.score.value == pytest.approx(60.0)


def test_overall_is_the_geometric_mean_and_counts_flagged_cells() -> None:
    first, second = cells()
    other = side(result(first, scaled(STEADY, 2.0), flags=("noisy",)), result(second, scaled(STEADY, 0.5)))
    overall = compare(side(result(first), result(second)), other).overall[0]
    assert overall.ratio.value == pytest.approx(1.0)
    assert (overall.cells, overall.flagged) == (2, 1)


def test_a_price_makes_samples_per_dollar() -> None:
    _, cell = cells()
    pair = compare(side(result(cell)), side(result(cell, scaled(STEADY, 1.5))), prices=(2.0, 4.0))
    change = next(change for change in pair.cells[0].changes if change.metric is Metric.COST)
    assert change.before == pytest.approx(100 * 3600 / (2 * cell.world_size), rel=1e-3)
    assert change.ratio.value == pytest.approx(0.75)
    assert change.verdict is Verdict.WORSE
    assert pair.regressions(()) == [], "speed decides unless cost is asked for"
    assert pair.regressions((Metric.COST,)) == [cell.id]


def test_cells_match_by_workload_however_long_they_were_measured() -> None:
    (quick, *_), (full, *_) = cells(benchmark={"preset": "quick"}), cells()
    assert quick.id != full.id
    pair = compare(side(result(full)), side(result(quick)))
    assert [cell.outcome for cell in pair.cells] == [Outcome.COMPARED]


def test_precision_is_bridged_only_when_asked() -> None:
    (full, *_), (half, *_) = cells(), cells(training={"precision": "bf16"})
    pair = compare(side(result(full)), side(result(half)))
    assert [cell.outcome for cell in pair.cells] == [Outcome.UNMATCHED] * 2
    assert "differ in precision alone" in pair.notes[0]
    forced = compare(side(result(full)), side(result(half)), ignore_precision=True)
    assert [cell.outcome for cell in forced.cells] == [Outcome.COMPARED]


def test_a_workload_that_stands_twice_on_a_side_is_not_guessed() -> None:
    (quick, *_), (full, *_) = cells(benchmark={"preset": "quick"}), cells()
    (other, *_) = cells(benchmark={"max_steps": 500})
    pair = compare(side(result(full)), side(result(quick), result(other)))
    assert [cell.outcome for cell in pair.cells] == [Outcome.UNMATCHED] * 3


def test_every_difference_is_named_and_the_deciding_ones_first() -> None:
    (cell, *_) = cells()
    versions = environment(8).versions.model_copy(update={"nccl": "2.27.3"})
    sets = [
        side(result(cell)),
        side(
            result(cell, device="NVIDIA A100"),
            environment=environment(8, hostname="node-2", versions=versions, env={"NCCL_ALGO": "Ring"}),
            config=experiment(benchmark={"repeats": 5}),
        ),
    ]
    found = {one.what: one for one in differences(sets)}
    assert next(iter(found)) == "device"
    assert found["device"].forbids
    expected: Mapping[str, tuple[str, str]] = {
        "host": ("node-1", "node-2"),
        "NCCL": ("", "2.27.3"),
        "variable NCCL_ALGO": ("", "Ring"),
        "config benchmark.repeats": ("1", "5"),
    }
    assert {what: found[what].values for what in expected} == expected
    assert not any(one.forbids for what, one in found.items() if what != "device")
    assert differences([sets[0], sets[0]]) == []


def test_a_side_measured_under_changing_conditions_says_so() -> None:
    (cell, *_) = cells()
    ring = environment(env={"NCCL_ALGO": "Ring"})
    later = Session(started_at="2026-02-01T00:00:00+00:00", tool_version="0.2.0", environment=ring)
    steady = side(result(cell), environment=environment(), tool_version="0.1.0")
    found = {one.what: one.values for one in differences([steady, steady.model_copy(update={"later": (later,)})])}
    assert found == {"variable NCCL_ALGO": ("", "absent, then Ring"), "torchscale": ("0.1.0", "0.1.0, then 0.2.0")}


def test_a_side_without_figures_forbids_nothing() -> None:
    (cell, *_) = cells()
    failed = side(result(cell, state=State.CRASHED, device="", torch=""))
    assert not any(one.forbids for one in differences([side(result(cell)), failed]))
