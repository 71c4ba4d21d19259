"""Dumps of torch's flight recorder, as gloo and NCCL write them, and files that only look like
one."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchscale.errors import TraceError
from torchscale.features.watch.hang import flight_recorder
from torchscale.features.watch.hang.collective_log import CollectiveLog, ProcessGroup
from torchscale.features.watch.hang.dumps import read_directory
from torchscale.features.watch.hang.explain import explain_hang
from torchscale.features.watch.hang.flight_recorder import (
    MAX_DUMP_BYTES,
    collective_log,
    merged,
    read_flight_recorder,
)
from torchscale.features.watch.hang.job import RankEvidence
from torchscale.features.watch.hang.recorder_dump import form
from torchscale.schema.launch.hang import StackFrame


def entry(number: int, **changes: Any) -> dict[str, Any]:
    """An all-reduce of 25 MiB on gloo: ``state`` never changes there."""
    return {
        "record_id": number - 1,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "thread_name": "python",
        "thread_id": "1",
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": "gloo:all_reduce",
        "time_created_ns": 1_700_000_000_000_000_000 + number,
        "input_sizes": [[6_553_600]],
        "input_dtypes": ["Float"],
        "output_sizes": [[6_553_600]],
        "output_dtypes": ["Float"],
        "state": "scheduled",
        "time_discovered_started_ns": 0,
        "time_discovered_completed_ns": 0,
        "retired": True,
        "timeout_ms": 1_800_000,
        "is_p2p": False,
        **changes,
    }


def dump(*entries: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """As gloo writes it: its group is listed under an empty name."""
    return {
        "version": "2.10",
        "comm_lib_version": "",
        "pg_config": {"": {"name": "", "desc": "", "ranks": "[0, 1]"}},
        "pg_status": {"0": {"last_enqueued_collective": "4", "last_completed_collective": "3"}},
        "entries": list(entries),
        **changes,
    }


def read(content: object) -> Any:
    return read_flight_recorder(json.dumps(content).encode())


def test_a_dump_of_gloo() -> None:
    log = read(dump(entry(3), entry(4, retired=False)))
    done, waiting = log.calls
    assert (done.sequence, done.operation, done.backend, done.is_done) == (
        3,
        "all_reduce",
        "gloo",
        True,
    )
    assert (waiting.sequence, waiting.is_done, waiting.is_p2p) == (4, False, False)
    assert (waiting.input_sizes, waiting.input_dtypes) == (((6_553_600,),), ("float32",))
    assert log.groups == {"0": ProcessGroup("default_pg", (0, 1))}


def test_sends_and_receives_have_numbers_of_their_own() -> None:
    """NCCL counts them apart: the number of the collective before them stays as it was."""
    send = entry(3, is_p2p=True, p2p_seq_id=7, profiling_name="nccl:send 0->1")
    collective, sent = read(dump(entry(3), send)).calls
    assert (collective.sequence, collective.is_p2p) == (3, False)
    assert (sent.sequence, sent.is_p2p) == (7, True)


@pytest.mark.parametrize(
    ("name", "is_p2p"),
    [("send 0->1", True), ("recv 0<-1", True), ("sends", False), ("all_reduce", False)],
)
def test_sends_and_receives_are_known_by_their_names_too(name: str, is_p2p: bool) -> None:
    """Older dumps do not mark them."""
    (call,) = read(dump(entry(3, profiling_name=f"nccl:{name}"))).calls
    assert (call.operation, call.is_p2p, call.sequence) == (name, is_p2p, 3)


@pytest.mark.parametrize(
    ("state", "retired", "done"),
    [
        ("completed", True, True),
        ("started", False, False),
        ("scheduled", False, False),
        ("started", True, False),
    ],
)
def test_nccl_retires_what_timed_out(state: str, retired: bool, done: bool) -> None:
    (call,) = read(
        dump(entry(1, profiling_name="nccl:all_reduce", state=state, retired=retired))
    ).calls
    assert call.is_done is done


def test_groups_are_listed_under_their_names_by_nccl() -> None:
    groups = {
        "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
        "5": {"name": "5", "desc": "mesh_dp", "ranks": "[1, 3]"},
    }
    log = read(
        dump(
            entry(1, process_group=["5", "mesh_dp"], profiling_name="nccl:all_reduce"),
            pg_config=groups,
        )
    )
    assert log.groups == {
        "0": ProcessGroup("default_pg", (0, 1, 2, 3)),
        "5": ProcessGroup("mesh_dp", (1, 3)),
    }


def test_collectives_of_earlier_launches_in_the_process_are_left_out() -> None:
    old, new = entry(9, time_created_ns=5), entry(1, pg_id=1)
    assert [
        call.sequence for call in collective_log(dump(old, new), since=1_600_000_000.0).calls
    ] == [1]
    rejoined = dump(entry(9), entry(1, pg_id=1))
    assert [call.sequence for call in collective_log(rejoined).calls] == [1], (
        "a group that was joined anew"
    )
    later = dump(entry(1, pg_id=1), entry(9))
    assert [call.sequence for call in collective_log(later).calls] == [1], "in any order"


def test_a_collective_at_the_start_of_the_launch_is_of_it() -> None:
    entries = [entry(number, time_created_ns=10**9 - 2 + number) for number in (1, 2, 3)]
    log = collective_log(dump(*entries), since=1.0)
    assert [call.sequence for call in log.calls] == [2, 3]
    assert not log.truncated, "what is missing is of an earlier launch"


def test_a_recorder_that_has_dropped_its_first_collectives_does_not_reach_back() -> None:
    assert read(dump(entry(1), entry(2))).truncated == frozenset()
    nccl = entry(3, profiling_name="nccl:all_reduce")
    assert read(dump(entry(2), nccl)).truncated == {"gloo", "nccl"}


def test_groups_of_one_description_are_told_apart() -> None:
    entries = [
        entry(1, record_id=name, pg_id=name, process_group=[str(name), "undefined"])
        for name in range(2)
    ]
    assert [call.group for call in read(dump(*entries)).calls] == ["0", "1"]


def test_numbers_that_no_recorder_gives_are_left_out() -> None:
    entries = [entry(number) for number in (-1, 0, 2**62 - 1, 2**62)]
    log = read(dump(*entries, pg_config={"0": {"desc": "", "ranks": [-1, 0, 2**62 - 1, 2**62]}}))
    assert [call.sequence for call in log.calls] == [0, 2**62 - 1]
    assert log.groups["0"].ranks == (0, 2**62 - 1)


def test_logs_of_all_recorders_of_a_rank_are_one_in_the_order_of_time() -> None:
    listed = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    done = {"profiling_name": "nccl:all_reduce", "state": "completed"}
    nccl = read(dump(entry(2, **done), entry(4, **done), pg_config=listed))
    gloo = replace(read(dump(entry(3), pg_config={})), untold=frozenset({"gloo"}))
    for logs in ({"nccl": nccl, "gloo": gloo}, {"gloo": gloo, "nccl": nccl}):
        log = merged(logs)
        assert [call.sequence for call in log.calls] == [2, 3, 4]
        assert log.groups == {"0": ProcessGroup("default_pg", (0, 1))}, "as the one that knows it"
        assert log.truncated == {"gloo", "nccl"}
        assert log.untold == {"gloo"}
        assert log.recorders == {"nccl": 2, "gloo": 1}
        assert log.tells_starts == {"nccl": False}
    other = CollectiveLog(groups={"0": ProcessGroup("default_pg", (0, 1, 2))})
    first = merged({"nccl": nccl, "other": other})
    assert first.groups == nccl.groups


def test_whether_a_device_tells_its_starts_is_known_from_any_call_that_completed() -> None:
    def told(*starts: int | None) -> object:
        entries = [
            entry(
                number,
                profiling_name="nccl:all_reduce",
                state="completed",
                time_discovered_started_ns=start,
            )
            for number, start in enumerate(starts, 1)
        ]
        return read(dump(*entries)).tells_starts

    assert told(None, 5) == told(5, None) == {"nccl": True}
    assert told(None, 0) == {"nccl": False}
    waiting = entry(
        1, profiling_name="nccl:all_reduce", state="started", time_discovered_started_ns=5
    )
    assert read(dump(waiting)).tells_starts == {}


def test_a_pickle_of_plain_values_has_the_frames() -> None:
    frames = [
        {"name": "inner", "filename": "/a.py", "line": 7},
        {"name": "outer", "filename": "/a.py", "line": 1},
    ]
    content = dump({**entry(1), "frames": frames, "process_group": ("0", "default_pg")})
    (call,) = read_flight_recorder(pickle.dumps(content)).calls
    assert call.frames == (
        StackFrame(file="/a.py", line=1, function="outer"),
        StackFrame(file="/a.py", line=7, function="inner"),
    )


class Harmful:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_calls_something_is_not_loaded(tmp_path: Path, protocol: int) -> None:
    target = tmp_path / "made"
    data = pickle.dumps({"version": "2.10", "entries": [Harmful(target)]}, protocol=protocol)
    with pytest.raises(TraceError, match="holds more than plain values"):
        read_flight_recorder(data)
    assert not target.exists()


def test_a_pickle_that_unfolds_to_billions_of_values_is_refused() -> None:
    shape = [1] * 1000
    shapes = [shape] * 1000
    entries = [{**entry(1), "input_sizes": shapes}] * 1000
    with pytest.raises(TraceError, match="more shapes"):
        read_flight_recorder(pickle.dumps(dump(*entries)))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "neither JSON nor a pickle"),
        (b"nonsense", "neither JSON nor a pickle"),
        (b"[]", "it has no 'version'"),
        (b"{}", "it has no 'version'"),
        (
            b'{"version": "2.10", "entries": [{"collective_seq_id": "x"}]}',
            r"entries\[0\].collective_seq_id",
        ),
        (b'{"version": "2.10", "entries": 5}', "entries"),
        (b"\x80\x04.", "damaged pickle"),
        (b"\x80", "damaged pickle"),
        (b"[" * 100_000, "neither JSON nor a pickle"),
    ],
)
def test_what_is_no_dump_is_refused_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(TraceError, match=reason):
        read_flight_recorder(data)


def test_a_file_beyond_any_recorder_is_refused() -> None:
    with pytest.raises(TraceError, match="larger than 64 MiB"):
        read_flight_recorder(bytes(MAX_DUMP_BYTES + 1))


def test_a_file_as_large_as_any_recorder_writes_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    data = json.dumps(dump(entry(1))).encode()
    monkeypatch.setattr(flight_recorder, "MAX_DUMP_BYTES", len(data))
    assert len(read_flight_recorder(data).calls) == 1


def test_an_empty_recorder_is_an_empty_log() -> None:
    log = read({"version": "2.10", "pg_config": {}, "pg_status": {}})
    assert (log.calls, dict(log.groups)) == ((), {})


NUMBERS = st.sampled_from([-1, 0, 1, 2**31, 2**63, 10**30])


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_any_number_in_a_dump_gives_a_verdict_or_an_error(
    number: int, size: int, line: int, time: int
) -> None:
    changes = {
        "collective_seq_id": number,
        "input_sizes": [[size, size]],
        "time_created_ns": time,
        "retired": False,
    }
    frames = [{"name": "f", "filename": "a.py", "line": line}]
    try:
        log = read(dump({**entry(1, **changes), "frames": frames}, entry(2)))
    except TraceError as error:
        assert error.message
    else:
        assert explain_hang([RankEvidence(0, log=log), RankEvidence(1, log=log)]).summary


@given(st.binary(max_size=200))
def test_any_bytes_are_a_log_or_an_error(data: bytes) -> None:
    for start in (b"", b"\x80\x04", b'{"version": "2", "entries": '):
        try:
            read_flight_recorder(start + data)
        except TraceError as error:
            assert error.message


@given(st.integers(0, 600), st.integers(0, 255))
def test_a_damaged_dump_is_a_log_or_an_error(position: int, value: int) -> None:
    for data in (json.dumps(dump(entry(1))).encode(), pickle.dumps(dump(entry(1)))):
        broken = bytearray(data)
        broken[position % len(broken)] = value
        try:
            read_flight_recorder(bytes(broken))
        except TraceError as error:
            assert error.message


def test_a_dump_of_many_groups_is_judged_in_seconds() -> None:
    """Each collective in a group of its own, none complete; the test's time limit is what is
    tested."""
    entries = [
        entry(1, process_group=[str(number), "x"], retired=False) for number in range(20_000)
    ]
    logs = [collective_log(dump(*entries)), collective_log(dump(*entries[:10_000]))]
    assert explain_hang([RankEvidence(rank, log=log) for rank, log in enumerate(logs)]).summary


def test_more_collectives_than_any_recorder_keeps_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A damaged or forged dump would take memory without end."""
    monkeypatch.setattr(form, "_MAX_ENTRIES", 1000)
    assert len(collective_log(dump(*([entry(1)] * 1000))).calls) == 1000
    with pytest.raises(TraceError, match="1,001 collectives"):
        collective_log(dump(*([entry(1)] * 1001)))


