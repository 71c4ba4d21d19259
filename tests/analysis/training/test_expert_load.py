"""From the tokens in records to the load of each rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.factories import cells, launch_record, rank_record, training_result
from torchscale.analysis.diagnosis.diagnose import diagnose
from torchscale.analysis.training.digest import digest_signals
from torchscale.analysis.training.exchange_waits import PairedWaits
from torchscale.analysis.training.expert_load import expert_load, steps_beyond_the_mean
from torchscale.analysis.training.signals import launch_signals
from torchscale.schema.launch.experts import ExpertStep, ExpertUse
from torchscale.schema.launch.signals import SignalDigest
from torchscale.schema.launch.steps import StepSample
from torchscale.schema.launch.training import TrainingResult

USE = ExpertUse(
    experts=4,
    chosen=2,
    degree=2,
    steps=10,
    layers=(0, 3),
    layer_count=4,
    tokens_per_expert=((400, 200, 100, 100), (100, 100, 200, 800)),
)


def digest(ranks: int, batches: int = 10) -> SignalDigest:
    tokens = tuple((100.0 + 20 * rank,) * batches for rank in range(ranks))
    seconds = tuple((0.010 + 0.002 * rank,) * batches for rank in range(ranks))
    return SignalDigest(
        compute=((0.05,) * batches,) * ranks,
        data_wait=((0.0,) * batches,) * ranks,
        expert_tokens_per_rank=tokens,
        expert_seconds=seconds,
    )


def result(ranks: int, use: ExpertUse | None = USE, **changes: Any) -> tuple[TrainingResult, Any]:
    strategy = {"strategy": {"name": "ep", "degree": 2}}
    (cell,) = cells(models="tiny-moe", gpu_counts=[ranks], parallel=strategy)
    records = [rank_record(cell, rank, experts=use if rank == 0 else None) for rank in range(ranks)]
    launch = launch_record(cell, ranks=records, signals=digest(ranks), **changes)
    return training_result(launch), cell


def test_the_load_of_two_ranks() -> None:
    found, cell = result(2)
    load = expert_load(found, cell, digest(2))
    assert load is not None
    # Layer 0: 600 and 200, layer 3: 200 and 1000; over ten steps.
    assert load.uneven_tokens.tolist() == [20.0, 40.0]
    first, second = load.hottest
    assert [(one.layer, one.expert) for one in first] == [(0, 0), (0, 1), (3, 0)]
    assert [(one.layer, one.expert) for one in second] == [(3, 3), (3, 2), (0, 2)]
    assert first[0].share == pytest.approx(2.0)
    assert second[0].share == pytest.approx(800 / 300)


def test_groups_that_hold_the_same_experts_share_their_tokens() -> None:
    found, cell = result(4)
    load = expert_load(found, cell, digest(4))
    assert load is not None
    assert load.uneven_tokens.tolist() == [10.0, 20.0, 10.0, 20.0]
    assert load.hottest[0] == load.hottest[2]


def test_none_where_experts_are_not_spread_or_not_counted() -> None:
    found, cell = result(2, USE.model_copy(update={"degree": 1}))
    assert expert_load(found, cell, digest(2)) is None
    found, cell = result(2, None)
    assert expert_load(found, cell, digest(2)) is None
    found, cell = result(2)
    assert expert_load(found, None, digest(2)) is None
    bare = digest(2).model_copy(update={"expert_tokens_per_rank": None})
    assert expert_load(found, cell, bare) is None


def test_another_degree_than_the_cells_is_refused() -> None:
    found, cell = result(4, USE.model_copy(update={"degree": 4}))
    with pytest.raises(ValueError, match="experts over 4 ranks, where the cell asks for 2"):
        launch_signals(found, cell)


def test_signals_hold_compute_as_if_experts_took_as_long() -> None:
    """They take 10 and 12 ms."""
    found, cell = result(2)
    signals = launch_signals(found, cell)
    assert signals is not None
    assert signals.compute is not None
    assert signals.compute[:, 0] == pytest.approx([0.051, 0.049])
    assert signals.experts is not None


def test_a_digest_of_another_form_is_refused() -> None:
    found, cell = result(2)
    wrong = digest(2).model_copy(update={"expert_tokens_per_rank": ((1.0,) * 10,)})
    with pytest.raises(ValueError, match="not of 2 ranks"):
        launch_signals(found.model_copy(update={"signals": wrong}), cell)


def samples(tokens: float, seconds: float, compute: float, steps: int = 40) -> list[StepSample]:
    return [
        StepSample(
            step=step,
            seconds=compute,
            data_wait=0.0,
            forward=compute / 2,
            backward=compute / 2,
            optimizer=0.0,
            exposed_sync=0.0,
            experts=ExpertStep(
                tokens_per_rank=tokens, seconds=seconds, forward_seconds=seconds / 2, peak=1.0
            ),
        )
        for step in range(steps)
    ]


def test_windows_show_no_rank_slow_for_its_tokens() -> None:
    ranks = [samples(150, 0.015, 0.055), samples(50, 0.005, 0.045)]
    beyond = steps_beyond_the_mean(ranks)
    assert beyond is not None
    assert beyond[:, 0] == pytest.approx([0.005, -0.005])
    found = digest_signals(ranks, [10] * 4)
    assert found.expert_tokens_per_rank == ((150.0,) * 4, (50.0,) * 4)
    assert found.expert_seconds == ((0.015,) * 4, (0.005,) * 4)
    assert found.compute == ((0.055,) * 4, (0.045,) * 4)
    assert found.windows is not None
    assert np.array(found.windows.compute_us) == pytest.approx(50_000, abs=1)
    assert np.array(found.windows.quiet_us) == pytest.approx(25_000, abs=1)


def test_steps_without_experts_have_none() -> None:
    plain = [step.model_copy(update={"experts": None}) for step in samples(1, 1.0, 2.0)]
    assert steps_beyond_the_mean([plain]) is None


def test_tokens_that_do_not_fit_their_layers_are_refused() -> None:
    content = USE.model_dump()
    for change in ({"layers": (0,)}, {"degree": 3}, {"tokens_per_expert": ((1, 2), (3, 4))}):
        with pytest.raises(ValueError, match=r"tokens|experts"):
            ExpertUse.model_validate({**content, **change})


SLOW, FIXED, EACH, REST = 0.006, 0.002, 20e-6, 0.025
"""Seconds: of the slow rank, what experts take without tokens and for each, and all else."""
HOT = (1.43, 0.57)
"""Tokens of two ranks over an even share where one of eight experts has four times its own."""


def simulated(seed: int, *, hot: bool, slow: int | None) -> set[tuple[str, int | None]]:
    """Who is named in a run of two ranks and 120 steps. Times scatter by 4 % in each step, those of
    experts by 5 %, and ranks arrive within 0.5 ms of each other where they are equally fast."""
    noise, steps = np.random.default_rng(seed), 120
    shares = np.array(HOT if hot else (1.0, 1.0))[:, None]
    tokens = np.rint(shares * 512 + 12 * noise.standard_normal((2, steps)))
    experts = (FIXED + EACH * tokens) * (1 + 0.05 * noise.standard_normal((2, steps)))
    rest = REST * (1 + 0.04 * noise.standard_normal((2, steps)))
    if slow is not None:
        rest[slow] += SLOW
    # Ranks wait for each other after the experts, and after all else.
    wait = np.zeros((2, steps))
    blame = np.zeros((2, steps))
    for part in (experts, rest):
        late = part + np.abs(0.0005 * noise.standard_normal((2, steps)))
        waited = late.max(axis=0) - late
        wait += waited
        blame[0] += waited[1]
        blame[1] += waited[0]
    transfer = np.full((2, steps), 0.0005)
    ranks = [
        [
            StepSample(
                step=step,
                seconds=float(rest[rank, step] + experts[rank, step] + wait[rank, step] + 0.0005),
                data_wait=0.0,
                forward=float((rest[rank, step] + experts[rank, step]) / 3),
                backward=float((rest[rank, step] + experts[rank, step]) / 2),
                optimizer=float((rest[rank, step] + experts[rank, step]) / 6),
                blocked=float(wait[rank, step] + 0.0005),
                experts=ExpertStep(
                    tokens_per_rank=int(tokens[rank, step]),
                    seconds=float(experts[rank, step]),
                    forward_seconds=float(experts[rank, step] / 3),
                    peak=1.0,
                ),
            )
            for step in range(steps)
        ]
        for rank in range(2)
    ]
    paired = PairedWaits(wait, transfer, blame, np.ones(steps, dtype=np.bool_))
    use = USE.model_copy(
        update={
            "steps": steps,
            "layers": (0,),
            "layer_count": 1,
            "tokens_per_expert": (tuple(int(n) for n in np.repeat(tokens.sum(axis=1) / 2, 2)),),
        }
    )
    (cell,) = cells(models="tiny-moe", gpu_counts=[2], parallel={"strategy": "ep"})
    batches = [sum(step.seconds for step in ranks[0][at : at + 10]) for at in range(0, steps, 10)]
    records = [
        rank_record(cell, rank, batches, experts=use if rank == 0 else None) for rank in range(2)
    ]
    launch = launch_record(
        cell, ranks=records, signals=digest_signals(ranks, [10] * 12, paired), batches=batches
    )
    signals = launch_signals(training_result(launch), cell)
    assert signals is not None
    return {
        (finding.kind.value, finding.rank)
        for finding in diagnose(signals).findings
        if finding.rank is not None or finding.kind.value == "load_imbalance"
    }


UNEVEN, STRAGGLER = "uneven_experts", "straggler"


@pytest.mark.parametrize(
    ("hot", "slow", "expected"),
    [
        (True, None, {(UNEVEN, 0)}),
        (False, 1, {(STRAGGLER, 1)}),
        (True, 1, {(UNEVEN, 0), (STRAGGLER, 1)}),
        (True, 0, {(UNEVEN, 0), (STRAGGLER, 0)}),
    ],
    ids=["hot expert", "slow rank", "both on two ranks", "both on one rank"],
)
def test_hot_experts_and_slow_ranks_are_told_apart(
    hot: bool, slow: int | None, expected: set[tuple[str, int | None]]
) -> None:
    found = [simulated(seed, hot=hot, slow=slow) for seed in range(10)]
    assert found == [expected] * 10


def test_even_runs_name_nobody() -> None:
    assert [simulated(seed, hot=False, slow=None) for seed in range(20)] == [set()] * 20
