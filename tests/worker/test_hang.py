"""What a rank tells about itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.worker.watch.recorders import dumps, entry, has_recorders
from torchscale.features.watch.hang.evidence import log_of
from torchscale.features.watch.hang.flight_recorder import read_flight_recorder
from torchscale.schema.launch.hang import REQUEST_FILE, RankDump, dump_file
from torchscale.worker.hang import answering_requests, write_dump

SECONDS = 20.0


@pytest.fixture
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A process group of one rank."""
    store = tmp_path_factory.mktemp("group") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def dump_of(directory: Path, rank: int = 0) -> RankDump:
    return RankDump.model_validate_json((directory / dump_file(rank)).read_bytes())


def waited(path: Path) -> bool:
    deadline = time.monotonic() + SECONDS
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return path.exists()


def test_a_request_is_answered_with_the_stacks(tmp_path: Path) -> None:
    with answering_requests(tmp_path, 3, 1.0, poll_seconds=0.01):
        (tmp_path / REQUEST_FILE).touch()
        assert waited(tmp_path / dump_file(3))
    dump = dump_of(tmp_path, 3)
    assert (dump.rank, dump.since) == (3, 1.0)
    main = dump.threads[0]
    assert main.is_main
    assert [frame.function for frame in main.frames if frame.file == __file__] == [
        "test_a_request_is_answered_with_the_stacks",
        "waited",
    ]
    assert all(thread.name != "torchscale-autopsy" for thread in dump.threads)


def test_without_a_request_nothing_is_written_and_no_thread_is_left(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with answering_requests(tmp_path, 0, 0.0, poll_seconds=0.01):
        (thread,) = set(threading.enumerate()) - before
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert list(tmp_path.iterdir()) == []


def test_the_recorder_holds_the_collectives_of_this_launch(tmp_path: Path, group: None) -> None:
    dist.all_reduce(torch.ones(7))
    since = time.time()
    dist.broadcast(torch.ones(5, dtype=torch.float64), src=0)
    deadline = time.monotonic() + SECONDS
    while True:  # gloo marks a collective as done a moment after it has returned
        write_dump(tmp_path, 0, since)
        dump = dump_of(tmp_path)
        log, problem = log_of(dump)
        if (log is not None and log.calls[0].is_done) or time.monotonic() > deadline:
            break
    assert (dump.problem, dump.groups) == ("", {"0": (0,)})
    assert log is not None and problem == ""
    (call,) = log.calls
    assert (call.operation, call.input_sizes, call.input_dtypes) == (
        "broadcast",
        ((5,),),
        ("float64",),
    )
    assert call.is_done
    assert log.groups["0"].ranks == (0,)


def test_names_that_are_no_text_are_written(tmp_path: Path) -> None:
    scope: dict[str, Any] = {}
    exec(compile("def fail():\n    raise ValueError('\\udcff')", "/home/\udcff.py", "exec"), scope)  # noqa: S102
    try:
        scope["fail"]()
    except ValueError as error:
        write_dump(tmp_path, 0, 0.0, error)
    dump = dump_of(tmp_path)
    assert dump.threads[0].frames[-1].file == "/home/?.py"
    assert dump.error == "ValueError: ?"


def test_a_failure_is_where_it_was_raised(tmp_path: Path) -> None:
    def fail() -> None:
        raise ValueError("injected")

    try:
        fail()
    except ValueError as error:
        write_dump(tmp_path, 0, 0.0, error)
    (main,) = dump_of(tmp_path).threads
    assert main.frames[-1].function == "fail"


def test_a_torch_without_a_usable_recorder_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_recorders(monkeypatch)
    write_dump(tmp_path, 0, 0.0)
    dump = dump_of(tmp_path)
    assert "has no flight recorder" in dump.problem
    assert dump.flight_recorders == {}
    assert dump.threads


def test_a_rank_that_called_nothing_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_recorders(monkeypatch, _dump_nccl_trace=dumps(version="2.4"))
    write_dump(tmp_path, 0, 0.0)
    log, problem = log_of(dump_of(tmp_path))
    assert log is not None and log.calls == ()
    assert problem == "torch's flight recorders are empty (nccl)"


def test_what_nccl_and_gloo_recorded_is_one_log_in_the_order_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both use the default group and count from 1."""
    has_recorders(
        monkeypatch,
        _dump_fr_trace=dumps(entry(1, "broadcast", backend="gloo", time_created_ns=2_000_000_000)),
        _dump_nccl_trace=dumps(
            entry(1, "all_reduce", backend="nccl", time_created_ns=1_000_000_000),
            entry(2, "all_reduce", backend="nccl", time_created_ns=3_000_000_000),
        ),
    )
    write_dump(tmp_path, 0, 0.0)
    log, problem = log_of(dump_of(tmp_path))
    assert log is not None and problem == ""
    called = [(call.backend, call.sequence) for call in log.calls]
    assert called == [("nccl", 1), ("gloo", 1), ("nccl", 2)]


def test_a_full_disk_is_no_error(tmp_path: Path) -> None:
    write_dump(tmp_path / "nowhere", 0, 0.0)
    assert list(tmp_path.iterdir()) == []


def test_the_recorders_own_pickle_is_read_without_loading_anything(group: None) -> None:
    """What torch writes into files; with the frames of each call."""
    dist.all_reduce(torch.ones(3))
    log = read_flight_recorder(torch._C._distributed_c10d._dump_fr_trace())  # type: ignore[attr-defined]
    call = log.calls[-1]
    assert (call.operation, call.input_sizes) == ("all_reduce", ((3,),))
    functions = [frame.function for frame in call.frames]
    assert functions[-1] == "all_reduce"
    assert "test_the_recorders_own_pickle_is_read_without_loading_anything" in functions
