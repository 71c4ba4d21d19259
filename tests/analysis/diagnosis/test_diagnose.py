"""Rules on signals made to measure: each finds its cause, keeps silent without it, and abstains
without its signals."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from torchscale.analysis.diagnosis.diagnose import diagnose
from torchscale.analysis.diagnosis.signals import (
    DeviceUse,
    FetchedMemory,
    LengthLoad,
    LinkProbe,
    Pauses,
    SignalOrigin,
    Signals,
    Windows,
)
from torchscale.analysis.diagnosis.step_windows import rare_long_steps
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind

STEP = 0.1
BATCHES = 12


def quiet(ranks: int = 4, **changes: Any) -> Signals:
    """A run in which nothing is wrong: 90 ms of own work, 3 ms of exchange, every signal there."""
    noise = np.random.default_rng(
        7
    )  # its own: what a test sees does not depend on the tests before it

    def noisy(value: float, rows: int = ranks) -> Any:
        return value * (1 + 0.005 * noise.standard_normal((rows, BATCHES)))

    signals = Signals(
        origin=SignalOrigin.LAUNCH,
        ranks=tuple(range(ranks)),
        step_seconds=STEP,
        steps=120,
        compute=noisy(0.09),
        unsynchronized=tuple(noisy(0.08)),
        data_wait=noisy(0.0001),
        wait=noisy(0.001),
        blame=np.full(ranks, 1 / ranks),
        transfer=noisy(0.003)[0],
        exposed_p50=0.004,
        exposed_p95=0.006,
        bucket_bytes=(25 << 20, 25 << 20),
        probe=LinkProbe(50 << 20, 0.004, 0.004),
        link_bytes_per_second=25e9,
        pauses=Pauses((0,) * ranks, 0.0, 0.0),
        other_processes=np.zeros(ranks),
        host_bound=np.full(ranks, 0.001),
        readbacks=0.0,
        readback_wait=0.0,
        pageable=0.0,
        copies=(),
        throttled=((),) * ranks,
        allocation_retries=0,
        page_faults=0.0,
        device_use=DeviceUse((0.97,) * ranks, 30),
    )
    assert signals.compute is not None
    steps = np.full(BATCHES, signals.steps / BATCHES)
    windows = Windows(steps, np.full(BATCHES, STEP), signals.compute, noisy(0.04))
    return replace(signals, **{"windows": windows, **changes})


def slow(row: int, extra: float, ranks: int = 4, **changes: Any) -> Signals:
    """One rank computes longer, in its backward pass, and the others wait for it."""
    signals = quiet(ranks)
    assert (
        signals.compute is not None
        and signals.unsynchronized is not None
        and signals.wait is not None
    )
    assert signals.windows is not None
    own, wait = signals.compute.copy(), signals.wait.copy()
    own[row] += extra
    wait += extra
    wait[row] = 0.0
    alone = list(signals.unsynchronized)
    alone[row] = alone[row] + extra
    charge = np.full(ranks, 0.02)
    charge[row] = 1 - 0.02 * (ranks - 1)
    windows = replace(signals.windows, compute=own)
    signals = replace(
        signals, compute=own, wait=wait, unsynchronized=tuple(alone), blame=charge, windows=windows
    )
    return replace(signals, **changes)


def found(signals: Signals) -> dict[FindingKind, Finding]:
    return {finding.kind: finding for finding in diagnose(signals).findings}


def why_not(signals: Signals, kind: FindingKind) -> str:
    return next(item.reason for item in diagnose(signals).abstentions if item.kind is kind)


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_nothing_found_is_an_answer(ranks: int) -> None:
    diagnosis = diagnose(quiet(ranks))
    assert diagnosis.findings == ()
    assert diagnosis.abstentions == ()


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("extra", [0.005, 0.03])
def test_a_straggler_with_its_rank_and_size(ranks: int, extra: float) -> None:
    for row in range(ranks):
        finding = found(slow(row, extra, ranks))[FindingKind.STRAGGLER]
        assert finding.rank == row
        assert finding.cost_seconds == pytest.approx(extra, rel=0.3)
        assert finding.cost_percent == pytest.approx(finding.cost_seconds / STEP * 100)
        assert finding.confidence is Confidence.HIGH
        assert "without gradient synchronization" in " ".join(finding.evidence)


def test_a_rank_that_waits_for_another_is_not_blamed() -> None:
    """It arrives last in most steps, and yet its own time is the others'."""
    signals = replace(
        quiet(), blame=np.array([0.9, 0.1, 0.0, 0.0]), wait=np.full((4, BATCHES), 0.02)
    )
    assert FindingKind.STRAGGLER not in found(signals)


