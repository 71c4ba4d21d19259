"""The last collectives of ranks that have ended."""

from __future__ import annotations

import array
import json
import time
from pathlib import Path

import pytest

from tests.features.watch.job.folders import FACTS
from torchscale.features.watch.ends.calls import ended_calls
from torchscale.worker.watch.last_call_form import FILE, FORM

GRADIENTS, LOSS = 0, 1
SIZES = {GRADIENTS: 16_640, LOSS: 4}


def write_calls(directory: Path, rank: int, called: dict[int, int], attempt: int = 0) -> Path:
    """Number of a call → which of the two it was."""
    folder = directory / "ranks" / f"{rank}.{attempt}"
    folder.mkdir(parents=True)
    sizes = {"rank": rank, "world_size": 4, "local_world_size": 4, "pid": 100 + rank}
    (folder / "rank.json").write_text(json.dumps({**FACTS, **sizes}))
    names: list[dict[str, object]] = [{"name": "0", "ranks": [0, 1, 2, 3]}]
    names += [
        {
            "key": key,
            "backend": "gloo",
            "group": "0",
            "operation": "all_reduce",
            "bytes": size,
            "p2p": False,
        }
        for key, size in SIZES.items()
    ]
    (folder / "names.jsonl").write_text("".join(json.dumps(name) + "\n" for name in names))
    rows = [(number * 1_000, number, key) for number, key in sorted(called.items())]
    values = array.array("q", [value for row in rows for value in row])
    (folder / "calls-000001.bin").write_bytes(values.tobytes())
    return folder


def note(folder: Path, number: int, size: int = 4, elements: int = 1) -> None:
    """The last call as the rank noted it."""
    texts = (b"all_reduce", b"torch.float32", b"0")
    (folder / FILE).write_bytes(FORM.pack(time.time_ns(), number, size, elements, *texts))


def test_calls_have_their_numbers_and_bytes(tmp_path: Path) -> None:
    write_calls(tmp_path, 1, {1: GRADIENTS, 2: LOSS})
    write_calls(tmp_path, 2, {1: GRADIENTS}, attempt=1)

    (log,) = ended_calls(tmp_path, 0).values()
    assert [(call.sequence, call.size) for call in log.calls] == [(1, 16_640), (2, 4)]
    assert log.groups["0"].ranks == (0, 1, 2, 3)
    assert log.truncated == frozenset()


def test_a_log_that_begins_later_is_not_whole(tmp_path: Path) -> None:
    write_calls(tmp_path, 1, {5: GRADIENTS})
    assert ended_calls(tmp_path, 0)[1].truncated == {"gloo"}


def test_what_a_rank_lost_is_as_another_one_called_it(tmp_path: Path) -> None:
    write_calls(tmp_path, 0, dict.fromkeys(range(1, 8), GRADIENTS))
    note(write_calls(tmp_path, 3, dict.fromkeys(range(1, 4), GRADIENTS)), 7)

    calls = ended_calls(tmp_path, 0)[3].calls
    assert [call.sequence for call in calls] == [1, 2, 3, 4, 5, 6, 7]
    assert [call.size for call in calls[-2:]] == [16_640, 4]
    assert calls[-1].input_sizes == ((1,),)
    assert not calls[-1].is_done


def test_where_nobody_knows_what_was_lost_it_stays_so(tmp_path: Path) -> None:
    write_calls(tmp_path, 0, dict.fromkeys(range(1, 5), GRADIENTS))
    note(write_calls(tmp_path, 3, dict.fromkeys(range(1, 4), GRADIENTS)), 7)
    assert [call.sequence for call in ended_calls(tmp_path, 0)[3].calls] == [1, 2, 3]


@pytest.mark.parametrize("content", [b"", bytes(FORM.size), b"x" * 9], ids=["empty", "none", "cut"])
def test_a_note_that_is_none_changes_nothing(tmp_path: Path, content: bytes) -> None:
    folder = write_calls(tmp_path, 3, {1: GRADIENTS})
    (folder / FILE).write_bytes(content)
    assert len(ended_calls(tmp_path, 0)[3].calls) == 1


def test_a_rank_whose_files_are_damaged_is_left_out(tmp_path: Path) -> None:
    write_calls(tmp_path, 0, {1: GRADIENTS})
    (write_calls(tmp_path, 1, {1: GRADIENTS}) / "names.jsonl").write_text("[]\n")
    assert set(ended_calls(tmp_path, 0)) == {0}
