"""Memory that grows: whose, how fast, until when; and memory in pieces."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.watch.analysis.everyday.made import Job, memory
from torchscale.features.watch.analysis.everyday.memory import MemoryLimits, find_memory_growth
from torchscale.features.watch.analysis.everyday.watched import WatchedSteps
from torchscale.features.watch.analysis.evidence import MemorySeries
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind

MIB, GIB = 1 << 20, 1 << 30
TIME = np.linspace(0, 1, 1_200)


def noisy(values: np.ndarray, seed: int = 0) -> np.ndarray:
    return values + np.random.default_rng(seed).normal(0, 3 * MIB, len(values))


FLAT = noisy(500 * MIB + 0 * TIME)
LEAK = noisy(500 * MIB + 300 * MIB * TIME, 1)


def found(
    by_rank: dict[int, MemorySeries], limits: MemoryLimits | None = None
) -> tuple[Finding, ...]:
    watched: WatchedSteps = Job().watched(memory=by_rank)
    watched.log.hosts = ("a",) * 4
    causes = find_memory_growth(watched, limits)
    assert all(not cause.by_column.any() for cause in causes)
    return tuple(cause.finding for cause in causes)


def test_the_host_memory_of_one_rank_is_named_with_its_rate() -> None:
    (finding,) = found({row: memory(LEAK if row == 2 else FLAT) for row in range(4)})

    assert (finding.kind, finding.rank) == (FindingKind.MEMORY_GROWTH, 2)
    assert finding.cost_seconds == 0.0
    assert finding.confidence is Confidence.HIGH
    assert finding.summary.startswith("the host memory of rank 2 grows by 51")
    assert "KiB a step, 1.7" in finding.summary
    assert "their graph" in finding.advice


def test_the_device_memory_of_all_ranks_is_nobodys() -> None:
    (finding,) = found({row: memory(FLAT, LEAK, 1.2 * LEAK) for row in range(4)})

    assert finding.rank is None
    assert finding.summary.startswith("the device memory of every rank grows")
    assert any(text.startswith("a step, by rank: 0: ") for text in finding.evidence)


def test_ranks_without_growth_are_none() -> None:
    assert found({row: memory(FLAT, FLAT, FLAT + GIB) for row in range(4)}) == ()
    assert found({}) == ()


def test_growth_of_a_few_megabytes_is_none() -> None:
    little = noisy(500 * MIB + 10 * MIB * TIME)
    assert found({0: memory(little)}) == ()


def test_when_a_device_is_full_has_an_interval() -> None:
    (finding,) = found(
        {0: memory(FLAT, LEAK, LEAK + 100 * MIB)}, MemoryLimits(device=(2 * GIB, None, None, None))
    )
    (text,) = (text for text in finding.evidence if "full" in text)

    # 2,048 − 800 MiB at 300 MiB in ten minutes.
    assert text.startswith("at this rate the device's 2.00 GiB are full in 41 min (")


@pytest.mark.parametrize("limits", [None, MemoryLimits(device=(500 * GIB, None, None, None))])
def test_nothing_is_foretold_where_the_limit_is_unknown_or_far(
    limits: MemoryLimits | None,
) -> None:
    (finding,) = found({0: memory(FLAT, LEAK, LEAK)}, limits)
    assert not any("full" in text for text in finding.evidence)


def test_ranks_of_a_host_share_its_memory() -> None:
    (finding,) = found({row: memory(LEAK) for row in range(4)}, MemoryLimits(host={"a": 8 * GIB}))
    (text,) = (text for text in finding.evidence if "full" in text)

    # 8,192 − 4 · 800 MiB at 4 · 300 MiB in ten minutes.
    assert text.startswith("at this rate the 8.00 GiB that its processes may take are full in 41")


def test_a_device_in_pieces_is_told_where_tensors_take_no_more() -> None:
    steady = noisy(900 * MIB + 100 * MIB * ((TIME * 50) % 1))
    (finding,) = found({row: memory(FLAT, steady, 900 * MIB + LEAK) for row in range(4)})

    assert "while tensors take no more" in finding.summary
    assert "expandable_segments" in finding.advice


def test_what_is_reserved_for_growing_tensors_is_not_in_pieces() -> None:
    (finding,) = found({0: memory(FLAT, LEAK, 1.3 * LEAK)})
    assert "pieces" not in finding.advice


def short(values: np.ndarray, seconds: float = 10.0) -> MemorySeries:
    """Readings of seconds."""
    whole = memory(values)
    return MemorySeries(
        whole.step,
        whole.time_ns[0] + np.linspace(0, seconds * 1e9, len(values)).astype(np.int64),
        whole.resident,
        whole.allocated,
        whole.reserved,
    )


def test_in_a_short_job_a_rank_is_told_by_the_others() -> None:
    """What settles does so on all ranks: by itself, neither would be told."""
    time = np.linspace(0, 1, 20)
    settles = 500 * MIB + 80 * MIB * np.minimum(1, 3 * time)
    sound, leak = short(settles), short(settles + 200 * MIB * time)
    (finding,) = found({row: leak if row == 1 else sound for row in range(4)})
    assert finding.rank == 1
    assert "a step more than that of the others, " in finding.summary
    assert found(dict.fromkeys(range(4), sound)) == ()
    assert found(dict.fromkeys(range(4), leak)) == ()


@pytest.mark.parametrize(("seconds", "is_told"), [(6.0, True), (3.5, False)])
def test_so_much_of_a_job_must_have_been_seen(seconds: float, *, is_told: bool) -> None:
    """Readings come twice a second, and a third of so short a job is left out."""
    time = np.linspace(0, 1, round(2 * seconds) + 1)
    sound = short(np.full(len(time), 500.0 * MIB), seconds)
    leak = short(500 * MIB + 200 * MIB * time, seconds)
    assert bool(found({0: sound, 1: leak, 2: sound, 3: sound})) is is_told


def test_of_growth_beyond_the_others_nothing_is_foretold() -> None:
    """How fast the memory fills is not known: what all grow by is left out of it."""
    time = np.linspace(0, 1, 20)
    settles = 500 * MIB + 80 * MIB * np.minimum(1, 3 * time)
    sound, leak = short(settles), short(settles + 200 * MIB * time)
    full = MemoryLimits(host={"a": 3 * GIB})
    (finding,) = found({row: leak if row == 1 else sound for row in range(4)}, full)
    assert not any("full" in text for text in finding.evidence)