@pytest.mark.parametrize(
    ("signals", "reason"),
    [
        (slow(1, 0.02, steps=19), "fewer than 20"),
        (slow(1, 0.02, trusted=False), "cannot be compared with confidence"),
        (
            slow(1, 0.02, unsynchronized=quiet().unsynchronized),
            "but not without gradient synchronization",
        ),
        (
            slow(1, 0.02, unsynchronized=None, windows=None),
            "no window without gradient synchronization",
        ),
        (slow(1, 0.02, unsynchronized=None), "but not in its forward pass and optimizer"),
        (
            slow(1, 0.02, other_processes=np.array([0.0, 0.3, 0.0, 0.0])),
            "other processes took 30 %",
        ),
    ],
)
def test_a_straggler_is_not_named_on_weak_evidence(signals: Signals, reason: str) -> None:
    assert FindingKind.STRAGGLER not in found(signals)
    assert reason in why_not(signals, FindingKind.STRAGGLER)


def test_a_rank_that_was_slow_for_a_while_is_no_straggler() -> None:
    signals = slow(2, 0.0)
    assert signals.compute is not None and signals.wait is not None
    own = signals.compute.copy()
    own[2, :6] += 0.04
    waits = signals.wait + 0.01
    older = replace(signals, compute=own, wait=waits, windows=None)
    assert "not steadily" in why_not(older, FindingKind.STRAGGLER)


def test_what_rare_long_steps_explain_is_no_straggler() -> None:
    """In records without windows, which hold no pauses, their mean is subtracted."""
    pauses = Pauses((1, 5, 0, 0), 0.009, 0.0)
    older: dict[str, Any] = {"pauses": pauses, "windows": None}
    assert FindingKind.STRAGGLER in found(slow(1, 0.01, windows=None))
    assert FindingKind.STRAGGLER not in found(slow(1, 0.01, **older))
    assert FindingKind.PAUSES in found(slow(1, 0.01, **older))
    beyond = found(slow(1, 0.03, **older))[FindingKind.STRAGGLER]
    assert beyond.rank == 1
    assert beyond.cost_seconds == pytest.approx(0.021, rel=0.05)
    assert FindingKind.STRAGGLER in found(slow(0, 0.01, **older)), (
        "pauses of another rank explain nothing"
    )


def test_extra_work_in_the_forward_pass_is_seen_in_every_step() -> None:
    """Twelve passes without synchronization scatter by more than 2 ms; the forward passes of the
    whole run do not."""
    signals = slow(1, 0.002, 2, windows=None)
    windows = slow(1, 0.002, 2).windows
    assert windows is not None and windows.quiet is not None and signals.unsynchronized is not None
    scattered = tuple(series + 0.01 * np.arange(len(series)) for series in signals.unsynchronized)
    signals = replace(signals, step_seconds=0.05, unsynchronized=scattered)
    even = windows.quiet / 4
    busy = even.copy()
    busy[1] += 0.002
    small = replace(windows, compute=windows.compute - 0.05, quiet=even)
    reason = why_not(replace(signals, windows=small), FindingKind.STRAGGLER)
    assert "but not without gradient synchronization" in reason
    finding = found(replace(signals, windows=replace(small, quiet=busy)))[FindingKind.STRAGGLER]
    assert finding.rank == 1
    assert "while no gradient is in transfer" in " ".join(finding.evidence)


def test_a_straggler_of_a_recording_needs_no_window() -> None:
    signals = slow(1, 0.02, unsynchronized=None, windows=None, origin=SignalOrigin.TRACE)
    assert found(signals)[FindingKind.STRAGGLER].rank == 1


@pytest.mark.parametrize(("steps", "again"), [(60, True), (600, False)])
def test_a_straggler_of_a_short_recording_is_to_be_recorded_again(steps: int, again: bool) -> None:
    """A rank that is slow for six seconds may be slow for no longer; for a minute, it is slow."""
    signals = slow(
        1, 0.02, unsynchronized=None, windows=None, origin=SignalOrigin.TRACE, steps=steps
    )
    assert ("record again first" in found(signals)[FindingKind.STRAGGLER].advice) is again


