"""Collectives of ended ranks that do not fit together."""

from __future__ import annotations

import time
from pathlib import Path

from tests.features.watch.ends.left import LOST
from tests.features.watch.ends.test_calls import GRADIENTS, LOSS, note, write_calls
from torchscale.features.watch.ends.calls import ended_calls
from torchscale.features.watch.ends.collectives import mismatched_collectives
from torchscale.features.watch.ends.ranks import RankEnd
from torchscale.schema.launch.hang import HangCause, StackFrame
from torchscale.schema.profiles.finding import Confidence

SOURCE = """
def train_epoch(loader):
    for x in loader:
        model(x).backward()

def report():
    all_reduce(total)

for epoch in range(2):
    train_epoch([])
    report()
"""


def _ends(script: Path, ranks: tuple[int, ...] = (0, 2)) -> list[RankEnd]:
    """Rank 3 was aborted in its report, others lost it in the backward pass."""
    file, torch = str(script), "/x/site-packages/torch"

    def stack(*frames: tuple[str, int, str]) -> tuple[StackFrame, ...]:
        return tuple(StackFrame(file=path, line=line, function=name) for path, line, name in frames)

    backward = stack(
        (file, 10, "<module>"),
        (file, 4, "train_epoch"),
        (f"{torch}/autograd/__init__.py", 395, "backward"),
    )
    aborted = stack(
        (file, 11, "<module>"),
        (file, 7, "report"),
        (f"{torch}/distributed/distributed_c10d.py", 3252, "all_reduce"),
    )
    ends = [
        RankEnd(rank, "here", rank, 10.0, error="RuntimeError", text=LOST, frames=backward)
        for rank in ranks
    ]
    return [*ends, RankEnd(3, "here", 3, 10.1, exit_code=-6, frames=aborted)]


def test_a_rank_that_left_its_loop_is_named_with_what_both_sides_called(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SOURCE)
    for rank in (0, 1, 2):
        write_calls(tmp_path, rank, dict.fromkeys(range(1, 8 if rank != 1 else 4), GRADIENTS))
    note(write_calls(tmp_path, 3, dict.fromkeys(range(1, 4), GRADIENTS)), 7)
    found = mismatched_collectives(_ends(script), ended_calls(tmp_path, 0), time.time() + 1)

    assert found is not None
    assert (found.cause, found.ranks) == (HangCause.SIZE_MISMATCH, (3,))
    assert found.confidence is Confidence.HIGH
    assert found.summary == (
        "rank 3 called all_reduce of 1 element (4.00 B float32) at train.py:7 (report), where "
        "ranks 0 and 2 called all_reduce of 16.2 KiB (gradients) at train.py:4 (train_epoch)"
    )
    assert found.evidence == (
        "rank 3 had left the loop at train.py:3 (train_epoch) that ranks 0 and 2 were in: it may "
        "have had fewer batches, returned early or caught an exception",
    )
    assert [one.rank for one in found.positions] == [0, 2, 3]


def test_a_source_that_was_changed_since_tells_of_no_loop(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SOURCE)
    for rank in (0, 2):
        write_calls(tmp_path, rank, dict.fromkeys(range(1, 8), GRADIENTS))
    note(write_calls(tmp_path, 3, {1: GRADIENTS}), 7)
    found = mismatched_collectives(_ends(script), ended_calls(tmp_path, 0), 1.0)
    assert found is not None
    assert found.evidence == ()


def test_of_two_ranks_neither_is_named(tmp_path: Path) -> None:
    write_calls(tmp_path, 0, {1: GRADIENTS, 2: GRADIENTS})
    note(write_calls(tmp_path, 3, {1: GRADIENTS}), 2)
    found = mismatched_collectives(_ends(tmp_path / "none", (0,)), ended_calls(tmp_path, 0), 1.0)
    assert found is not None
    assert found.ranks == (0, 3)
    assert found.evidence == ("nothing says which of them is wrong",)


def test_equal_calls_are_no_mismatch(tmp_path: Path) -> None:
    write_calls(tmp_path, 0, {1: GRADIENTS, 2: LOSS})
    note(write_calls(tmp_path, 3, {1: GRADIENTS}), 2)
    logs = ended_calls(tmp_path, 0)
    assert mismatched_collectives(_ends(tmp_path / "none", (0,)), logs, 1.0) is None


def test_without_logs_nothing_is_said() -> None:
    assert mismatched_collectives([], {}, 1.0) is None
