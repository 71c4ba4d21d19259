"""Ranks of a launch that wait for each other in their collectives: whom they waited for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.factories import cells, rank_record
from torchscale.analysis.exchanges.events import MomentKind
from torchscale.analysis.training.exchange_waits import PairedWaits
from torchscale.launch.exchanges import paired_waits
from torchscale.launch.kinds.training import collect_payload
from torchscale.schema.launch.exchanges import ExchangeBatch, exchanges_file
from torchscale.schema.launch.rank import RankRecord
from torchscale.schema.launch.steps import StepSample

START_NS = 1_700_000_000_000_000_000
MS = 1_000_000
NAMES = (("0", "all_gather", 4), ("1", "reduce_scatter", 8))
GROUPS = {"0": (0, 1), "1": (0, 1)}
BATCH_STEPS = (3, 2)


def noted(
    own: Sequence[Sequence[float]], *, lost: Sequence[int] = (0, 0), transfer: float = 1.0
) -> list[list[ExchangeBatch]]:
    """Two collectives a step, in two groups.

    Args:
        own: Milliseconds of each rank before each of the two.
        lost: Of rank 0, in each batch.
        transfer: Milliseconds once both ranks have come.
    """
    clocks = [5.0, 7.0]  # each rank counts from a start of its own
    ranks: list[list[ExchangeBatch]] = [[], []]
    number = 0
    for batch, steps in enumerate(BATCH_STEPS):
        marks: list[list[int]] = [[], []]
        calls: list[list[tuple[int, int, int]]] = [[], []]
        clocks = [max(clocks) + 3.0] * 2
        for rank in range(2):
            marks[rank].append(_mark(MomentKind.STEP, clocks[rank], rank))
        for _ in range(steps):
            number += 1
            for place in range(2):
                for rank in range(2):
                    clocks[rank] += own[rank][place]
                    calls[rank].append((START_NS + round(clocks[rank] * MS), number, place))
                    marks[rank].append(_mark(MomentKind.WAIT, clocks[rank], rank))
                clocks = [max(clocks) + transfer] * 2
                for rank in range(2):
                    marks[rank].append(_mark(MomentKind.WAIT_END, clocks[rank], rank))
            for rank in range(2):
                clocks[rank] += 1.0
                marks[rank].append(_mark(MomentKind.STEP, clocks[rank], rank))
        for rank in range(2):
            ranks[rank].append(
                ExchangeBatch(
                    start_ns=START_NS - rank * MS,
                    marks=tuple(marks[rank]),
                    calls=tuple(calls[rank]),
                    names=NAMES,
                    groups=GROUPS,
                    lost=0 if rank else lost[batch],
                )
            )
    return ranks


def _mark(kind: MomentKind, milliseconds: float, rank: int) -> int:
    return round((milliseconds + rank) * MS) << 8 | int(kind)


def records(batch_steps: Sequence[int] = BATCH_STEPS) -> list[RankRecord]:
    cell = cells(gpu_counts=2)[0]
    found = [rank_record(cell, rank, (0.1,) * len(batch_steps)) for rank in range(2)]
    batches = found[0].batches.model_copy(update={"steps": tuple(batch_steps)})
    return [record.model_copy(update={"batches": batches}) for record in found]


def write(directory: Path, ranks: Sequence[Sequence[ExchangeBatch]]) -> None:
    for rank, batches in enumerate(ranks):
        lines = "".join(batch.model_dump_json() + "\n" for batch in batches)
        (directory / exchanges_file(rank)).write_text(lines)


def paired(directory: Path) -> PairedWaits:
    found = paired_waits(directory, records())
    assert found is not None
    return found


def test_each_rank_is_late_to_another_collective(tmp_path: Path) -> None:
    """Totals say that neither waits for the other: both wait 4 ms a step, and 2 ms are transfer."""
    write(tmp_path, noted(own=[[2.0, 6.0], [6.0, 2.0]]))
    found = paired(tmp_path)
    assert found.wait.shape == (2, 5)
    np.testing.assert_allclose(found.wait, 0.004, atol=1e-6)
    np.testing.assert_allclose(found.transfer, 0.002, atol=1e-6)
    np.testing.assert_allclose(found.blame, 0.004, atol=1e-6)
    assert found.complete.tolist() == [True] * 5


def test_a_rank_that_is_late_has_the_blame(tmp_path: Path) -> None:
    write(tmp_path, noted(own=[[2.0, 2.0], [8.0, 2.0]]))
    found = paired(tmp_path)
    np.testing.assert_allclose(found.wait[0], 0.006, atol=1e-6)
    np.testing.assert_allclose(found.wait[1], 0.0, atol=1e-6)
    np.testing.assert_allclose(found.blame[1], 0.006, atol=1e-6)


def test_what_is_called_within_a_wait_is_what_it_is_for(tmp_path: Path) -> None:
    """DistributedDataParallel calls its collective after the last gradient, from which on its wait is
    noted."""
    ranks = noted(own=[[2.0, 2.0], [8.0, 2.0]])
    write(tmp_path, [[_noted_early(batch) for batch in batches] for batches in ranks])
    found = paired(tmp_path)
    assert found.includes_sync
    np.testing.assert_allclose(found.wait[0], 0.006, atol=1e-6)
    np.testing.assert_allclose(found.blame[1], 0.006, atol=1e-6)
    np.testing.assert_allclose(found.transfer, 0.002, atol=1e-6)


def _noted_early(batch: ExchangeBatch) -> ExchangeBatch:
    """With waits that were noted half a millisecond before the call."""
    marks = [
        mark - (MS // 2 << 8) if mark & 31 == int(MomentKind.WAIT) else mark for mark in batch.marks
    ]
    return batch.model_copy(update={"marks": tuple(marks), "includes_sync": True})


def test_a_batch_of_which_calls_were_lost_is_not_judged_by_them(tmp_path: Path) -> None:
    write(tmp_path, noted(own=[[2.0, 2.0], [8.0, 2.0]], lost=[0, 4]))
    assert paired(tmp_path).complete.tolist() == [True] * 3 + [False] * 2


def test_a_launch_that_stopped_noting_has_its_first_batches(tmp_path: Path) -> None:
    write(tmp_path, [batches[:1] for batches in noted(own=[[2.0, 2.0], [8.0, 2.0]])])
    assert paired(tmp_path).complete.tolist() == [True] * 3


def test_ranks_of_several_hosts_have_several_clocks(tmp_path: Path) -> None:
    write(tmp_path, noted(own=[[2.0, 2.0], [8.0, 2.0]]))
    here, there = records()
    assert paired_waits(tmp_path, [here, there.model_copy(update={"hostname": "n2"})]) is None


def test_files_of_other_steps_are_not_used(tmp_path: Path) -> None:
    write(tmp_path, noted(own=[[2.0, 2.0], [8.0, 2.0]]))
    assert paired_waits(tmp_path, records((3, 3))) is None
    assert paired_waits(tmp_path, records()[:1]) is None


@pytest.mark.parametrize("content", ["", "{}", '{"start_ns": 1}\n', None])
def test_damaged_and_missing_files_are_not_used(tmp_path: Path, content: str | None) -> None:
    write(tmp_path, noted(own=[[2.0, 2.0], [8.0, 2.0]]))
    path = tmp_path / exchanges_file(1)
    path.unlink()
    if content is not None:
        path.write_text(content)
    assert paired_waits(tmp_path, records()) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"start_ns": 1 << 70},
        {"marks": (1 << 70,)},
        {"calls": ((1 << 70, 1, 0),)},
        {"calls": ((START_NS, -1, 0),)},
        {"calls": ((START_NS, 1, -3),)},
    ],
)
def test_numbers_that_no_rank_notes_are_damage(tmp_path: Path, changes: dict[str, object]) -> None:
    """User code runs beside these files; the launch is collected all the same."""
    ranks = noted(own=[[2.0, 2.0], [8.0, 2.0]])
    ranks[1] = [batch.model_copy(update=changes) for batch in ranks[1]]
    write(tmp_path, ranks)
    assert paired_waits(tmp_path, records()) is None


def test_numbers_far_apart_take_no_memory(tmp_path: Path) -> None:
    ranks = noted(own=[[2.0, 2.0], [8.0, 2.0]])
    for rank, batches in enumerate(ranks):
        (time, _, key), *others = batches[-1].calls
        calls = (*others, (time + 1, 1 << 60, key))
        ranks[rank] = [*batches[:-1], batches[-1].model_copy(update={"calls": calls})]
    write(tmp_path, ranks)
    assert paired_waits(tmp_path, records()) is not None


def test_a_name_that_no_line_gives_is_damage(tmp_path: Path) -> None:
    ranks = noted(own=[[2.0, 2.0], [8.0, 2.0]])
    ranks[1] = [batch.model_copy(update={"names": NAMES[:1]}) for batch in ranks[1]]
    write(tmp_path, ranks)
    assert paired_waits(tmp_path, records()) is None


def test_the_signals_of_a_launch_are_those_of_the_pairs(tmp_path: Path) -> None:
    """Both ranks are blocked for the same time in all: only the pairs tell that each waits."""
    write(tmp_path, noted(own=[[2.0, 6.0], [6.0, 2.0]]))
    line = StepSample(
        step=0, seconds=0.015, data_wait=0.0, forward=0.006, backward=0.002, optimizer=0.001,
        exposed_sync=0.0, blocked=0.006,
    ).model_dump_json()  # fmt: skip
    for rank in range(2):
        (tmp_path / f"steps-rank-{rank}.jsonl").write_text(f"{line}\n" * sum(BATCH_STEPS))

    signals = collect_payload(tmp_path, records()).signals
    assert signals is not None
    assert signals.wait is not None
    np.testing.assert_allclose(signals.wait, 0.004, atol=1e-6)
    for rank in range(2):
        (tmp_path / exchanges_file(rank)).unlink()
    by_totals = collect_payload(tmp_path, records()).signals
    assert by_totals is not None
    assert by_totals.wait is not None
    np.testing.assert_allclose(by_totals.wait, 0.0, atol=1e-6)