def test_a_mean_counts_each_sample_by_its_steps() -> None:
    """Batches of a measurement that adapts have unequal numbers of steps."""
    weights, values = np.arange(1.0, BATCHES + 1), np.linspace(0.1, 0.4, 4 * BATCHES)
    by_rank = values.reshape(4, BATCHES)
    signals = quiet(weights=weights)
    assert signals.mean(by_rank) == pytest.approx(np.average(by_rank, axis=1, weights=weights))
    assert signals.mean(by_rank[0]) == pytest.approx(np.average(by_rank[0], weights=weights))


@pytest.mark.parametrize(("collectives", "named"), [(20, True), (19, False), (None, False)])
def test_collectives_are_enough_where_steps_were_not_recorded(
    collectives: int | None, named: bool
) -> None:
    signals = slow(1, 0.02, unsynchronized=None, windows=None, origin=SignalOrigin.TRACE, steps=0)
    findings = found(replace(signals, collectives=collectives))
    assert (FindingKind.STRAGGLER in findings) is named


def test_a_loader_that_keeps_one_rank_is_no_reason_to_spare_another() -> None:
    data = np.full((4, BATCHES), 0.0001)
    data[3] += 0.06
    findings = found(slow(1, 0.02, data_wait=data))
    assert findings[FindingKind.INPUT_PIPELINE].rank == 3
    assert findings[FindingKind.STRAGGLER].rank == 1


def test_a_moving_straggler_is_an_imbalance_and_nobodys() -> None:
    finding = found(replace(quiet(), wait=np.full((4, BATCHES), 0.02)))[FindingKind.LOAD_IMBALANCE]
    assert finding.rank is None
    assert finding.cost_seconds == pytest.approx(0.02)


def test_one_rank_that_is_always_late_and_not_named_is_no_imbalance() -> None:
    """Ranks do not take turns then; why that one is late is not known."""
    late = np.array([0.97, 0.01, 0.01, 0.01])
    waiting = quiet(wait=np.full((4, BATCHES), 0.02), blame=late)
    assert FindingKind.LOAD_IMBALANCE not in found(waiting)


def test_pauses_of_all_ranks_are_no_imbalance_too_and_slow_loaders_are_something_else() -> None:
    """Waiting that pauses explain counts once; a loader on all ranks makes nobody wait for
    another."""
    waiting = quiet(wait=np.full((4, BATCHES), 0.02))
    paused = replace(waiting, pauses=Pauses((5, 5, 5, 5), 0.012, 0.0))
    assert set(found(paused)) == {FindingKind.PAUSES}
    loading = replace(waiting, data_wait=np.full((4, BATCHES), 0.02))
    assert found(loading)[FindingKind.LOAD_IMBALANCE].cost_seconds == pytest.approx(0.02)


def test_what_a_straggler_explains_is_no_imbalance() -> None:
    assert FindingKind.LOAD_IMBALANCE not in found(slow(0, 0.03))


def test_a_slow_loader_on_all_and_on_one() -> None:
    everyone = found(replace(quiet(), data_wait=np.full((4, BATCHES), 0.02)))[
        FindingKind.INPUT_PIPELINE
    ]
    assert everyone.rank is None
    assert everyone.cost_seconds == pytest.approx(0.02)
    data = np.full((4, BATCHES), 0.0001)
    data[3] += 0.02
    one = found(replace(quiet(), data_wait=data))[FindingKind.INPUT_PIPELINE]
    assert one.rank == 3
    assert one.cost_seconds == pytest.approx(0.02)
    few = np.full((16, 2), 0.0001)
    few[3] += 0.02
    assert FindingKind.INPUT_PIPELINE not in found(quiet(16, data_wait=few)), "two samples of each"


def test_small_buckets_slow_link_and_plain_exposure() -> None:
    exposed = np.full(BATCHES, 0.03)
    plain = found(replace(quiet(), transfer=exposed))
    assert set(plain) == {FindingKind.EXPOSED_COMMUNICATION}
    assert plain[FindingKind.EXPOSED_COMMUNICATION].cost_seconds == pytest.approx(0.03)

    small = replace(
        quiet(),
        transfer=exposed,
        bucket_bytes=(10_000,) * 400,
        probe=LinkProbe(4_000_000, 0.035, 0.007),
    )
    finding = found(small)[FindingKind.SMALL_BUCKETS]
    assert finding.cost_seconds == pytest.approx(0.028)
    assert "400 buckets" in finding.summary
    assert FindingKind.EXPOSED_COMMUNICATION not in found(small)
    assert FindingKind.SMALL_BUCKETS not in found(
        replace(small, probe=LinkProbe(4_000_000, 0.008, 0.007))
    )

    # 50 MiB over four ranks: 78.6 MB on the bus in 31 ms are 2.5 GB/s of 25.
    slow_link = found(replace(quiet(), transfer=exposed, probe=LinkProbe(50 << 20, 0.031, 0.031)))
    assert slow_link[FindingKind.SLOW_LINK].cost_seconds == pytest.approx(
        0.03 * (1 - 2.536 / 25), rel=1e-3
    )
    assert FindingKind.EXPOSED_COMMUNICATION not in slow_link


