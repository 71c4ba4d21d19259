"""Ranks whose samples are longer, and ranks that are slow, told apart on steps made to measure."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.factories import cells, launch_record, rank_record, training_result
from torchscale.analysis.diagnosis.diagnose import diagnose
from torchscale.analysis.training.digest import digest_signals
from torchscale.analysis.training.document_load import (
    LengthEffect,
    length_effect,
    waiting_for_length,
)
from torchscale.analysis.training.signals import launch_signals
from torchscale.schema.launch.documents import DocumentStep
from torchscale.schema.launch.steps import StepSample
from torchscale.schema.profiles.finding import FindingKind

STEPS, CYCLE = 200, 10
OF_TOKEN, OF_PAIR, FIXED = 20e-6, 4e-9, 0.01
"""A sample of 1,000 tokens takes 20 ms for its tokens, 4 ms for its pairs."""


def widths(seed: int, ranks: int) -> NDArray[np.int64]:
    """Tokens that the 4 samples of each rank are padded to, in a cycle of steps."""
    generator = np.random.default_rng(seed)
    longest = generator.lognormal(np.log(400), 0.7, (ranks, CYCLE, 4)).max(axis=2)
    return np.tile(np.minimum(longest, 2048).astype(np.int64), (1, STEPS // CYCLE))


def documents(width: int) -> DocumentStep:
    return DocumentStep(
        real_tokens_per_rank=2 * width,
        document_pairs_per_rank=width**2,
        computed_tokens_per_rank=4 * width,
        computed_pairs_per_rank=4 * width**2,
    )


def ranks_of(
    found: NDArray[np.int64], slow: dict[int, float] | None = None, seed: int = 0
) -> list[list[StepSample]]:
    """Ranks that leave each exchange together; ``slow``: seconds by which all steps of a rank are
    longer."""
    noise = np.random.default_rng(seed)
    compute = FIXED + 4 * found * OF_TOKEN + 4 * found.astype(np.float64) ** 2 * OF_PAIR
    compute *= 1 + 0.01 * noise.standard_normal(compute.shape)
    for rank, seconds in (slow or {}).items():
        compute[rank] += seconds
    sync = compute.max(axis=0) - compute + 0.002
    return [
        [
            StepSample(
                step=step,
                seconds=own[step] + wait[step],
                data_wait=0.0,
                forward=0.35 * own[step],
                backward=0.6 * own[step],
                optimizer=0.05 * own[step],
                exposed_sync=wait[step],
                documents=documents(int(width[step])),
            )
            for step in range(STEPS)
        ]
        for own, wait, width in zip(compute.tolist(), sync.tolist(), found, strict=True)
    ]


def findings(steps: list[list[StepSample]]) -> set[tuple[str, int | None]]:
    (cell,) = cells(gpu_counts=len(steps))
    batches = [
        max(sum(one.seconds for one in rank[begin : begin + CYCLE]) for rank in steps)
        for begin in range(0, STEPS, CYCLE)
    ]
    ranks = [rank_record(cell, rank, batches) for rank in range(len(steps))]
    digest = digest_signals(steps, [CYCLE] * len(batches))
    record = launch_record(cell, batches=batches, ranks=ranks, signals=digest)
    signals = launch_signals(training_result(record), cell)
    assert signals is not None
    return {(one.kind.value, one.rank) for one in diagnose(signals).findings}


LENGTHS = (FindingKind.UNEVEN_LENGTHS.value, None)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_long_samples_are_named_and_no_rank(ranks: int) -> None:
    found = [findings(ranks_of(widths(seed, ranks), seed=seed)) for seed in range(10)]
    assert found == [{LENGTHS}] * 10


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_whose_samples_are_always_longer_is_not_slow(ranks: int) -> None:
    found = widths(3, ranks)
    found[1] = found[1] * 2
    assert findings(ranks_of(found)) == {LENGTHS}


@pytest.mark.parametrize("seed", range(5))
def test_a_slow_rank_is_named_beside_long_samples(seed: int) -> None:
    """It is slower by far more than what samples differ by, so that the others wait for it alone."""
    steps = ranks_of(widths(seed, 4), {2: 0.25}, seed)
    assert ("straggler", 2) in findings(steps)
    assert not {rank for kind, rank in findings(steps) if rank not in (2, None)}


def test_what_lengths_explain_is_what_they_take() -> None:
    found = widths(1, 4)
    steps = ranks_of(found, {0: 0.05})
    compute = np.array([[one.compute for one in rank] for rank in steps])
    explained = LengthEffect(steps).explained(compute)
    load = 4 * found * OF_TOKEN + 4 * found.astype(np.float64) ** 2 * OF_PAIR
    assert explained == pytest.approx(load - load.mean(), abs=0.02 * float(load.max()))
    expected = float((load.max(axis=0) - load.mean(axis=0)).mean())
    assert waiting_for_length(explained) == pytest.approx(expected, rel=0.05)


def test_a_pause_does_not_move_what_a_token_takes() -> None:
    found = widths(1, 2)
    compute = np.array([[one.compute for one in rank] for rank in ranks_of(found)])
    plain = LengthEffect(ranks_of(found)).explained(compute)
    compute[0, ::40] += 5.0
    moved = LengthEffect(ranks_of(found)).explained(compute) - plain
    assert np.abs(moved).max() < 0.01 * np.abs(plain).max()


def test_equal_loads_explain_nothing() -> None:
    found = np.full((2, STEPS), 512)
    compute = np.random.default_rng(0).random((2, STEPS))
    effect = LengthEffect(ranks_of(found))
    assert not effect.explained(compute).any()


def test_steps_without_documents_have_no_effect_of_length() -> None:
    plain = [
        [step.model_copy(update={"documents": None}) for step in rank]
        for rank in ranks_of(widths(0, 2))
    ]
    assert length_effect(plain) is None
    with pytest.raises(ValueError, match="without documents"):
        LengthEffect(plain)
