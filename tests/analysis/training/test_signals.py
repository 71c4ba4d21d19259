"""From steps to the digest of signals, and from there to the parts of lost time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.factories import cells, launch_record, rank_record, summarize_cell, training_result
from torchscale.analysis.diagnosis.diagnose import diagnose
from torchscale.analysis.diagnosis.signals import FetchedMemory
from torchscale.analysis.training.decomposition import decompose, step_parts
from torchscale.analysis.training.digest import digest_signals
from torchscale.analysis.training.exchange_waits import PairedWaits
from torchscale.analysis.training.signals import launch_signals
from torchscale.config.choices import DeviceKind
from torchscale.schema.launch.signals import (
    LinkSample,
    MinorFaults,
    PeriodDigest,
    RankSignals,
    SignalDigest,
)
from torchscale.schema.launch.steps import StepSample
from torchscale.schema.node.environment import HostAllocator
from torchscale.schema.profiles.finding import FindingKind
from torchscale.schema.run.content import CellRun
from torchscale.schema.run.experiment_file import PlannedCell

STEPS = 100


def step(
    number: int,
    *,
    compute: float,
    sync: float | None,
    data: float = 0.001,
    buffers: float | None = None,
) -> StepSample:
    """Compute is split over the phases; the step is the sum of them."""
    return StepSample(
        step=number,
        seconds=compute + data + (sync or 0.0) + (buffers or 0.0),
        data_wait=data,
        forward=compute * 0.3,
        backward=compute * 0.6,
        optimizer=compute * 0.1,
        exposed_sync=sync,
        buffer_sync=buffers,
    )


def ranks_of(late: Sequence[float], transfer: float = 0.004) -> list[list[StepSample]]:
    """Ranks whose compute is longer by ``late`` than 50 ms; all leave the exchange together."""
    return [
        [step(n, compute=0.05 + extra, sync=max(late) - extra + transfer) for n in range(STEPS)]
        for extra in late
    ]


def record(late: Sequence[float], **changes: Any) -> Any:
    cell = cells(gpu_counts=len(late))[0]
    series = ranks_of(late)
    total = series[0][0].seconds * 10
    signals = {
        rank: RankSignals(
            unsynchronized_seconds=tuple(0.045 + extra + 0.00001 * n for n in range(12)),
            bucket_bytes=(2_000_000,) * 2,
            link=LinkSample(
                payload_bytes=4_000_000, as_bucketed_seconds=0.003, merged_seconds=0.003, repeats=7
            ),
            collections=1,
            collection_seconds=0.001,
            longest_collection_seconds=0.001,
            page_faults=0,
        )
        for rank, extra in enumerate(late)
    }
    ranks = [
        rank_record(cell, rank, (total,) * 10, signals=signals[rank], **changes)
        for rank in range(len(late))
    ]
    return cell, launch_record(
        cell, batches=(total,) * 10, ranks=ranks, signals=digest_signals(series, [10] * 10)
    )


def blocked_ranks(late: Sequence[float], transfer: float = 0.004) -> list[list[StepSample]]:
    """The same under a strategy that waits within its passes."""
    return [
        [
            sample.model_copy(update={"exposed_sync": None, "blocked": sample.exposed_sync})
            for sample in rank
        ]
        for rank in ranks_of(late, transfer)
    ]


def test_waits_within_the_passes_are_compared_like_those_after_them() -> None:
    late = [0.0, 0.01, 0.002]
    digest, other = (
        digest_signals(ranks, [10] * 10) for ranks in (blocked_ranks(late), ranks_of(late))
    )

    assert digest.wait == other.wait
    assert digest.blame == other.blame
    assert digest.transfer == other.transfer
    assert digest.windows is not None
    assert other.windows is not None
    # Each exchange is waited for at once, so that nothing disturbs any compute.
    assert digest.windows.quiet_us == digest.windows.compute_us
    assert other.windows.quiet_us != other.windows.compute_us


def paired_waits(complete: Sequence[bool]) -> PairedWaits:
    """Of two ranks that are each late to other collectives of a step by 3 ms, as both wait 4 ms."""
    shape = (2, len(complete))
    return PairedWaits(
        wait=np.full(shape, 0.003),
        transfer=np.full(shape, 0.001),
        blame=np.full(shape, 0.003),
        complete=np.array(complete),
    )


def test_ranks_that_are_late_to_different_collectives_wait_for_each_other() -> None:
    """By their totals neither waits for the other."""
    series = blocked_ranks([0.0, 0.0])
    totals = digest_signals(series, [10] * 10)
    pairs = digest_signals(series, [10] * 10, paired_waits([True] * STEPS))

    assert totals.wait is not None and pairs.wait is not None
    assert totals.transfer is not None and pairs.transfer is not None
    assert totals.wait[0] == pytest.approx([0.0] * 10)
    assert totals.transfer == pytest.approx([0.004] * 10)
    assert pairs.wait[0] == pytest.approx([0.003] * 10)
    assert pairs.transfer == pytest.approx([0.001] * 10)
    assert pairs.blame == pytest.approx([0.5, 0.5])
    assert totals.exposed_p50 == pytest.approx(0.004)
    assert pairs.exposed_p50 == pytest.approx(0.001)


def test_steps_whose_collectives_were_lost_are_judged_by_their_totals() -> None:
    """In the middle, and at the end of a launch that had too many to note."""
    known = [True] * 20 + [False] * 10 + [True] * 20
    digest = digest_signals(blocked_ranks([0.0, 0.0]), [10] * 10, paired_waits(known))
    assert digest.transfer == pytest.approx([0.001] * 2 + [0.004] + [0.001] * 2 + [0.004] * 5)


def test_pairs_that_include_the_exchange_of_gradients_decide_on_all_of_it() -> None:
    """Within groups each exchange has a last rank of its own; of all ranks together none waits."""
    series = [
        [sample.model_copy(update={"blocked": 0.002}) for sample in rank]
        for rank in ranks_of([0.0, 0.0], transfer=0.002)
    ]
    pairs = replace(paired_waits([True] * STEPS), includes_sync=True)
    digest = digest_signals(series, [10] * 10, pairs)

    assert digest.wait is not None
    assert digest.wait[0] == pytest.approx([0.003] * 10)
    assert digest.transfer == pytest.approx([0.001] * 10)
    assert digest.exposed_p50 == pytest.approx(0.001)
    assert digest.windows is not None
    assert digest.windows.quiet_us != digest.windows.compute_us, "gradients travel meanwhile"


def test_the_rank_that_waits_least_came_last() -> None:
    digest = digest_signals(ranks_of([0.0, 0.01, 0.002]), [10] * 10)
    assert digest.compute[1] == pytest.approx([0.06] * 10)
    assert digest.transfer == pytest.approx([0.004] * 10)
    assert digest.wait is not None
    assert [row[0] for row in digest.wait] == pytest.approx([0.01, 0.0, 0.008])
    assert digest.blame == pytest.approx([0.0, 1.0, 0.0])
    assert digest.exposed_p50 == pytest.approx(0.004), "waits are no part of a transfer"


@pytest.mark.parametrize("every", [2, 5, 12])
def test_a_launch_keeps_what_comes_back_every_so_many_steps(every: int) -> None:
    """Its digest holds it, since a record has no single steps."""
    late = [[0.03 * (rank == 1 and n % every == 0) for n in range(STEPS)] for rank in range(2)]
    series = [
        [
            step(n, compute=0.05 + mine[n], sync=0.004 + max(one[n] for one in late) - mine[n])
            for n in range(STEPS)
        ]
        for mine in late
    ]
    digest = digest_signals(series, [10] * 10)
    (period,) = digest.periods
    assert (period.rank, period.steps, period.times) == (1, every, len(range(0, STEPS, every)))
    assert period.cost_seconds == pytest.approx(0.03 * period.times / STEPS)

    _, launch = record([0.0, 0.0])
    result = training_result(launch).model_copy(update={"signals": digest})
    signals = launch_signals(result)
    assert signals is not None
    found = {(item.kind, item.rank, item.period_steps) for item in diagnose(signals).findings}
    assert (FindingKind.STRAGGLER, 1, every) in found
    assert FindingKind.SYNC_VARIANCE not in {kind for kind, _, _ in found}


def test_a_period_of_a_rank_that_is_not_there_is_refused() -> None:
    digest = digest_signals(ranks_of([0.0, 0.01]), [10] * 10)
    period = PeriodDigest(rank=2, steps=4, excess_seconds=0.1, cost_seconds=0.01, times=9)
    result = training_result(record([0.0, 0.0])[1])
    signals = digest.model_copy(update={"periods": (period,)})
    with pytest.raises(ValueError, match="beyond its 2"):
        launch_signals(result.model_copy(update={"signals": signals}))


def test_waiting_for_buffers_and_for_gradients_are_taken_apart() -> None:
    """Rank 0 is late for the buffers, rank 1 for the gradients: each is waited for once."""
    series = [
        [step(n, compute=0.05, sync=0.005 + 0.002, buffers=0.001) for n in range(STEPS)],
        [step(n, compute=0.05, sync=0.002, buffers=0.001 + 0.003) for n in range(STEPS)],
    ]
    digest = digest_signals(series, [STEPS])
    assert digest.wait is not None and digest.transfer is not None and digest.blame is not None
    assert [row[0] for row in digest.wait] == pytest.approx([0.005, 0.003])
    assert digest.transfer[0] == pytest.approx(0.003)
    assert digest.blame == pytest.approx([3 / 8, 5 / 8])


def test_without_marks_of_the_exchange_nothing_is_said_of_it() -> None:
    series = [[step(n, compute=0.05, sync=None) for n in range(STEPS)] for _ in range(2)]
    digest = digest_signals(series, [STEPS])
    assert (digest.wait, digest.transfer, digest.blame) == (None, None, None)
    assert digest.compute[0] == pytest.approx([0.05])
    alone = digest_signals(series[:1], [STEPS])
    assert alone.wait is None


def test_a_launch_names_its_straggler() -> None:
    cell, launch = record([0.0, 0.01])
    signals = launch_signals(training_result(launch))
    assert signals is not None
    assert signals.step_seconds == pytest.approx(0.065)
    assert signals.probe is not None and signals.link_bytes_per_second is None
    summary = summarize_cell(CellRun(PlannedCell(cell=cell), (launch,)))
    assert summary.diagnosis is not None
    first = summary.diagnosis.findings[0]
    assert (first.kind, first.rank) == (FindingKind.STRAGGLER, 1)
    assert first.cost_seconds == pytest.approx(0.01, rel=1e-6)


def test_of_several_launches_more_than_half_must_agree() -> None:
    cell, slow = record([0.0, 0.01])
    _, clean = record([0.0, 0.0])
    numbered = [
        slow,
        clean.model_copy(update={"launch": 1}),
        clean.model_copy(update={"launch": 2}),
    ]
    summary = summarize_cell(CellRun(PlannedCell(cell=cell), tuple(numbered)))
    assert summary.diagnosis is not None
    assert FindingKind.STRAGGLER not in {finding.kind for finding in summary.diagnosis.findings}


@pytest.mark.parametrize("scaling", ["weak", "strong"])
def test_the_parts_add_up_to_the_measured_step(scaling: str) -> None:
    base_cell, cell = cells(gpu_counts=[1, 2], scaling=scaling)
    _, one = record([0.0])
    _, two = record([0.0, 0.01])
    base_signals, signals = (
        launch_signals(training_result(one)),
        launch_signals(training_result(two)),
    )
    assert base_signals is not None and signals is not None
    base_parts, parts = step_parts(base_signals), step_parts(signals)
    assert base_parts is not None and parts is not None
    lost = decompose(cell, parts, base_cell, base_parts)
    share = 1.0 if scaling == "weak" else 0.5
    assert lost.ideal == pytest.approx(0.055 * share)
    assert lost.compute == pytest.approx(0.055 - 0.05 * share)
    assert lost.straggler_wait == pytest.approx(0.005)
    total = (
        lost.ideal
        + lost.compute
        + lost.data_wait
        + lost.straggler_wait
        + lost.exposed_communication
    )
    assert total + lost.unexplained == pytest.approx(lost.step, rel=1e-12)
    assert lost.step == pytest.approx(0.065)


def test_records_of_older_versions_have_no_parts() -> None:
    cell = cells(gpu_counts=2)[0]
    result = training_result(launch_record(cell))
    assert launch_signals(result) is None


def fetched_memory(
    *of_ranks: tuple[float, float, float], kind: DeviceKind = "cpu"
) -> FetchedMemory | None:
    """What a launch says of ranks with so many faults and grown pages a step, and so much time in
    the kernel; a fault costs 1 µs."""
    result = training_result(record([0.0] * len(of_ranks))[1])
    ranks = []
    for rank, (pages, grown, kernel) in zip(result.ranks, of_ranks, strict=True):
        assert rank.signals is not None
        faults = MinorFaults(
            per_step=pages,
            grown_pages_per_step=grown,
            seconds_each=1e-6,
            kernel_seconds_per_step=kernel,
        )
        changes = {
            "device": rank.device.model_copy(update={"kind": kind}),
            "signals": rank.signals.model_copy(update={"minor_faults": faults}),
            "allocator": HostAllocator(name="glibc 2.36", setting="system"),
        }
        ranks.append(rank.model_copy(update=changes))
    signals = launch_signals(result.model_copy(update={"ranks": tuple(ranks)}))
    assert signals is not None
    return signals.fetched_memory


@pytest.mark.parametrize(
    ("of_ranks", "rank", "pages", "seconds"),
    [
        (
            [(700.0, 100.0, 1.0), (500.0, 0.0, 1.0)],
            0,
            600.0,
            6e-4,
        ),  # without the pages by which it grew
        (
            [(700.0, 0.0, 2e-4), (500.0, 0.0, 1.0)],
            1,
            500.0,
            5e-4,
        ),  # rank 0 was no longer in the kernel
        ([(700.0, 900.0, 1.0)], 0, 0.0, 0.0),
    ],
)
def test_memory_that_is_fetched_again_is_what_the_process_does_not_grow_by(
    of_ranks: list[tuple[float, float, float]], rank: int, pages: float, seconds: float
) -> None:
    found = fetched_memory(*of_ranks)
    assert found is not None
    assert (found.rank, found.pages_per_step, found.setting) == (rank, pages, "system")
    assert found.seconds_per_step == pytest.approx(seconds)


def test_on_a_gpu_page_faults_of_the_host_do_not_count() -> None:
    assert fetched_memory((700.0, 0.0, 1.0), kind="cuda") is None


def test_windows_of_steps_come_back_from_a_record() -> None:
    _, launch = record([0.0, 0.01])
    result = training_result(launch)
    assert result.signals is not None and result.signals.windows is not None
    windows = result.signals.windows
    assert (len(windows.steps), sum(windows.steps)) == (STEPS // 3, STEPS)
    assert set(windows.compute_us[1]) == {60_000}
    assert set(windows.quiet_us[0]) == {20_000}
    signals = launch_signals(result)
    assert signals is not None and signals.windows is not None
    assert signals.windows.compute[1] == pytest.approx(0.06)
    assert signals.windows.wall == pytest.approx(0.065)
    cut = result.model_copy(
        update={
            "signals": result.signals.model_copy(
                update={"windows": windows.model_copy(update={"steps": (3,)})}
            )
        }
    )
    with pytest.raises(ValueError, match="windows are not of 2 ranks"):
        launch_signals(cut)


def test_a_record_without_windows_is_read() -> None:
    """As older versions wrote it: the rules that need them abstain."""
    cell, launch = record([0.0, 0.01])
    result = training_result(launch)
    assert result.signals is not None
    content = result.signals.model_dump()
    del content["windows"], content["long_step_seconds_by_rank"]
    older = result.model_copy(update={"signals": SignalDigest.model_validate(content)})
    signals = launch_signals(older, cell)
    assert signals is not None and signals.windows is None
    diagnosis = diagnose(signals)
    assert diagnosis.findings[0].kind is FindingKind.STRAGGLER
    assert FindingKind.INTERMITTENT_STRAGGLER in {item.kind for item in diagnosis.abstentions}


def test_stages_of_a_launch_are_those_of_its_strategy() -> None:
    hybrid = {"strategy": {"name": "hybrid", "data": 2, "pipeline": 2}}
    cell = cells(gpu_counts=4, models="tiny-decoder", parallel=hybrid)[0]

    def piped(number: int, forward: float) -> StepSample:
        plain = step(number, compute=0.05, sync=None)
        return plain.model_copy(update={"forward": forward, "bubble": 0.01})

    series = [
        [piped(number, 0.03 if rank == 2 else 0.015) for number in range(STEPS)]
        for rank in range(4)
    ]
    ranks = [rank_record(cell, rank, (0.5,) * 10) for rank in range(4)]
    launch = launch_record(
        cell, batches=(0.5,) * 10, ranks=ranks, signals=digest_signals(series, [10] * 10)
    )
    signals = launch_signals(training_result(launch), cell)
    assert signals is not None
    assert (signals.staged, signals.stages, signals.micro_batches) == (True, ((0, 1), (2, 3)), 4)
    findings = {finding.kind: finding.rank for finding in diagnose(signals).findings}
    assert findings[FindingKind.STRAGGLER] == 2


@pytest.mark.parametrize("within", ["shard", "cp"])
@pytest.mark.parametrize("is_apart", [True, False])
def test_shards_of_a_stage_are_compared_where_their_waits_are_taken_apart(
    is_apart: bool, within: str
) -> None:
    hybrid = {"strategy": {"name": "hybrid", within: 2, "pipeline": 2}}
    cell = cells(gpu_counts=4, models="tiny-decoder", parallel=hybrid)[0]
    blocked = 0.004 if is_apart else None

    def piped(number: int, forward: float) -> StepSample:
        plain = step(number, compute=0.05, sync=None)
        return plain.model_copy(update={"forward": forward, "bubble": 0.01, "blocked": blocked})

    series = [
        [piped(number, 0.03 if rank == 3 else 0.015) for number in range(STEPS)]
        for rank in range(4)
    ]
    digest = digest_signals(series, [10] * 10)
    ranks = [rank_record(cell, rank, (0.5,) * 10) for rank in range(4)]
    launch = launch_record(cell, batches=(0.5,) * 10, ranks=ranks, signals=digest)
    result = training_result(launch)
    assert result.steps is not None
    steps = result.steps.model_copy(update={"mean_sync": blocked})
    signals = launch_signals(result.model_copy(update={"steps": steps}), cell)
    assert signals is not None
    assert signals.split_sequences == (within == "cp")
    assert digest.wait is None, "stages wait for each other by design"
    diagnosis = diagnose(signals)
    if is_apart:
        assert signals.stages == ((0, 1), (2, 3))
        assert {item.kind: item.rank for item in diagnosis.findings}[FindingKind.STRAGGLER] == 3
        return
    assert signals.stages is None
    reasons = {item.kind: item.reason for item in diagnosis.abstentions}
    assert "contain collectives of the ranks that share a stage" in reasons[FindingKind.STRAGGLER]