def test_unsteady_exchange_only_where_nothing_else_explains_it() -> None:
    unsteady = replace(quiet(), exposed_p50=0.02, exposed_p95=0.03)
    assert FindingKind.SYNC_VARIANCE in found(unsteady)
    assert FindingKind.SYNC_VARIANCE not in found(replace(unsteady, exposed_p95=0.023))
    assert FindingKind.SYNC_VARIANCE not in found(
        replace(unsteady, exposed_p50=0.004, exposed_p95=0.03)
    )
    assert FindingKind.SYNC_VARIANCE not in found(slow(1, 0.03, exposed_p50=0.02, exposed_p95=0.03))


def test_pauses_and_what_they_are_of() -> None:
    other = found(replace(quiet(), pauses=Pauses((5, 0, 0, 0), 0.006, 0.0001)))[FindingKind.PAUSES]
    assert (other.rank, other.cost_seconds) == (None, 0.006)
    assert "other than garbage collection" in other.summary
    collected = found(replace(quiet(), pauses=Pauses((5, 5, 5, 5), 0.006, 0.005)))[
        FindingKind.PAUSES
    ]
    assert "Python's garbage collection" in collected.summary
    assert "gc.freeze" in collected.advice
    assert FindingKind.PAUSES not in found(
        replace(quiet(), pauses=Pauses((1, 0, 0, 0), 0.006, 0.0))
    )


@pytest.mark.parametrize(
    ("pauses", "confidence", "said"),
    [
        (Pauses((5, 5, 0, 0), 0.006, 0.0001), Confidence.HIGH, True),
        (Pauses((3, 3, 0, 0), 0.006, 0.0001), Confidence.MEDIUM, True),
        (Pauses((3, 3, 0, 0), 0.006, 0.005), Confidence.HIGH, True),
        (Pauses((5, 5, 0, 0), 0.006, None), Confidence.HIGH, False),
    ],
)
def test_few_pauses_are_sure_only_where_the_collector_explains_them(
    pauses: Pauses, confidence: Confidence, said: bool
) -> None:
    """Three long steps may be chance. What collections took is evidence where it was recorded."""
    finding = found(quiet(pauses=pauses))[FindingKind.PAUSES]
    assert finding.confidence is confidence
    assert any("garbage collection: " in line for line in finding.evidence) is said


def test_long_steps_are_pauses_only_where_they_are_rare() -> None:
    seconds = np.full((2, 100), 0.1)
    seconds[0, ::20] = 0.3
    seconds[1, ::3] = 0.3
    pauses = rare_long_steps(seconds)
    assert pauses is not None
    assert pauses.count == (5, 0)
    assert pauses.seconds_per_step == pytest.approx(0.01)
    seconds[0, 10::20] = 0.3
    tenth = rare_long_steps(seconds)
    assert tenth is not None
    assert tenth.count == (10, 0), "one step of ten is rare still"
    assert rare_long_steps(seconds[:, :19]) is None
    assert rare_long_steps(seconds[:, :20]) is not None


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"host_bound": np.full(4, 0.02)}, FindingKind.HOST_BOUND, "hands out work late"),
        (
            {"host_bound": np.full(4, 0.02), "on_device": False},
            FindingKind.HOST_BOUND,
            "between operators",
        ),
        ({"readbacks": 2.0, "readback_wait": 0.01}, FindingKind.HOST_SYNC, "2 times"),
        ({"pageable": 0.01}, FindingKind.PAGEABLE_COPIES, "not pinned"),
        (
            {"throttled": ((), ("hardware slowdown",), (), ())},
            FindingKind.THROTTLING,
            "rank 1: hardware slowdown",
        ),
        ({"allocation_retries": 3}, FindingKind.MEMORY_PRESSURE, "3 times"),
        ({"allocation_retries": 3, "page_faults": None}, FindingKind.MEMORY_PRESSURE, "3 times"),
        ({"page_faults": 40.0}, FindingKind.MEMORY_PRESSURE, "40 pages"),
        ({"page_faults": 1.0}, FindingKind.MEMORY_PRESSURE, "1 pages"),
        ({"allocation_retries": None, "page_faults": 40.0}, FindingKind.MEMORY_PRESSURE, "40 pa"),
    ],
)
def test_the_rules_with_one_signal(changes: dict[str, Any], kind: FindingKind, words: str) -> None:
    (finding,) = diagnose(replace(quiet(), **changes)).findings
    assert finding.kind is kind
    assert words in finding.summary
    assert finding.advice


