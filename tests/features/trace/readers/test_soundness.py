"""Damaged recordings: a clear error or a note, never a traceback and never a figure of nonsense."""

from __future__ import annotations

import gzip
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.features.trace.readers.builders import NsysExport, host, kernel, kineto, step
from torchscale.errors import TraceError
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.features.trace.readers.kineto import stream
from torchscale.features.trace.readers.recordings import read_recordings
from torchscale.features.trace.span import Trace

MANY = 10**25


def trace_events() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [step(number, 1000.0 * number, 990.0) for number in range(1, 7)]
    for place in range(200):
        found.append(kernel("gemm", 1000.0 + 30 * place, 12.0, link=place + 1))
        found.append(
            host("cuda_runtime", "cudaLaunchKernel", 990.0 + 30 * place, 2.0, correlation=place + 1)
        )
    arguments: dict[str, Any] = {
        "Collective name": "allreduce",
        "In msg nelems": 10,
        "Out msg nelems": 10,
    }
    arguments |= {"dtype": "Float", "Process Group Name": "0", "Seq": 1}
    for place in range(30):
        call = kernel(
            "ncclDevKernel_AllReduce",
            1005.0 + 150 * place,
            9.0,
            stream=9,
            **{**arguments, "Seq": place},
        )
        found.append(call)
    return found


def write(
    tmp_path: Path,
    changed: Callable[[list[dict[str, Any]]], object] = lambda _: None,
    **header: Any,
) -> Path:
    found = trace_events()
    changed(found)
    path = tmp_path / "rank0.json"
    path.write_text(
        kineto(found, rank=header.pop("rank", 0), world_size=header.pop("world_size", 1), **header)
    )
    return path


def read(path: Path) -> Trace:
    trace = read_recordings([path])
    analyze_trace(trace)
    return trace


def put(place: int, **changes: Any) -> Callable[[list[dict[str, Any]]], object]:
    def change(found: list[dict[str, Any]]) -> None:
        arguments = changes.pop("args", {})
        found[place].update(changes)
        found[place]["args"].update(arguments)

    return change


NCCL, GEMM, STEP = -1, 6, 0
REFUSED: dict[str, Mapping[str, Any]] = {
    "rank below 0": {"rank": -5},
    "rank of 31 digits": {"rank": 10**30},
    "rank beyond the ranks": {"rank": 4, "world_size": 2},
    "no ranks": {"world_size": 0},
    "ranks below 0": {"world_size": -3},
    "more ranks than there are machines": {"world_size": 10**12},
    "a base of 2^63": {"baseTimeNanoseconds": 2**63},
    "a base below 0": {"baseTimeNanoseconds": -1},
    "a step of 1e308": {"changed": put(STEP, dur=1e308)},
    "a step at 1e308": {"changed": put(STEP, ts=1e308)},
    "a collective of 1e308": {"changed": put(NCCL, dur=1e308)},
    "a collective at -1e308": {"changed": put(NCCL, ts=-1e308)},
    "steps that overlap": {
        "changed": lambda found: [event.update(ts=1000.0, dur=6000.0) for event in found[:6]]
    },
    "kernels that end before they start": {
        "changed": lambda found: [event.update(dur=-3.0) for event in found[6:]]
    },
    "kernels of no time": {"changed": lambda found: [event.update(dur=0.0) for event in found]},
    "a deep header": {"deviceProperties": ["deep"]},
}


@pytest.mark.parametrize("case", REFUSED)
def test_nonsense_in_a_kineto_trace_is_refused(tmp_path: Path, case: str) -> None:
    path = write(tmp_path, **REFUSED[case])
    if case == "a deep header":  # deeper than Python can write
        path.write_text(path.read_text().replace('"deep"', "[" * 100_000 + "]" * 100_000))
    with pytest.raises(TraceError) as refused:
        read(path)
    assert "rank0.json" in refused.value.message
    assert len(refused.value.message) < 500


HARMLESS: dict[str, Callable[[list[dict[str, Any]]], object]] = {
    "a thread of 2^64": put(GEMM, tid=2**64),
    "a thread with a name": put(GEMM, tid="stream 7"),
    "a link of 2^63": put(GEMM, args={"correlation": 2**63}),
    "a sequence number of 2^63": put(NCCL, args={"Seq": 2**63}),
    "elements of 2^63": put(NCCL, args={"In msg nelems": 2**63}),
    "a step number of 25 digits": put(STEP, name=f"ProfilerStep#{MANY}"),
    "a step number of 5000 digits": put(STEP, name="ProfilerStep#" + "9" * 5000),
    "a process of 2^70": put(STEP, pid=2**70),
}


