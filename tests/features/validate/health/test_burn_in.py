from __future__ import annotations

import math
import random

import pytest

from torchscale.features.validate.health.burn_in import MAX_POINTS, MAX_WRONG, BurnInTotals, trend
from torchscale.features.validate.health.burn_in_checks import burn_in_checks
from torchscale.schema.launch.telemetry import GpuUse
from torchscale.schema.node.burn_in import BurnIn, BurnInRound, PartResult, WrongValue
from torchscale.schema.node.check import Check
from torchscale.schema.node.probe import DriverFacts, GpuFacts, NodeFacts


def one_round(number: int, *, rank: int = 0, seconds: float = 0.5, wrong: int = 0) -> BurnInRound:
    """A round with one part of 10 bytes, a second after the one before."""
    first = (
        WrongValue(offset_bytes=24, address=4120, expected="0x00000001", seen="0x00000003")
        if wrong
        else None
    )
    part = PartResult(part="memory", unit="B", seconds=seconds, work=10.0, wrong=wrong, first=first)
    return BurnInRound(
        rank=rank,
        device=f"cuda:{rank}",
        number=number,
        time=float(number),
        seconds=seconds,
        parts=(part,),
    )


def burn_in(rounds: list[BurnInRound], **changes: object) -> BurnIn:
    totals = BurnInTotals()
    for it in rounds:
        totals.add(it)
    ranks = max((it.rank for it in rounds), default=0) + 1
    return totals.result("nccl", ranks).model_copy(update=changes)


def checks(result: BurnIn) -> dict[str, Check]:
    return {check.id: check for check in burn_in_checks(result, NodeFacts())}


def test_a_sound_burn_in() -> None:
    result = burn_in([one_round(number, rank=rank) for number in range(30) for rank in (0, 1)])
    assert (result.rounds, result.world_size, result.wrong_results, result.seconds) == (
        30,
        2,
        0,
        29.5,
    )
    assert [(rate.rank, rate.rounds, rate.rate, rate.unit) for rate in result.rates] == [
        (0, 30, 20.0, "B/s"),
        (1, 30, 20.0, "B/s"),
    ]
    found = checks(result)
    assert found["burn_in_results"].status.value == "pass"
    assert found["burn_in_throughput"].status.value == "pass"
    assert found["burn_in_gpus"].status.value == "n/a"


def test_the_share_of_products_in_the_time_of_all_ranks() -> None:
    part = PartResult(part="memory", unit="B", seconds=0.5, work=1.0)
    products = [
        PartResult(part=f"matmul {kind}", unit="FLOP", seconds=1.5, work=1.0)
        for kind in ("float32", "bfloat16")
    ]
    first = one_round(0).model_copy(update={"parts": (part, *products), "seconds": 4.0})
    second = one_round(0, rank=1).model_copy(update={"parts": (part,), "seconds": 6.0})
    result = burn_in([first, second])
    assert result.product_share == pytest.approx(0.3)
    assert checks(result)["burn_in_results"].seen.endswith("in 6.00 s, 30 % of it in products")
    assert burn_in([]).product_share is None


@pytest.mark.parametrize(
    ("watts", "limits", "text"),
    [
        ((655.0,), (700.0,), ", mean power 655 of 700 W (94 %)"),
        ((680.0, 300.0), (700.0, 400.0), "of each GPU at least 300 of 400 W (75 %)"),
        ((655.0, None), (700.0, 700.0), ", mean power 655 of 700 W (94 %)"),
        ((655.0,), (None,), "no throttling"),
    ],
)
def test_power_is_given_against_the_limit(
    watts: tuple[float | None, ...], limits: tuple[float | None, ...], text: str
) -> None:
    uses = tuple(
        GpuUse(uuid=f"1b3{index}", power_watts=value, throttled_share=0.0)
        for index, value in enumerate(watts)
    )
    gpus = tuple(
        GpuFacts(index=index, name="H100", uuid=f"GPU-1b3{index}", power_limit_watts=value)
        for index, value in enumerate(limits)
    )
    facts = NodeFacts(driver=DriverFacts(gpus=gpus))
    (check,) = [
        check
        for check in burn_in_checks(burn_in([one_round(0)], gpus=uses), facts)
        if check.id == "burn_in_gpus"
    ]
    assert check.status.value == "pass"
    assert check.seen.endswith(text)