@pytest.mark.parametrize(
    ("readbacks", "wait", "told"),
    [(1.0, 0.01, True), (0.5, 0.01, False), (2.0, 0.019 * STEP, False)],
)
def test_a_readback_counts_once_a_step_and_from_2_percent(
    readbacks: float, wait: float, told: bool
) -> None:
    """A loss that is printed every other step, or that costs next to nothing, is nobody's
    bottleneck."""
    findings = found(replace(quiet(), readbacks=readbacks, readback_wait=wait))
    assert set(findings) == ({FindingKind.HOST_SYNC} if told else set())


@pytest.mark.parametrize(("hit", "rank"), [((1,), 1), ((1, 3), None)])
def test_lowered_clocks_have_a_rank_where_it_is_one_alone(
    hit: tuple[int, ...], rank: int | None
) -> None:
    """A reader looks for the node of that rank; of several ranks none is the one."""
    throttled = tuple(("power cap",) if number in hit else () for number in range(4))
    assert found(quiet(throttled=throttled))[FindingKind.THROTTLING].rank == rank


def test_of_many_ranks_sixteen_are_shown() -> None:
    """A report of a thousand ranks stays readable."""
    idle = found(quiet(17, host_bound=np.full(17, 0.02)))[FindingKind.HOST_BOUND]
    assert idle.evidence == (f"by rank: {', '.join(['20.0 ms'] * 16)}",)
    lowered = found(quiet(17, throttled=(("power cap",),) * 17))[FindingKind.THROTTLING]
    assert lowered.summary.count("power cap") == 16
    assert lowered.summary.endswith("rank 15: power cap")


def test_a_recording_without_steps_says_what_its_communication_is_of() -> None:
    for steps, said in ((0, "over the whole recording"), (120, "over 120 steps")):
        findings = found(quiet(transfer=np.full(BATCHES, 0.03), steps=steps))
        assert findings[FindingKind.EXPOSED_COMMUNICATION].evidence[0] == said


@pytest.mark.parametrize(
    "changes", [{"throttled": (("power cap",), (), (), ())}, {"page_faults": 40.0}]
)
def test_what_was_counted_and_not_timed_has_no_cost(changes: dict[str, Any]) -> None:
    """No number that was not measured."""
    (finding,) = diagnose(quiet(**changes)).findings
    assert (finding.cost_seconds, finding.cost_percent) == (0.0, 0.0)
    assert "cannot be derived" in finding.evidence[0]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("system", "launch.malloc: keep"),
        ("environment", "MALLOC_"),
        ("keep", "mmap"),
        (None, "jemalloc"),
    ],
)
def test_memory_that_every_step_fetches_again(setting: str | None, words: str) -> None:
    fetched = FetchedMemory(2, 612.0, 0.0021, setting)
    finding = found(replace(quiet(), on_device=False, fetched_memory=fetched))[
        FindingKind.MEMORY_RETURNED
    ]
    assert "612 minor page faults a step on rank 2 cost at least 2.10 ms" in finding.summary
    assert finding.cost_percent == pytest.approx(2.1)
    assert words in finding.advice


def test_few_page_faults_are_nothing_and_on_a_gpu_they_do_not_count() -> None:
    little, much = FetchedMemory(0, 500.0, 0.0019), FetchedMemory(0, 90_000.0, 0.05)
    assert FindingKind.MEMORY_RETURNED not in found(
        replace(quiet(), on_device=False, fetched_memory=little)
    )
    assert FindingKind.MEMORY_RETURNED not in found(replace(quiet(), fetched_memory=much))
    assert "minor page faults" in why_not(
        replace(quiet(), on_device=False), FindingKind.MEMORY_RETURNED
    )


def test_host_work_of_one_rank_is_a_stragglers() -> None:
    host = np.array([0.001, 0.03, 0.001, 0.001])
    signals = slow(1, 0.03, host_bound=host, origin=SignalOrigin.TRACE)
    assert FindingKind.HOST_BOUND not in found(signals)
    assert "waiting for the host" in " ".join(found(signals)[FindingKind.STRAGGLER].evidence)


