from __future__ import annotations

from typing import Any

import pytest

from tests.factories import rank_identity
from torchscale.analysis.machine.checkpoint import MIN_STEPS, checkpoint_figures, judge_cold
from torchscale.features.machine.checkpoint.text import (
    busy_line,
    load_text,
    outcome_text,
    slowing_line,
    slowing_text,
)
from torchscale.schema.cells.checkpoint import (
    AsyncSaveSample,
    CheckpointRank,
    CheckpointResult,
    LoadSample,
    SaveSample,
)
from torchscale.schema.exports.checkpoint import CheckpointFigures, Coldness

MB = 1_000_000
SAVE = SaveSample(
    payload_bytes=60 * MB,
    write_seconds=0.3,
    write_cpu_seconds=0.15,
    seconds=1.0,
    stop_seconds=1.2,
)
LOAD = LoadSample(
    payload_bytes=60 * MB,
    read_seconds=0.6,
    read_cpu_seconds=0.1,
    seconds=2.0,
    resident_share=0.0,
    device_bytes=60 * MB,
    restored=True,
)
ASYNC = AsyncSaveSample(
    payload_bytes=60 * MB,
    stop_seconds=0.25,
    durable_seconds=3.0,
    before=(0.1,) * 10,
    during=(0.2,) * 8,
    after=(0.1,) * 10,
    host_bytes=60 * MB,
)


def rank(number: int = 0, **content: Any) -> CheckpointRank:
    parts = {"saves": (SAVE,), "loads": (LOAD,), "async_saves": (ASYNC,), **content}
    identity = rank_identity(number, 2)
    return CheckpointRank(**identity, place="/data", state_bytes=120 * MB, **parts)


def figures(*ranks: CheckpointRank) -> CheckpointFigures:
    return checkpoint_figures([CheckpointResult(ranks=ranks)])


def loads(**changes: Any) -> dict[str, Any]:
    return {"loads": (LOAD.model_copy(update=changes),)}


def slow(during: tuple[float, ...], after: float = 0.1) -> dict[str, Any]:
    return {
        "async_saves": (ASYNC.model_copy(update={"during": during, "after": (after,) * 10}),),
    }


def test_rates_are_of_all_bytes_over_the_slowest_rank() -> None:
    slower = SAVE.model_copy(update={"seconds": 1.5, "stop_seconds": 1.6, "write_seconds": 1.2})
    found = figures(rank(), rank(1, saves=(slower,)))
    (save,), (load,) = found.saves, found.loads
    assert (save.payload_bytes, save.seconds) == (120 * MB, 1.5)
    assert save.bytes_per_second == pytest.approx(80 * MB)
    assert save.stop_seconds == 1.6
    assert load.bytes_per_second == pytest.approx(60 * MB)
    assert [one.save for one in found.ranks] == pytest.approx([200 * MB, 50 * MB])
    assert [one.load for one in found.ranks] == pytest.approx([100 * MB, 100 * MB])


def test_single_figures_are_medians_over_repeats_of_all_launches() -> None:
    def launch(*seconds: float) -> CheckpointResult:
        saves = tuple(SAVE.model_copy(update={"seconds": one}) for one in seconds)
        return CheckpointResult(ranks=(rank(saves=saves, loads=(LOAD,) * len(saves)),))

    found = checkpoint_figures([launch(1.0, 2.0), launch(6.0)])
    assert [save.seconds for save in found.saves] == [1.0, 2.0, 6.0]
    assert found.save_bytes_per_second == pytest.approx(30 * MB)


def test_a_load_is_cold_where_the_kernel_says_so() -> None:
    assert judge_cold([rank(), rank(1)], 0) == (Coldness.PROVED, "")
    # One rank's reads may serve the other's: what counts is the sum.
    both = [rank(**loads(device_bytes=120 * MB)), rank(1, **loads(device_bytes=0))]
    assert judge_cold(both, 0)[0] is Coldness.PROVED