@pytest.mark.parametrize("case", HARMLESS)
def test_a_number_of_no_use_is_left_out(tmp_path: Path, case: str) -> None:
    read(write(tmp_path, HARMLESS[case]))


@pytest.mark.parametrize(
    "changes", [{"ts": 1e308}, {"ts": -1e300}, {"dur": 1e308}, {"dur": -5.0}, {"ts": 4e15}]
)
def test_a_single_kernel_at_an_impossible_time_is_left_out_with_a_note(
    tmp_path: Path, changes: dict[str, float], recwarn: pytest.WarningsRecorder
) -> None:
    sound = analyze_trace(read_recordings([write(tmp_path)]))
    trace = read_recordings([write(tmp_path, put(GEMM, **changes))])
    found = analyze_trace(trace)
    assert any(
        "1 of 400 spans end before they start, or at a time that no recording has" in note
        for note in trace.notes
    )
    assert found.window == sound.window
    assert found.per_rank[0].compute_seconds == pytest.approx(
        sound.per_rank[0].compute_seconds, rel=0.01
    )
    assert not [warning for warning in recwarn if issubclass(warning.category, RuntimeWarning)]


def test_a_loop_that_was_recorded_twice_has_its_steps_twice(tmp_path: Path) -> None:
    def again(found: list[dict[str, Any]]) -> None:
        found += [{**event, "ts": event["ts"] + 100_000.0} for event in list(found)]

    trace = read(write(tmp_path, again))
    assert trace.ranks[0].steps.number.tolist() == [1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13]


def test_of_two_ranges_around_one_step_the_outer_one_counts(tmp_path: Path) -> None:
    def nested(found: list[dict[str, Any]]) -> None:
        found += [step(number, 1000.0 * number + 10, 900.0) for number in range(1, 7)]

    trace = read(write(tmp_path, nested))
    assert trace.ranks[0].steps.number.tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("filler", ["},{", "] , {", '"},{', "\\"])
def test_a_name_of_megabytes_that_looks_like_events(tmp_path: Path, filler: str) -> None:
    found = [*trace_events(), kernel(filler * (8 << 20), 7000.0, 5.0)]
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(gzip.compress(kineto(found, rank=0, world_size=1).encode(), 1))
    began = time.process_time()
    read(path)
    assert (
        time.process_time() - began < 30
    )  # each place where an event could end was decoded anew: minutes


def test_an_event_that_never_ends_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b'{"traceEvents": [{"name": "')
        for _ in range(70):
            file.write(b"},{" * (1 << 19))
    with pytest.raises(TraceError, match="over 64 MiB"):
        read(path)


def test_an_event_of_objects_in_each_other_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(b'{"traceEvents": [' + b'{"a":' * (10 << 20))
    began = time.process_time()
    with pytest.raises(TraceError, match="over 1000 objects in each other"):
        read(path)
    assert time.process_time() - began < 10  # all of them were counted, to 64 MiB


def test_a_shape_of_any_number_of_dimensions_has_no_size(tmp_path: Path) -> None:
    shapes: dict[str, Any] = {"Input Dims": [[10**17] * 100_000], "Input type": ["float"]}
    call = host("cpu_op", "c10d::allreduce_", 7000.0, 3.0, **shapes)
    path = tmp_path / "rank0.json"
    found = [event for event in trace_events() if event["cat"] not in ("kernel", "cuda_runtime")]
    done = host("user_annotation", "gloo:all_reduce", 7001.0, 3.0, thread=2)
    path.write_text(kineto([*found, call, done], rank=0, world_size=1, backend="gloo"))
    began = time.process_time()
    (rank,) = read_recordings([path]).ranks
    assert rank.collectives.payload_bytes.tolist() == [-1]
    assert time.process_time() - began < 10  # the product of the dimensions took minutes


def test_a_trace_of_many_names_is_read_in_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_PIECE_BYTES", 4096)
    path = tmp_path / "rank0.json"
    path.write_text(kineto([kernel(f"k{place}", 10.0 * place, 5.0) for place in range(40_000)]))
    began = time.process_time()
    (rank,) = read_recordings([path]).ranks
    assert len(rank.names) == 40_000
    assert time.process_time() - began < 6  # all names were gone through for each piece


