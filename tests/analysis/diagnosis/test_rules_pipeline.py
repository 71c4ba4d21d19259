"""Stages of a pipeline: ranks of a stage are compared with each other, and stages with one
another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.analysis.diagnosis.test_diagnose import found, why_not
from torchscale.analysis.diagnosis.diagnose import diagnose
from torchscale.analysis.diagnosis.signals import MicroBatchLengths, SignalOrigin, Signals, Windows
from torchscale.analysis.diagnosis.step_windows import step_windows
from torchscale.schema.profiles.finding import Confidence, FindingKind

STEPS = 120
RANK_KINDS = {FindingKind.STRAGGLER, FindingKind.INTERMITTENT_STRAGGLER, FindingKind.UNEVEN_STAGES}


def pipeline(
    stages: int, copies: int, *, work: dict[int, float] | None = None, extra: Any = 0.0, noise: float = 0.03, seed:
    int = 0, **changes: Any,
) -> Signals:  # fmt: skip
    """A recording of stages that compute 100 ms a step, or what ``work`` says, and ranks that take
    ``extra`` more."""
    ranks = stages * copies
    layout = tuple(tuple(range(stage * copies, (stage + 1) * copies)) for stage in range(stages))
    base = np.array([(work or {}).get(rank // copies, 0.1) for rank in range(ranks)])[:, None]
    random = np.random.default_rng(seed)
    compute = base * (1 + noise * random.standard_normal((ranks, STEPS))) + extra
    wall = np.full(STEPS, 1.3 * compute.mean(axis=1).max())
    signals = Signals(
        origin=SignalOrigin.TRACE,
        ranks=tuple(range(ranks)),
        step_seconds=float(wall.mean()),
        steps=STEPS,
        collectives=1000,
        compute=compute,
        windows=step_windows(compute, wall),
        staged=True,
        stages=layout,
        micro_batches=8,
    )
    return replace(signals, **changes)


def on_rank(ranks: int, row: int, values: Any) -> Any:
    extra = np.zeros((ranks, STEPS))
    extra[row] = values
    return extra


@pytest.mark.parametrize(("stages", "copies"), [(2, 2), (4, 4), (2, 8), (4, 2)])
def test_a_slow_rank_among_its_peers_is_named(stages: int, copies: int) -> None:
    work = {0: 0.06, stages - 1: 0.12}  # stages differ, and nobody is blamed for that
    for row in range(stages * copies):
        findings = found(
            pipeline(stages, copies, extra=on_rank(stages * copies, row, 0.08), work=work)
        )
        assert findings[FindingKind.STRAGGLER].rank == row
        assert findings[FindingKind.STRAGGLER].cost_seconds == pytest.approx(0.08, rel=0.1)
        assert findings[FindingKind.STRAGGLER].confidence is Confidence.HIGH


@pytest.mark.parametrize(("stages", "copies"), [(2, 2), (4, 4), (4, 1), (8, 1)])
def test_an_even_pipeline_names_nobody(stages: int, copies: int) -> None:
    for seed in range(10):
        signals = pipeline(stages, copies, noise=0.15, seed=seed)
        assert not RANK_KINDS & set(found(signals))


@pytest.mark.parametrize(("stages", "copies"), [(2, 2), (4, 4), (4, 1)])
def test_a_stage_with_more_work_is_named_with_its_share(stages: int, copies: int) -> None:
    for slow in range(stages):
        findings = found(pipeline(stages, copies, work={slow: 0.16}))
        finding = findings[FindingKind.UNEVEN_STAGES]
        assert finding.rank == (slow if copies == 1 else None)
        mean = (0.1 * (stages - 1) + 0.16) / stages
        assert finding.cost_seconds == pytest.approx((0.16 - mean) * 7 / 8, rel=0.1)
        assert f"stage {slow + 1} of {stages}" in finding.summary
        assert f"does {0.16 / (mean * stages):.0%}".replace("%", " %") in finding.summary
        assert f"move layers from stage {slow + 1} to stage " in finding.advice
        assert f"an even split would give it {1 / stages:.0%}".replace("%", " %") in finding.summary
        assert FindingKind.STRAGGLER not in findings


def test_a_rank_that_was_held_up_in_one_step_is_not_slower_than_its_peers() -> None:
    """Its mean is 17 % above that of the others, and the interval of that holds 0."""
    held_up = np.where(np.arange(STEPS) == 60, 2.0, 0.0)
    assert not RANK_KINDS & set(found(pipeline(2, 2, extra=on_rank(4, 3, held_up))))


def test_steps_are_enough_where_no_collective_was_counted() -> None:
    """As in a pipeline without copies, or in a launch: it exchanges by sends and receives."""
    findings = found(pipeline(2, 2, extra=on_rank(4, 3, 0.1), collectives=None))
    assert findings[FindingKind.STRAGGLER].rank == 3
    few = pipeline(2, 2, extra=on_rank(4, 3, 0.1), collectives=None, steps=5)
    assert FindingKind.STRAGGLER not in found(few)


def test_one_slow_rank_makes_no_stage_uneven() -> None:
    findings = found(pipeline(2, 2, extra=on_rank(4, 3, 0.1)))
    assert findings[FindingKind.STRAGGLER].rank == 3
    assert FindingKind.UNEVEN_STAGES not in findings


def test_slow_spells_among_peers() -> None:
    spell = np.where(np.arange(STEPS) % 30 < 15, 0.06, 0.0)
    for row in range(8):
        findings = found(pipeline(4, 2, extra=on_rank(8, row, spell)))
        assert findings[FindingKind.INTERMITTENT_STRAGGLER].rank == row
        assert FindingKind.STRAGGLER not in findings


def test_a_rank_that_was_slow_once_is_not_called_slow() -> None:
    once = np.where(np.arange(STEPS) < 40, 0.06, 0.0)
    signals = pipeline(2, 2, extra=on_rank(4, 1, once))
    assert not RANK_KINDS & set(found(signals))
    assert "once; measure longer" in why_not(signals, FindingKind.INTERMITTENT_STRAGGLER)


def test_without_stages_nobody_is_compared_and_the_reason_is_given() -> None:
    signals = pipeline(2, 2, extra=on_rank(4, 1, 0.1), why_no_stages="no group is recorded")
    signals = replace(signals, stages=None)
    assert not RANK_KINDS & set(found(signals))
    assert why_not(signals, FindingKind.STRAGGLER).endswith("no group is recorded")
    assert why_not(signals, FindingKind.UNEVEN_STAGES).endswith("no group is recorded")


def test_a_single_micro_batch_gains_nothing_from_even_stages() -> None:
    assert FindingKind.UNEVEN_STAGES in found(pipeline(4, 1, work={3: 0.16}))
    assert FindingKind.UNEVEN_STAGES not in found(pipeline(4, 1, work={3: 0.16}, micro_batches=1))


def test_a_launch_goes_by_forward_passes_where_copies_reduce_within_the_backward_pass() -> None:
    """The peer of a slow rank waits for it in its last backward pass, so that both take equally
    long."""
    signals = pipeline(2, 2)
    assert signals.windows is not None
    forward = signals.windows.compute / 3
    forward[2] += 0.02
    windows = Windows(signals.windows.steps, signals.windows.wall, signals.windows.compute, forward)
    findings = found(replace(signals, origin=SignalOrigin.LAUNCH, windows=windows))
    assert findings[FindingKind.STRAGGLER].rank == 2
    assert "forward pass" in findings[FindingKind.STRAGGLER].summary
    older = replace(signals, origin=SignalOrigin.LAUNCH, windows=None)
    assert "without the windows" in why_not(older, FindingKind.UNEVEN_STAGES)


def lengths(values: list[float], *, shared: float = 1.0, seed: int = 0) -> MicroBatchLengths:
    """Micro-batches of 10 ms on a stage, if their lengths were equal, and the share on which the
    stages agree."""
    relative = np.array(values) / np.mean(values)
    noise = np.random.default_rng(seed).normal(0.0, 0.002, STEPS)
    return MicroBatchLengths(relative, float(relative.max()), shared * relative.var() + noise, 0.01)


def test_micro_batches_of_unequal_length_are_found_with_what_they_cost() -> None:
    uneven = lengths([1.0, 1.0, 2.5, 1.0, 1.0, 1.0])
    finding = found(pipeline(4, 1, micro_batch_lengths=uneven))[FindingKind.UNEVEN_MICRO_BATCHES]
    assert finding.rank is None
    assert finding.cost_seconds == pytest.approx(3 * (2.0 - 1) * 0.01)
    assert "2.0 times the mean" in finding.summary
    assert "3: 2.00" in finding.evidence[1]
    assert finding.confidence is Confidence.HIGH


@pytest.mark.parametrize(
    "even",
    [
        lengths([1.0, 1.02, 0.98, 1.0]),
        lengths([1.0, 1.0, 2.5, 1.0], shared=0.0),  # long on one stage alone
        replace(lengths([1.0, 1.0, 2.5, 1.0]), seconds=0.0005),  # next to nothing of the step
    ],
)
def test_equal_micro_batches_are_not_uneven(even: MicroBatchLengths) -> None:
    assert FindingKind.UNEVEN_MICRO_BATCHES not in found(pipeline(4, 1, micro_batch_lengths=even))


def test_micro_batches_that_cannot_be_told() -> None:
    assert "each micro-batch" in why_not(pipeline(4, 1), FindingKind.UNEVEN_MICRO_BATCHES)


def test_a_single_step_says_nothing_of_micro_batches() -> None:
    one = lengths([1.0, 1.0, 2.5, 1.0])
    one = replace(one, shared_variance=one.shared_variance[:1])
    assert FindingKind.UNEVEN_MICRO_BATCHES not in found(pipeline(4, 1, micro_batch_lengths=one))


def test_a_slow_rank_is_found_without_windows() -> None:
    """Too few steps for windows: each step is a sample."""
    extra = on_rank(8, 3, 0.02)
    finding = found(pipeline(4, 2, extra=extra, windows=None))[FindingKind.STRAGGLER]
    assert finding.rank == 3


def test_twenty_steps_are_enough_to_compare_the_ranks_of_a_stage() -> None:
    for steps, confidence in ((20, Confidence.HIGH), (19, None)):
        signals = pipeline(2, 2, extra=on_rank(4, 3, 0.1), collectives=None, steps=steps)
        finding = found(signals).get(FindingKind.STRAGGLER)
        assert (None if finding is None else finding.confidence) is confidence
    counted = pipeline(2, 2, extra=on_rank(4, 3, 0.1), collectives=20, steps=0)
    assert found(counted)[FindingKind.STRAGGLER].rank == 3


def test_a_rank_that_one_stretch_makes_slower_on_average_is_not_suspected() -> None:
    """The interval of what it takes more than its peers includes nothing: nobody has to look at
    it, nor to read why it is not named."""
    once = np.where(np.arange(STEPS) < STEPS // 12, 0.15, 0.0)
    judged = diagnose(pipeline(2, 2, extra=on_rank(4, 1, once)))
    assert FindingKind.STRAGGLER not in {item.kind for item in judged.findings}
    assert FindingKind.STRAGGLER not in {item.kind for item in judged.abstentions}