def test_of_a_deep_stack_the_innermost_frames_are_kept() -> None:
    frames = [{"name": f"f{depth}", "filename": "a.py", "line": depth} for depth in range(101)]
    (call,) = read(dump({**entry(1), "frames": frames})).calls
    assert [frame.function for frame in (call.frames[0], call.frames[-1])] == ["f99", "f0"]
    assert len(call.frames) == 100


def test_lines_that_no_file_has_are_moved_into_the_range() -> None:
    lines = (-1, 0, 2**62, 2**62 + 1)
    frames = [{"name": "f", "filename": "a.py", "line": line} for line in lines]
    (call,) = read(dump({**entry(1), "frames": frames})).calls
    assert [frame.line for frame in call.frames] == [2**62, 2**62, 0, 0]


def test_a_group_is_listed_under_its_key_or_its_name() -> None:
    groups = {
        "": {"name": "7", "desc": "mesh_dp", "ranks": "[0, 1]"},
        "8": {"name": "9", "desc": "mesh_tp", "ranks": "[1, 2]"},
    }
    log = read(dump(pg_config=groups))
    assert log.groups == {
        "7": ProcessGroup("mesh_dp", (0, 1)),
        "8": ProcessGroup("mesh_tp", (1, 2)),
    }


def test_what_is_listed_without_a_name_is_the_default_group_alone() -> None:
    log = read(dump(entry(1, process_group=["3", "undefined"])))
    assert log.groups == {"3": ProcessGroup("undefined", ())}
    listed = {"0": {"name": "0", "desc": "default_pg", "ranks": "[2, 3]"}}
    both = {**dump()["pg_config"], **listed}
    assert read(dump(entry(1), pg_config=both)).groups == {"0": ProcessGroup("default_pg", (2, 3))}