def test_rules_about_several_ranks_do_not_apply_to_one() -> None:
    alone = diagnose(quiet(1))
    assert alone.findings == ()
    alone_and_unmeasured = diagnose(
        quiet(1, **dict.fromkeys(("wait", "blame", "transfer", "bucket_bytes", "probe")))
    )
    about_groups = {
        FindingKind.STRAGGLER,
        FindingKind.LOAD_IMBALANCE,
        FindingKind.EXPOSED_COMMUNICATION,
        FindingKind.SMALL_BUCKETS,
        FindingKind.SLOW_LINK,
        FindingKind.SYNC_VARIANCE,
        FindingKind.UNEVEN_STAGES,
        FindingKind.UNEVEN_MICRO_BATCHES,
    }
    for diagnosis in (alone, alone_and_unmeasured, diagnose(quiet(1, staged=True))):
        assert not about_groups & {item.kind for item in diagnosis.abstentions}


@pytest.mark.parametrize(
    ("ranks", "job_ranks", "is_alone"),
    [(1, None, False), (1, 1, False), (1, 2, True), (2, 2, False), (2, 8, False)],
)
def test_a_rank_whose_job_has_others_is_compared_with_none(
    ranks: int, job_ranks: int | None, is_alone: bool
) -> None:
    """A rule about several ranks says so there; of a job of one rank it says nothing."""
    signals = quiet(ranks, job_ranks=job_ranks)
    reasons = {item.kind: item.reason for item in diagnose(signals).abstentions}
    assert set(reasons.values()) == ({f"one of {job_ranks} ranks is here"} if is_alone else set())
    assert (FindingKind.LOAD_IMBALANCE in reasons) is is_alone


def test_every_signal_that_is_missing_makes_its_rules_abstain() -> None:
    always = {
        "origin",
        "ranks",
        "step_seconds",
        "steps",
        "trusted",
        "on_device",
        "collectives",
        "other_processes",
        "overlap",
        "busy",
        "fetched_memory",
        "estimated_share",
        "exposed",
        "job_ranks",
    }
    always |= {
        "staged",
        "stages",
        "why_no_stages",
        "micro_batches",
        "micro_batch_lengths",
        "weights",
        "hosts",
        "experts",
        "lengths",
        "split_sequences",
    }
    for field in fields(Signals):
        if field.name in always:
            continue
        missing: dict[str, Any] = {field.name: None}
        one_less = replace(slow(1, 0.03), **missing)
        abstentions = diagnose(one_less).abstentions
        if field.name in ("allocation_retries", "page_faults"):
            both = replace(quiet(), allocation_retries=None, page_faults=None)
            assert "not measured" in why_not(both, FindingKind.MEMORY_PRESSURE)
        else:
            assert abstentions, field.name


def test_waiting_for_long_samples_costs_what_they_take_and_no_more_than_ranks_wait() -> None:
    """10 ms of waiting, of which samples explain 8; or all of 10 where they would explain 30. Of a
    launch whose waits are not known the cause is less certain."""
    wait = np.full((4, BATCHES), 0.01)
    for explained, cost in ((0.008, 0.008), (0.03, 0.01)):
        signals = quiet(wait=wait, lengths=LengthLoad(explained, (100.0, 110.0, 90.0, 95.0)))
        finding = found(signals)[FindingKind.UNEVEN_LENGTHS]
        assert finding.cost_seconds == pytest.approx(cost)
        assert finding.rank is None
        assert "rank 1: 110" in finding.evidence[0]
    assert finding.confidence is Confidence.MEDIUM
    unknown = quiet(wait=None, lengths=LengthLoad(0.008, (1.0,) * 4))
    assert found(unknown)[FindingKind.UNEVEN_LENGTHS].confidence is Confidence.MEDIUM
    little = quiet(wait=wait, lengths=LengthLoad(0.0019, (1.0,) * 4))
    assert FindingKind.UNEVEN_LENGTHS not in found(little)


def test_waits_that_long_samples_explain_are_no_load_imbalance() -> None:
    wait = np.full((4, BATCHES), 0.02)
    turns = np.full(4, 0.25)
    plain = found(quiet(wait=wait, blame=turns))
    assert set(plain) == {FindingKind.LOAD_IMBALANCE}
    explained = quiet(wait=wait, blame=turns, lengths=LengthLoad(0.018, (1.0,) * 4))
    assert set(found(explained)) == {FindingKind.UNEVEN_LENGTHS}