def test_a_wrong_bit_is_named_by_rank_device_and_address() -> None:
    rounds = [
        one_round(number, rank=rank, wrong=2 * (rank == 1 and number == 3))
        for number in range(9)
        for rank in (0, 1)
    ]
    found = checks(burn_in(rounds))["burn_in_results"]
    assert found.status.value == "fail"
    assert found.seen.startswith(
        "1 wrong parts, the first: memory on rank 1 (cuda:1), round 3, 2 elements, first at offset "
        "24 (address 0x1018): 0x00000003 instead of 0x00000001"
    )
    assert found.fixes


def test_many_wrong_results_are_counted_and_the_first_kept() -> None:
    result = burn_in([one_round(number, wrong=1) for number in range(3 * MAX_WRONG)])
    assert (result.wrong_results, len(result.wrong)) == (3 * MAX_WRONG, MAX_WRONG)
    assert result.wrong[0].round == 0


def test_a_falling_rate_is_reported_with_its_interval() -> None:
    draw = random.Random(4)
    rounds = [
        one_round(number, seconds=0.5 * math.exp(0.002 * number + draw.gauss(0, 0.01)))
        for number in range(100)
    ]
    (rate,) = burn_in(rounds).rates
    truth = math.expm1(-0.002 * 99)
    assert rate.change_low is not None
    assert rate.change_high is not None
    assert rate.change_low < truth < rate.change_high
    assert rate.change == pytest.approx(truth, abs=0.02)
    found = checks(burn_in(rounds))["burn_in_throughput"]
    assert found.status.value == "warn"
    assert "memory on rank 0 −1" in found.seen.replace("-", "−")


def test_noise_is_no_trend() -> None:
    draw = random.Random(5)
    warned = 0
    for _ in range(50):
        rounds = [
            one_round(number, seconds=0.5 * math.exp(draw.gauss(0, 0.1))) for number in range(60)
        ]
        warned += checks(burn_in(rounds))["burn_in_throughput"].status.value == "warn"
    assert warned <= 5  # 2.5 % of them are expected: the interval's lower side


@pytest.mark.parametrize("count", [0, 1, 5])
def test_too_few_rounds_for_a_trend(count: int) -> None:
    assert trend([(float(it), 1.0, 1.0) for it in range(count)]) is None


def test_a_trend_of_rounds_at_one_moment_is_none() -> None:
    assert trend([(1.0, 1.0, 1.0)] * 30) is None


def test_a_long_burn_in_takes_bounded_memory_and_loses_no_work() -> None:
    totals = BurnInTotals()
    for number in range(10_001):
        totals.add(one_round(number))
    (series,) = totals.series.values()
    assert len(series.points) + len(series.last) <= 2 * MAX_POINTS
    (rate,) = totals.result("gloo", 1).rates
    assert rate.rounds == 10_001
    assert rate.rate == pytest.approx(20.0)
    assert rate.change == pytest.approx(0.0, abs=1e-9)


def test_an_end_before_its_time() -> None:
    rounds = [one_round(0)]
    found = checks(burn_in(rounds, error="RuntimeError: CUDA error"))["burn_in_results"]
    assert (found.status.value, found.seen.startswith("RuntimeError: CUDA error; 1 rounds")) == (
        "fail",
        True,
    )
    assert "interrupted" in checks(burn_in(rounds, interrupted=True))["burn_in_results"].seen
    assert checks(burn_in([], interrupted=True))["burn_in_results"].status.value == "n/a"


@pytest.mark.parametrize(
    ("use", "status", "part"),
    [
        (GpuUse(uuid="GPU-1", new_ecc_errors=2), "fail", "GPU-1: 2 new uncorrected errors"),
        (
            GpuUse(uuid="GPU-1", throttled_share=0.4, throttle_reasons=("power brake",)),
            "warn",
            "power brake for 40 %",
        ),
        (
            GpuUse(uuid="GPU-1", throttled_share=0.01, temperature_peak_celsius=71),
            "pass",
            "at most 71 °C",
        ),
    ],
)
def test_what_gpus_did_meanwhile(use: GpuUse, status: str, part: str) -> None:
    found = checks(burn_in([one_round(0)], gpus=(use,)))["burn_in_gpus"]
    assert found.status.value == status
    assert part in found.seen