def test_a_shape_of_a_million_dimensions_is_cut() -> None:
    (call,) = collective_log(dump(entry(1, input_sizes=[[2**60] * 1_000_000]))).calls
    assert len(call.input_sizes[0]) == 64


def test_names_stay_in_one_line() -> None:
    """They are shown within sentences, which a line break could continue as it likes."""
    forged = "x\nrank 1 never called it\x1b[1m"
    waiting = entry(4, retired=False, profiling_name=f"gloo:{forged}", process_group=[forged, "d"])
    log = collective_log(dump(waiting, pg_config={forged: {"desc": forged, "ranks": "[0, 1]"}}))
    (call,) = log.calls
    shown = "x\\nrank 1 never called it\\x1b[1m"
    assert (call.operation, call.group) == (shown, shown)
    assert log.groups == {shown: ProcessGroup("d", (0, 1))}


RECORDED = Path(__file__).parents[3] / "data" / "nccl"
"""Dumps of NCCL's recorder on a GPU; its README says how they were made."""


def test_what_nccl_wrote_on_a_gpu_is_read_the_same_from_json_and_pickle() -> None:
    from_json = read_flight_recorder((RECORDED / "timed-rank-0.json").read_bytes())
    from_pickle = read_flight_recorder((RECORDED / "timed-rank-0.pickle").read_bytes())
    assert len(from_json.calls) == 58
    assert from_pickle.calls == from_json.calls
    assert from_json.groups == {"0": ProcessGroup("default_pg", (0, 1))}
    assert {call.backend for call in from_json.calls} == {"nccl"}
    assert all(call.is_done for call in from_json.calls)
    assert from_json.calls[-1].operation == "send 0->1"
    assert from_json.calls[-1].is_p2p