def test_a_doubtful_recording_makes_every_finding_low() -> None:
    signals = replace(quiet(), trusted=False, pageable=0.02, host_bound=np.full(4, 0.03))
    assert {finding.confidence for finding in diagnose(signals).findings} == {Confidence.LOW}


def test_no_rank_of_a_pipeline_is_blamed_for_holding_other_layers() -> None:
    found_of_stages = replace(slow(1, 0.03), staged=True)
    assert FindingKind.STRAGGLER not in found(found_of_stages)
    assert "as stages of a pipeline do" in why_not(found_of_stages, FindingKind.STRAGGLER)
    assert "as stages of a pipeline do" in why_not(found_of_stages, FindingKind.LOAD_IMBALANCE)


def test_a_little_load_on_its_cores_does_not_excuse_a_straggler() -> None:
    """Two per cent of the cores' time are 2 ms of a step, and it loses 20."""
    little = np.array([0.0, 0.02, 0.0, 0.0])
    assert found(slow(1, 0.02, other_processes=little))[FindingKind.STRAGGLER].rank == 1
    assert "other processes took 15 %" in why_not(
        slow(1, 0.02, other_processes=little * 7.5), FindingKind.STRAGGLER
    )


def test_a_rank_that_waits_a_little_longer_for_data_is_not_named() -> None:
    """Two of 100 ms are what collating one batch rather than another can take."""
    data = np.full((4, BATCHES), 0.0001)
    data[3] += 0.002
    assert FindingKind.INPUT_PIPELINE not in found(quiet(data_wait=data))


@pytest.mark.parametrize(("steps", "confidence"), [(120, Confidence.HIGH), (5, Confidence.LOW)])
def test_what_few_steps_show_is_less_certain(steps: int, confidence: Confidence) -> None:
    findings = found(
        quiet(
            steps=steps,
            host_bound=np.full(4, 0.02),
            data_wait=np.full((4, BATCHES), 0.02),
            transfer=np.full(BATCHES, 0.03),
        )
    )
    assert findings[FindingKind.EXPOSED_COMMUNICATION].confidence is confidence
    assert findings[FindingKind.HOST_BOUND].confidence is confidence
    assert findings[FindingKind.INPUT_PIPELINE].confidence is confidence


@pytest.mark.parametrize(("factor", "count"), [(1.4, 0), (1.6, 2), (3.0, 2)])
def test_an_interruption_of_half_a_step_is_a_pause_and_scatter_is_none(
    factor: float, count: int
) -> None:
    seconds = np.full((2, 60), STEP)
    seconds[1, [20, 40]] *= factor
    found_pauses = rare_long_steps(seconds)
    assert found_pauses is not None
    assert found_pauses.count == (0, count)


@pytest.mark.parametrize(
    ("kind", "signal", "floor"),
    [
        (FindingKind.HOST_BOUND, "host_bound", 5.0),
        (FindingKind.HOST_SYNC, "readback_wait", 1.0),
        (FindingKind.PAGEABLE_COPIES, "pageable", 1.0),
        (FindingKind.MEMORY_RETURNED, "fetched_memory", 1.0),
    ],
)
def test_what_costs_less_than_its_share_of_the_step_is_not_told(
    kind: FindingKind, signal: str, floor: float
) -> None:
    """A tenth of the step for a host that is late, a fiftieth for all others: of less nobody gets
    the work back that a change takes."""

    def told(seconds: float) -> bool:
        value: Any = seconds
        if signal == "host_bound":
            value = np.full(4, seconds)
        if signal == "fetched_memory":
            value = FetchedMemory(0, 600.0, seconds)
        on_device = signal != "fetched_memory"
        given: dict[str, Any] = {"readbacks": 1.0, "on_device": on_device, signal: value}
        return kind in found(quiet(step_seconds=50.0, **given))

    assert told(floor)
    assert not told(0.999 * floor)


def test_twenty_steps_are_enough_to_be_sure() -> None:
    """Of fewer, chance gives one side more than its share too often."""
    fetched = FetchedMemory(0, 600.0, 0.05)
    for steps, confidence in ((20, Confidence.HIGH), (19, Confidence.LOW)):
        device = found(
            quiet(steps=steps, host_bound=np.full(4, 0.02), transfer=np.full(BATCHES, 0.03))
        )
        assert device[FindingKind.HOST_BOUND].confidence is confidence
        assert device[FindingKind.EXPOSED_COMMUNICATION].confidence is confidence
        loader = found(quiet(steps=steps, data_wait=np.full((4, BATCHES), 0.02)))
        assert loader[FindingKind.INPUT_PIPELINE].confidence is confidence
        host = found(quiet(steps=steps, on_device=False, fetched_memory=fetched))
        assert host[FindingKind.MEMORY_RETURNED].confidence is confidence
        named = found(slow(1, 0.02, origin=SignalOrigin.TRACE, windows=None, steps=steps))
        assert (FindingKind.STRAGGLER in named) is (steps == 20)