@pytest.mark.parametrize(
    ("changes", "expected", "said"),
    [
        ({"resident_share": 0.4}, Coldness.WARM, "40 % of its pages"),
        ({"resident_share": None}, Coldness.NOT_PROVED, "does not say which pages"),
        ({"device_bytes": None}, Coldness.NOT_PROVED, "does not count here"),
        ({"device_bytes": 0}, Coldness.NOT_PROVED, "57.2 MiB of 114 MiB fetched"),
    ],
)
def test_a_load_without_proof_is_not_the_disks_rate(
    changes: dict[str, Any], expected: Coldness, said: str
) -> None:
    ranks = [rank(), rank(1, **loads(**changes))]
    cold, doubt = judge_cold(ranks, 0)
    assert cold is expected
    assert said in doubt
    found = figures(*ranks)
    assert found.cold_bytes_per_second is None
    assert found.doubt == doubt
    warm = expected is Coldness.WARM
    assert (found.load_bytes_per_second is None) == warm
    assert load_text(found) == ("warm" if warm else "60.0 MB/s (not proved cold)")
    assert ("load warm" in outcome_text(found)) == warm
    assert (found.ranks[1].load is None) == warm


def test_one_warm_load_of_several_withholds_the_rate() -> None:
    warm = LOAD.model_copy(update={"resident_share": 0.5})
    found = figures(rank(saves=(SAVE,) * 3, loads=(LOAD, warm, LOAD)))
    assert found.coldness is Coldness.WARM
    assert found.load_bytes_per_second is None


def test_steps_meanwhile_against_those_before_and_after() -> None:
    found = figures(rank(), rank(1))
    (save,) = found.async_saves
    assert save.rate_before == pytest.approx(10)
    assert save.rate_during == pytest.approx(5)
    assert save.slowed == pytest.approx(0.5)
    assert save.host_bytes == 120 * MB
    assert (found.async_stop_seconds, found.durable_seconds) == (0.25, 3.0)
    assert slowing_text(found) == "50 % slower"
    assert "(8 steps during a save against 10 before and 10 after it)" in slowing_line(found)


def test_a_save_that_ended_early_says_nothing_of_the_steps() -> None:
    few = figures(rank(**slow((0.5,) * (MIN_STEPS - 1))))
    assert few.slowed is None
    assert slowing_text(few) == "ended after 2 steps"
    assert "is not known: none lasted 3 whole steps, the longest 2" in slowing_line(few)
    enough = figures(rank(**slow((0.2,) * MIN_STEPS)))
    assert enough.slowed == pytest.approx(0.5)


def test_slowing_within_the_scatter_of_steps_is_not_claimed() -> None:
    """Steps of 100 ms before and 150 ms after a save differ by 40 % of their common rate."""
    found = figures(rank(**slow((0.14,) * 5, after=0.15)))
    assert found.slowed == pytest.approx(1 - (1 / 0.14) / 8)
    assert not found.is_slowing_shown
    assert slowing_text(found) == "within scatter (42 %)"
    assert "changes by -10.7 % (5 steps during" in slowing_line(found)


def test_without_asynchronous_saves_the_reason_is_said() -> None:
    found = figures(rank(async_saves=(), not_async="no background"))
    assert (found.slowed, found.async_stop_seconds, found.host_bytes) == (None, None, None)
    assert slowing_text(found) == "–"
    assert slowing_line(found) == "Asynchronous saves were not measured: no background."


def test_a_processor_that_limits_is_told_from_a_disk() -> None:
    assert busy_line(figures(rank(), rank(1))) == ""
    computing = SAVE.model_copy(update={"write_cpu_seconds": 0.24})
    one = figures(rank(), rank(1, saves=(computing,)))
    assert [rates.save_cpu for rates in one.ranks] == pytest.approx([0.5, 0.8])
    assert one.busy_ways == ()
    both = figures(rank(saves=(computing,)), rank(1, saves=(computing,)))
    assert both.busy_ways == ("saving",)
    assert busy_line(both).startswith("The processor limits saving, not the disk")
    idle = SAVE.model_copy(update={"payload_bytes": 0, "write_seconds": 0.0})
    assert figures(rank(), rank(1, saves=(idle,))).ranks[1].save_cpu is None