# --- nsys


def export() -> NsysExport:
    made = NsysExport()
    made.range(10, "torchscale.rank 0/1", 0, None)
    for number in range(1, 7):
        made.range(10, f"step {number}", 1_000_000 * number, 1_000_000 * number + 990_000)
    for place in range(200):
        made.kernel(
            10, "gemm", 1_000_000 + 30_000 * place, 1_012_000 + 30_000 * place, link=place + 1
        )
        made.call(
            10,
            "cudaLaunchKernel_v7000",
            990_000 + 30_000 * place,
            992_000 + 30_000 * place,
            link=place + 1,
        )
    return made


NSYS: dict[str, tuple[str, str | None]] = {
    "a name that is NULL": (
        "UPDATE OR REPLACE {kernel} SET shortName = NULL WHERE rowid = 1",
        "whole number",
    ),
    "a name that is text": (
        "UPDATE {kernel} SET shortName = 'x' WHERE rowid = 1",
        "whole number",
    ),
    "a name without a string": ("UPDATE {kernel} SET shortName = 99999 WHERE rowid = 1", None),
    "a process that is text": (
        "UPDATE {kernel} SET globalPid = 'x' WHERE rowid = 1",
        "whole number",
    ),
    "a process that is a blob": (
        "UPDATE {kernel} SET globalPid = x'00ff' WHERE rowid = 1",
        "whole number",
    ),
    "a start that is text": (
        "UPDATE NVTX_EVENTS SET start = 'x' WHERE text = 'step 1'",
        "no integers",
    ),
    "a thread that is a blob": (
        "UPDATE NVTX_EVENTS SET end = x'00' WHERE text = 'step 1'",
        "no integers",
    ),
    "text that is not UTF-8": ("UPDATE StringIds SET value = CAST(x'ff41' AS TEXT)", None),
    "a step number of 31 digits": (
        f"UPDATE NVTX_EVENTS SET text = 'step {10**30}' WHERE text = 'step 1'",
        None,
    ),
    "a start in the year 2262": (
        "INSERT INTO TARGET_INFO_SESSION_START_TIME (utcEpochNs) VALUES (9223372036854775807)",
        None,
    ),
    "kernels that end before they start": (
        "UPDATE {kernel} SET end = start - 5",
        "end before they start",
    ),
    "a kernel that ends in the year 2262": (
        "UPDATE {kernel} SET end = 9223372036854775807 WHERE rowid = 5",
        None,
    ),
    "a step that ends in the year 2262": (
        "UPDATE NVTX_EVENTS SET end = 9223372036854775807 WHERE text = 'step 2'",
        "step",
    ),
    "rank 9 of 2": (
        "UPDATE NVTX_EVENTS SET text = 'torchscale.rank 9/2' WHERE text LIKE '%rank%'",
        "rank 9",
    ),
    "no ranks": (
        "UPDATE NVTX_EVENTS SET text = 'torchscale.rank 0/0' WHERE text LIKE '%rank%'",
        "0 ranks ran",
    ),
}


def nullable(path: Path) -> None:
    """The columns of kernels without their constraints: a damaged file has none."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA writable_schema = ON")
        database.execute(
            "UPDATE sqlite_master SET sql = replace(sql, ' NOT NULL', '') WHERE type = 'table'"
        )
    database.close()


@pytest.mark.parametrize("case", NSYS)
def test_nonsense_in_an_nsys_export(tmp_path: Path, case: str) -> None:
    query, refused = NSYS[case]
    made = export()
    made.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_700_000_000_000_000_000)
    path = made.write(tmp_path / "a.sqlite")
    nullable(path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(query.format(kernel="CUPTI_ACTIVITY_KIND_KERNEL"))
    database.close()
    if refused is None:
        trace = read(path)
        if case.startswith("a kernel that ends"):
            assert any("1 of 400 spans" in note for note in trace.notes)
    else:
        with pytest.raises(TraceError, match=refused):
            read(path)


def test_a_column_that_is_computed_is_not_read(tmp_path: Path) -> None:
    path = export().write(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TABLE StringIds")
        database.execute(
            "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT AS "
            "(hex(zeroblob(200000000))))"
        )
        database.execute("INSERT INTO StringIds (id) VALUES (1), (2)")
    database.close()
    with pytest.raises(TraceError, match="a generated column"):
        read(path)