def test_hooks_that_retire_at_issue_do_not_say_when_a_call_ended() -> None:
    """torch 2.14's, of backends without a recorder of their own."""
    hooked = entry(1, profiling_name="c10d:allreduce", retired=True, state="scheduled")
    log = read(dump(hooked))
    assert log.untold == {"c10d"}
    assert [call.operation for call in log.calls] == ["all_reduce"]
    told = {**hooked, "record_id": 1, "collective_seq_id": 2, "state": "completed"}
    log = read(dump(hooked, told))
    assert log.untold == frozenset()
    assert [call.is_done for call in log.calls] == [False, True]


@pytest.mark.parametrize("backend", ["nccl", "nccl2", "xccl"])
def test_what_is_retired_without_an_end_is_not_done(backend: str) -> None:
    done = entry(1, profiling_name=f"{backend}:all_reduce", state="completed")
    left = entry(2, profiling_name=f"{backend}:all_reduce", state="scheduled", retired=False)
    timed_out = entry(3, profiling_name=f"{backend}:all_reduce", state="started", retired=True)
    log = read(dump(done, left, timed_out))
    assert [call.is_done for call in log.calls] == [True, False, False]


def test_a_group_is_the_newest_of_its_backend() -> None:
    """gloo's group is made later, and has a number of its own."""
    nccl = entry(1, profiling_name="nccl:all_reduce", pg_id=0, state="completed")
    gloo = entry(1, record_id=1, pg_id=3)
    assert len(read(dump(nccl, gloo)).calls) == 2