@pytest.mark.parametrize(
    ("count", "seconds", "confidence"),
    [
        (2, 3.0, None),
        (3, 2.99, None),
        (3, 3.0, Confidence.MEDIUM),
        (4, 3.0, Confidence.MEDIUM),
        (5, 3.0, Confidence.HIGH),
    ],
)
def test_three_pauses_that_cost_three_hundredths_are_told_and_five_are_a_pattern(
    count: int, seconds: float, confidence: Confidence | None
) -> None:
    signals = quiet(step_seconds=100.0, pauses=Pauses((count, count, 0, 0), seconds, 0.0))
    finding = found(signals).get(FindingKind.PAUSES)
    assert (None if finding is None else finding.confidence) is confidence


@pytest.mark.parametrize(
    ("wait", "top", "told"), [(3.0, 0.75, True), (2.99, 0.75, False), (3.0, 0.76, False)]
)
def test_waiting_of_an_eighth_of_the_step_is_nobodys_where_ranks_take_turns(
    wait: float, top: float, told: bool
) -> None:
    """Steps of ranks that share a host scatter by less. One rank that is late in more than three of
    four steps takes no turns."""
    blame = np.array([top, 1 - top, 0.0, 0.0])
    signals = quiet(step_seconds=25.0, wait=np.full((4, BATCHES), wait), blame=blame)
    assert (FindingKind.LOAD_IMBALANCE in found(signals)) is told


@pytest.mark.parametrize(
    ("second", "told"),
    [(0.125, True), (0.124, False)],
)
def test_ranks_take_turns_where_a_second_one_is_late_half_as_often_as_if_all_were(
    second: float, told: bool
) -> None:
    blame = np.array([0.7, second, 0.1, 0.2 - second])
    signals = quiet(step_seconds=25.0, wait=np.full((4, BATCHES), 3.0), blame=blame)
    assert (FindingKind.LOAD_IMBALANCE in found(signals)) is told


@pytest.mark.parametrize(("seconds", "told"), [(1.0, True), (0.99, False)])
def test_a_loader_that_keeps_all_is_told_from_a_twentieth_of_the_step_on(
    seconds: float, told: bool
) -> None:
    """Collating and copying a batch takes something in every run."""
    signals = quiet(step_seconds=20.0, data_wait=np.full((4, BATCHES), seconds))
    assert (FindingKind.INPUT_PIPELINE in found(signals)) is told


def test_three_samples_of_a_rank_are_enough_to_name_it() -> None:
    """With two, the interval of their mean is 12.7 standard errors wide."""
    data = np.full((16, 3), 0.0001)
    data[3] += 0.02
    assert found(quiet(16, data_wait=data))[FindingKind.INPUT_PIPELINE].rank == 3


@pytest.mark.parametrize(("ranks", "confidence"), [(10, Confidence.HIGH), (9, Confidence.MEDIUM)])
def test_a_rank_that_chance_picks_in_one_of_a_hundred_runs_is_certain(
    ranks: int, confidence: Confidence
) -> None:
    """Three of three pauses fall on the same one of ten ranks by chance in 1 % of runs, on one of
    nine more often."""
    none = (0,) * (ranks - 1)
    pauses = Pauses((3, *none), 0.006, 0.005, (0.006, *map(float, none)))
    finding = found(quiet(ranks, pauses=pauses))[FindingKind.PAUSES]
    assert (finding.rank, finding.confidence) == (0, confidence)


def test_one_long_wait_for_data_names_no_rank() -> None:
    """Nor does waiting a little longer than all others do, who wait long themselves."""
    once = np.full((16, BATCHES), 0.0001)
    once[3, 0] = 0.1
    assert FindingKind.INPUT_PIPELINE not in found(quiet(16, data_wait=once))
    everyone = np.full((4, BATCHES), 0.05)
    everyone[3] += 0.004
    assert found(quiet(data_wait=everyone))[FindingKind.INPUT_PIPELINE].rank is None
