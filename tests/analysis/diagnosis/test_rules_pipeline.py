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


def exact(
    stages: int,
    copies: int,
    *,
    work: dict[int, float] | None = None,
    extra: Any = 0.0,
    **changes: Any,
) -> Signals:
    """Stages that compute 100 s, or what ``work`` says, without scatter and without windows."""
    base = dict.fromkeys(range(stages), 100.0) | (work or {})
    signals = pipeline(stages, copies, work=base, extra=extra, noise=0.0, windows=None)
    return replace(signals, **changes)


def quarters(*values: float) -> Any:
    return np.repeat(values, STEPS // 4)


@pytest.mark.parametrize(("extra", "is_named"), [(10.0, True), (9.9, False)])
def test_a_rank_is_slower_than_its_peers_by_a_tenth(extra: float, is_named: bool) -> None:
    findings = found(exact(2, 2, extra=on_rank(4, 3, extra)))
    assert (FindingKind.STRAGGLER in findings) is is_named


@pytest.mark.parametrize(("extra", "is_named"), [(20.0, True), (19.9, False)])
def test_a_slow_peer_costs_a_fiftieth_of_the_step_or_is_none(extra: float, is_named: bool) -> None:
    findings = found(exact(2, 2, extra=on_rank(4, 3, extra), step_seconds=1000.0))
    assert (FindingKind.STRAGGLER in findings) is is_named


@pytest.mark.parametrize(("first", "is_named"), [(12.0, True), (11.9, False)])
def test_a_slow_peer_is_slow_in_every_quarter_by_half_of_its_mean(
    first: float, is_named: bool
) -> None:
    signals = exact(2, 2, extra=on_rank(4, 3, quarters(28.0, 28.0, first, 28.0)))
    assert (FindingKind.STRAGGLER in found(signals)) is is_named
    if not is_named:
        assert why_not(signals, FindingKind.STRAGGLER) == (
            "rank 3 computes longer than the other ranks of its stage, but not steadily"
        )


def test_of_two_slow_peers_the_slower_one_is_named_with_those_of_its_stage() -> None:
    extra = on_rank(6, 1, 20.0) + on_rank(6, 5, 50.0)
    finding = found(exact(2, 3, work={0: 10.0, 1: 10.0}, extra=extra / 10))[FindingKind.STRAGGLER]
    assert (finding.rank, finding.cost_seconds) == (5, 5.0)
    assert finding.cost_percent == pytest.approx(5 / (1.3 * 15) * 100)
    assert finding.summary == (
        "rank 5's own compute takes 15.0 s a step, 1.5 times that of the ranks with equal work "
        "(ranks 3, 4: 10.0 s); its pipeline waits for it in every micro-batch"
    )
    assert finding.evidence == (
        "5.00 s (5.00 to 5.00 s) more than the median of its stage, over 120 steps",
        "2 stages of 3 ranks each hold equal work",
    )


def test_a_slow_peer_of_a_recording_without_steps_is_less_certain() -> None:
    signals = exact(2, 2, extra=on_rank(4, 3, 50.0), steps=0)
    finding = found(signals)[FindingKind.STRAGGLER]
    assert finding.confidence is Confidence.MEDIUM
    assert "(rank 2: " in finding.summary
    assert finding.evidence[0].endswith("over the whole recording")


@pytest.mark.parametrize(("work", "is_named"), [(110.0, True), (109.9, False)])
def test_a_stage_has_a_tenth_more_work_than_the_mean(work: float, is_named: bool) -> None:
    signals = exact(2, 2, work={0: 90.0, 1: work})
    assert (FindingKind.UNEVEN_STAGES in found(signals)) is is_named


@pytest.mark.parametrize(
    ("step_seconds", "micro_batches", "cost"),
    [(175.0, 8, 8.75), (176.0, 8, None), (200.0, None, 10.0), (201.0, None, None)],
)
def test_an_even_split_gains_a_twentieth_of_the_step_or_nothing(
    step_seconds: float, micro_batches: int | None, cost: float | None
) -> None:
    """Of 10 s that the stage has beyond the mean, one of eight micro-batches gains nothing."""
    signals = exact(
        2, 2, work={0: 90.0, 1: 110.0}, step_seconds=step_seconds, micro_batches=micro_batches
    )
    finding = found(signals).get(FindingKind.UNEVEN_STAGES)
    assert (None if finding is None else finding.cost_seconds) == cost
    if finding is not None:
        assert finding.cost_percent == pytest.approx(5.0)


@pytest.mark.parametrize(("first", "is_named"), [(24.0, True), (23.8, False)])
def test_a_stage_has_more_work_in_every_quarter(first: float, is_named: bool) -> None:
    extra = on_rank(4, 2, quarters(56.0, first, 56.0, 56.0))
    extra[3] = extra[2]
    signals = exact(2, 2, extra=extra)
    assert (FindingKind.UNEVEN_STAGES in found(signals)) is is_named
    if not is_named:
        assert why_not(signals, FindingKind.UNEVEN_STAGES) == (
            "stage 2 computes longer than the others, but not steadily"
        )


def test_a_stage_that_one_step_makes_longer_has_no_more_work() -> None:
    once = np.zeros((4, STEPS))
    once[2:, 0] = 6000.0
    judged = diagnose(exact(2, 2, extra=once))
    assert FindingKind.UNEVEN_STAGES not in {item.kind for item in judged.findings}
    assert FindingKind.UNEVEN_STAGES not in {item.kind for item in judged.abstentions}


@pytest.mark.parametrize("copies", [3, 4])
def test_slow_ranks_that_are_half_of_a_stage_at_most_make_no_stage_uneven(copies: int) -> None:
    """The lower median: of three ranks the second, of four the second too."""
    extra = np.zeros((2 * copies, STEPS))
    extra[2 * copies - copies // 2 :] = 80.0
    assert FindingKind.UNEVEN_STAGES not in found(exact(2, copies, extra=extra))


def test_a_stage_of_two_slow_ranks_out_of_three_has_more_work() -> None:
    extra = np.zeros((6, STEPS))
    extra[4:] = 80.0
    assert FindingKind.UNEVEN_STAGES in found(exact(2, 3, extra=extra))


def test_layers_move_to_the_stage_that_has_least() -> None:
    finding = found(exact(3, 2, work={0: 11.0, 1: 9.0, 2: 20.0}))[FindingKind.UNEVEN_STAGES]
    assert finding.summary == (
        "stage 3 of 3 (ranks 4, 5) does 50 % of the work; an even split would give it 33 %. All "
        "stages wait for it"
    )
    assert finding.evidence[0] == (
        "compute of a step by stage: 1 (ranks 0, 1): 11.0 s, 2 (ranks 2, 3): 9.00 s, "
        "3 (ranks 4, 5): 20.0 s"
    )
    assert finding.evidence[1].endswith(" more than the mean stage, over 120 steps")
    assert finding.advice == (
        "move layers from stage 3 to stage 2, which has least; count the embedding and the head as "
        "layers"
    )
    assert finding.confidence is Confidence.HIGH


def test_a_stage_of_one_rank_may_be_a_slow_device() -> None:
    finding = found(exact(2, 1, work={1: 150.0}))[FindingKind.UNEVEN_STAGES]
    assert (finding.rank, finding.confidence) == (1, Confidence.MEDIUM)
    assert finding.advice.endswith("compare rank 1's clocks with others'")


def spread(variance: float, **changes: Any) -> MicroBatchLengths:
    """Micro-batches whose lengths vary by so much on all stages alike; the longest is 1.5 s."""
    relative = np.array([0.75, 0.75, 1.5, 1.0])
    content = {"longest": 1.5, "shared_variance": np.full(STEPS, variance), "seconds": 1.0}
    return MicroBatchLengths(relative, **{**content, **changes})


@pytest.mark.parametrize(("variance", "is_told"), [(0.1**2, True), (0.0099, False)])
def test_micro_batches_are_uneven_from_a_tenth_on(variance: float, is_told: bool) -> None:
    """A standard deviation, the square of which is the variance."""
    signals = exact(2, 1, step_seconds=10.0, micro_batch_lengths=spread(variance))
    finding = found(signals).get(FindingKind.UNEVEN_MICRO_BATCHES)
    assert (finding is not None) is is_told
    if finding is not None:
        assert finding.evidence == (
            "lengths vary by 10 % (standard deviation within a step) on which the 2 stages agree, "
            "over 120 steps",
            "compute of each micro-batch over their mean, by place in the step: 1: 0.75, 2: 0.75, "
            "3: 1.50, 4: 1.00",
        )


@pytest.mark.parametrize(("step_seconds", "cost"), [(20.0, 1.0), (20.1, None)])
def test_equal_micro_batches_gain_a_twentieth_of_the_step_or_nothing(
    step_seconds: float, cost: float | None
) -> None:
    """Two stages of three wait half a second each for the longest."""
    signals = exact(3, 1, step_seconds=step_seconds, micro_batch_lengths=spread(0.1))
    finding = found(signals).get(FindingKind.UNEVEN_MICRO_BATCHES)
    assert (None if finding is None else finding.cost_seconds) == cost
    if finding is not None:
        assert finding.cost_percent == pytest.approx(5.0)


def test_lengths_that_differ_in_one_step_alone_are_not_uneven() -> None:
    once = np.where(np.arange(STEPS) == 0, 12.0, 0.0)
    lengths_once = spread(0.0, shared_variance=once)
    signals = exact(2, 1, step_seconds=10.0, micro_batch_lengths=lengths_once)
    assert FindingKind.UNEVEN_MICRO_BATCHES not in found(signals)


def test_ranks_of_a_stage_that_are_slow_in_turn_are_told_as_such() -> None:
    """And where another stage has spells of one rank, that rank is."""
    turns = np.zeros((8, STEPS))
    for number in range(8):
        turns[number % 2, number * 15 : number * 15 + 12] = 0.06
    reason = why_not(pipeline(2, 4, extra=turns), FindingKind.INTERMITTENT_STRAGGLER)
    assert reason.startswith("several ranks are slow for a while in turn")
    turns[5] = np.where(np.arange(STEPS) % 30 < 15, 0.06, 0.0)
    findings = found(pipeline(2, 4, extra=turns))
    assert findings[FindingKind.INTERMITTENT_STRAGGLER].rank == 5


def test_of_two_ranks_with_spells_the_costlier_one_is_named_against_its_stage() -> None:
    long, short = (np.where(np.arange(STEPS) % 30 < part, 0.06, 0.0) for part in (15, 9))
    extra = on_rank(4, 0, short) + on_rank(4, 3, long)
    finding = found(pipeline(2, 2, extra=extra))[FindingKind.INTERMITTENT_STRAGGLER]
    assert finding.rank == 3
    assert "longer than that of the ranks of its stage" in finding.summary


def test_a_stage_alone_has_no_more_work_than_others() -> None:
    assert not RANK_KINDS & set(found(pipeline(1, 2)))


@pytest.mark.parametrize(("steps", "confidence"), [(20, Confidence.HIGH), (0, Confidence.MEDIUM)])
def test_an_uneven_stage_of_a_recording_without_steps_is_less_certain(
    steps: int, confidence: Confidence
) -> None:
    finding = found(exact(2, 2, work={1: 150.0}, steps=steps))[FindingKind.UNEVEN_STAGES]
    assert finding.confidence is confidence


def test_stages_of_a_launch_with_copies_are_told_by_their_forward_passes() -> None:
    signals = pipeline(2, 2, work={1: 0.2}, origin=SignalOrigin.LAUNCH)
    assert signals.windows is not None
    forward = replace(signals.windows, quiet=signals.windows.compute / 3)
    finding = found(replace(signals, windows=forward))[FindingKind.UNEVEN_STAGES]
    assert finding.evidence[0].startswith("compute of a step by stage (forward pass): 1 (ranks 0, ")


def test_stages_of_a_launch_without_copies_are_told_by_all_they_compute() -> None:
    """There are no gradients to reduce within the backward pass."""
    signals = pipeline(2, 1, work={1: 0.2}, origin=SignalOrigin.LAUNCH)
    assert signals.windows is not None
    equal = np.full_like(signals.windows.compute, 0.05)
    signals = replace(signals, windows=replace(signals.windows, quiet=equal))
    finding = found(signals)[FindingKind.UNEVEN_STAGES]
    assert finding.rank == 1
    assert finding.evidence[0].startswith("compute of a step by stage: 1 (rank 0): ")
