"""How each rank ended, from what it left and what its launcher saw."""

from __future__ import annotations

import pytest

from tests.features.watch.ends.left import LOST, exited, facts, left, raised
from torchscale.features.watch.ends.ranks import (
    consequences,
    is_consequence,
    rank_ends,
    received_signal,
    signal_name,
)

SPAWN = "torch.multiprocessing.spawn."
ELASTIC = "torch.distributed.elastic.multiprocessing."


def test_an_exception_and_the_exit_of_one_process_are_one_end() -> None:
    (end,) = rank_ends([exited(1, 11.0, 1), raised(1, 10.0, "ValueError", "no")], {})

    assert (end.rank, end.time, end.exit_code, end.error) == (1, 10.0, 1, "ValueError")
    assert end.is_exact
    assert end.place == "train.py:12 (load)"


def test_a_crash_gives_a_signal_its_line() -> None:
    stack = (("/home/me/train.py", 8, "<module>"),)
    (end,) = rank_ends([exited(1, 11.0, -11), left("crash", 1, 10.9, frames=stack)], {})
    assert (end.signal, end.place, end.error) == ("SIGSEGV", "train.py:8", "")


def test_a_rank_that_has_left_its_group_is_known_by_its_process() -> None:
    end = raised(None, 1.0, "ValueError", "no", pid=103)
    assert rank_ends([end], {3: facts(3)})[0].rank == 3
    assert rank_ends([end], {3: facts(3, host="there")})[0].rank is None


def test_what_a_rank_has_started_is_no_rank() -> None:
    assert rank_ends([raised(1, 1.0, "ValueError", "no", of_rank=100)], {}) == []


def test_what_a_launcher_raises_is_of_the_process_that_it_tells_of() -> None:
    child = {"pid": 101, "index": 1, "exit_code": -9}
    ends = [raised(None, 2.0, f"{SPAWN}ProcessExitedException", "process 1", pid=90, child=child)]
    (end,) = rank_ends(ends, {})
    assert (end.rank, end.pid, end.signal) == (1, 101, "SIGKILL")

    both = [raised(1, 1.0, "KeyError", "'lost'"), *ends]
    (end,) = rank_ends(both, {})
    assert (end.error, end.exit_code) == ("KeyError", -9)


def test_torchruns_summary_of_its_ranks_is_none_of_them() -> None:
    assert rank_ends([raised(None, 2.0, f"{ELASTIC}errors.ChildFailedError", "")], {}) == []


def test_an_error_of_torchrun_itself_is_one() -> None:
    name = "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError"
    (end,) = rank_ends([raised(None, 2.0, name, "The connection failed.")], {})
    assert end.is_launcher


def test_a_signal_that_torchrun_got() -> None:
    name, text = f"{ELASTIC}api.SignalException", "Process 90 got signal: 15"
    assert received_signal([raised(None, 1.0, name, text)]) == "SIGTERM"
    assert received_signal([raised(None, 1.0, "ValueError", text)]) == ""


def test_an_exception_of_a_loader_worker_has_its_own_text_and_line() -> None:
    text = (
        "Caught ValueError in DataLoader worker process 2.\nOriginal Traceback (most recent call "
        'last):\n  File "/x/site-packages/torch/utils/data/_utils/worker.py", line 351, in '
        '_worker_loop\n    data = fetcher.fetch(index)\n  File "/home/me/data.py", line 11, in '
        "__getitem__\n    raise ValueError\nValueError: bad: record\n"
    )
    (end,) = rank_ends([raised(1, 1.0, "ValueError", text)], {})

    assert end.first_line == "ValueError: bad: record"
    assert end.place == "data.py:11 (__getitem__)"
    assert end.where == "DataLoader worker process 2"


def test_secrets_are_removed() -> None:
    (end,) = rank_ends([raised(1, 1.0, "ValueError", "api_token=hunter2secret is wrong")], {})
    assert "hunter2secret" not in end.message + end.first_line


def test_a_message_of_lines_has_its_first_one_cut() -> None:
    (end,) = rank_ends([raised(1, 1.0, "ValueError", "\n" + "a" * 400 + "\nsecond")], {})
    assert end.first_line == "ValueError: " + "a" * 299 + "…"


@pytest.mark.parametrize(
    ("name", "text", "is_lost"),
    [
        ("RuntimeError", LOST, True),
        ("torch.distributed.DistBackendError", "NCCL error: remote process exited", True),
        ("ConnectionRefusedError", "connection refused by the data server", False),
        ("ValueError", LOST, False),
    ],
)
def test_a_lost_peer_is_known_by_its_text(name: str, text: str, *, is_lost: bool) -> None:
    (end,) = rank_ends([raised(1, 1.0, name, text)], {})
    assert end.is_lost_peer is is_lost


@pytest.mark.parametrize(
    ("name", "text", "is_memory"),
    [
        ("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 20.00 MiB.", True),
        ("MemoryError", "", True),
        ("RuntimeError", "DefaultCPUAllocator: can't allocate memory", True),
        ("ValueError", "out of memory of ideas", False),
    ],
)
def test_an_allocation_that_failed(name: str, text: str, *, is_memory: bool) -> None:
    (end,) = rank_ends([raised(1, 1.0, name, text)], {})
    assert end.is_out_of_memory is is_memory


def test_what_follows_from_another_end() -> None:
    ends = rank_ends(
        [
            exited(0, 1.0, -9),
            raised(1, 1.1, "RuntimeError", LOST),
            exited(2, 1.2, -15),
            exited(3, 40.0, -9),
        ],
        {},
    )
    assert [one.rank for one in consequences(ends, ends[0])] == [1, 2, 3]
    assert not is_consequence(ends[0], ends)


def test_signals_without_a_name_have_their_number() -> None:
    assert (signal_name(9), signal_name(63)) == ("SIGKILL", "signal 63")