def test_numbers_and_a_single_type_may_be_written_as_texts() -> None:
    written = entry(4, collective_seq_id="4", input_dtypes="Float", output_dtypes="")
    (found,) = read(dump(written)).calls
    assert (found.sequence, found.input_dtypes, found.output_dtypes) == (4, ("float32",), ())
    with pytest.raises(TraceError):
        read(dump(entry(4, collective_seq_id="four")))


@pytest.mark.parametrize("value", [None, "x", 5, [], {}, True, [["a"]], {"a": 1}])
def test_fields_that_nothing_is_matched_by_may_have_any_type(value: Any) -> None:
    """They are unknown for their entry alone, and counted."""
    plain = {
        "collective_seq_id": 3,
        "profiling_name": "nccl:all_reduce",
        "process_group": ["0", ""],
    }
    for name in ("input_sizes", "output_dtypes", "frames", "state", "retired", "record_id"):
        entries = [dict(plain), {**plain, name: value}]
        log = read_flight_recorder(json.dumps({"version": "2.10", "entries": entries}).encode())
        assert [call.sequence for call in log.calls] == [3, 3]
        assert set(log.unread) <= {name}
    for groups in (value, {"0": value}, {"0": {"ranks": value}}):
        dump = {"version": 2.1, "entries": [plain], "pg_config": groups}
        assert len(read_flight_recorder(json.dumps(dump).encode()).calls) == 1


def test_what_was_not_understood_of_dumps_is_said_once(tmp_path: Path) -> None:
    plain = {
        "collective_seq_id": 1,
        "profiling_name": "nccl:all_reduce",
        "process_group": ["0", ""],
    }
    for rank in range(2):
        entries = [{**plain, "state": "scheduled", "input_sizes": 5}]
        dump = {"version": "2.10", "entries": entries}
        (tmp_path / f"trace_{rank}").write_text(json.dumps(dump))
    _, facts = read_directory(tmp_path)
    assert facts.notes == (
        "dumps: of another type than torch writes, taken as unknown: input_sizes (2)",
    )
