"""nsys exports: two generations of columns, tables that are not there, rows in any order,
secrets."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from tests.features.trace.readers.builders import (
    NSYS_2022,
    NSYS_2026,
    PID_UNIT,
    SHARED,
    NsysExport,
    two_ranks,
)
from torchscale.errors import TraceError
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.features.trace.readers.nsys.reader import read_nsys
from torchscale.features.trace.readers.recordings import read_recordings
from torchscale.features.trace.span import SpanCopyKind, SpanKind


def shared_tables(name: str) -> dict[str, str]:
    """Every table of a real export's schema."""
    text = (SHARED / "nsys" / name).read_text()
    return dict(
        re.findall(
            r"CREATE TABLE (\w+) \((.*?)\n\);",
            re.sub(r"REFERENCES \w+\(\w+\)", "", text),
            re.DOTALL,
        )
    )


GENERATIONS = [pytest.param(NSYS_2022, id="2022"), pytest.param(NSYS_2026, id="2026")]
if (SHARED / "nsys").is_dir():
    GENERATIONS += [
        pytest.param(shared_tables(f"schema-{name}.sql"), id=f"whole {name}")
        for name in ("2022.1", "2026.2")
    ]


@pytest.mark.parametrize("tables", GENERATIONS)
@pytest.mark.parametrize("shuffle", [False, True])
def test_ranks_kernels_and_waits(tables: Mapping[str, str], shuffle: bool, tmp_path: Path) -> None:
    path = two_ranks(tables).write(tmp_path / "run.sqlite", shuffle=shuffle)
    ranks, notes = read_nsys([path])
    assert [(rank.rank, rank.pid, len(rank.collectives)) for rank in ranks] == [
        (0, 1, 24),
        (1, 2, 24),
    ]
    assert "taken, as all of the job, in the order of their processes" in notes[0]
    assert (
        ranks[0].spans.of(SpanKind.COMPUTE).sum() == ranks[0].spans.of(SpanKind.LAUNCH).sum() == 24
    )
    steps = 24 if "NVTX_EVENTS" in tables else 0
    assert [len(rank.steps) for rank in ranks] == [steps, steps]

    analysis = analyze_trace(read_recordings([path]))
    first, second = analysis.per_rank
    counted = 23 if steps else 24  # the first step is left out
    assert first.sync_stall_seconds == pytest.approx(counted * 10e-6)
    assert second.sync_stall_seconds == 0
    assert (first.transfer_seconds, second.transfer_seconds) == pytest.approx(
        (counted * 20e-6,) * 2
    )
    assert second.blame_percent == 100
    if steps:
        assert analysis.sync_stall_percent == pytest.approx(10 / 400 * 100)
        straggler = next(
            finding for finding in analysis.findings if finding.kind.value == "straggler"
        )
        assert straggler.rank == 1
        assert straggler.cost_seconds == pytest.approx(10e-6)


def test_a_worker_that_left_its_mark_is_known_by_its_rank(tmp_path: Path) -> None:
    export = two_ranks()
    export.range(1, "torchscale.rank 1/2", 0, None, kind=34)
    export.range(2, "torchscale.rank 0/2", 0, None, kind=34, by_id=True)
    ranks, notes = read_nsys([export.write(tmp_path / "run.sqlite")])
    assert {rank.pid: rank.rank for rank in ranks} == {1: 1, 2: 0}
    assert notes == ()


def test_a_process_without_a_mark_is_no_rank(tmp_path: Path) -> None:
    export = two_ranks()
    for number in range(24):
        export.range(1, "torchscale.rank 1/2", number, None, kind=34)
        export.range(2, "torchscale.rank 0/2", number, None, kind=34)
    export.kernel(7, "fill", 0, 10)
    ranks, notes = read_nsys([export.write(tmp_path / "run.sqlite")])
    assert {rank.pid: rank.rank for rank in ranks} == {1: 1, 2: 0}
    assert notes == ("run.sqlite: processes that are no ranks ran kernels and are left out: 7",)


def all_reduces(export: NsysExport, pid: int) -> list[dict[str, object]]:
    """The all-reduce kernels of a process, in order."""
    number = export.names["ncclDevKernel_AllReduce_Sum_f32"]
    rows = export.rows["CUPTI_ACTIVITY_KIND_KERNEL"]
    return [
        row for row in rows if row["shortName"] == number and row["globalPid"] == pid * PID_UNIT
    ]


def test_a_kernel_that_was_missed_costs_its_step_alone(tmp_path: Path) -> None:
    export = two_ranks(launched=True)
    whole = analyze_trace(read_recordings([export.write(tmp_path / "whole.sqlite")]))
    export.rows["CUPTI_ACTIVITY_KIND_KERNEL"].remove(all_reduces(export, 1)[3])
    analysis = analyze_trace(read_recordings([export.write(tmp_path / "run.sqlite")]))
    assert whole.sync_stall_percent == pytest.approx(10 / 400 * 100)
    assert analysis.sync_stall_percent == pytest.approx(10 / 400 * 100 * 22 / 23)
    assert (
        analysis.notes[-1]
        == "1 of 24 steps in which ranks recorded different collectives are left out"
    )
    straggler = next(finding for finding in analysis.findings if finding.kind.value == "straggler")
    assert straggler.rank == 1
    for kernel in all_reduces(export, 1)[:12]:
        export.rows["CUPTI_ACTIVITY_KIND_KERNEL"].remove(kernel)
    doubted = analyze_trace(read_recordings([export.write(tmp_path / "half.sqlite")]))
    assert any("13 of 24 steps" in reason for reason in doubted.window.reasons)


def test_what_ran_before_the_marked_steps_is_not_counted(tmp_path: Path) -> None:
    export = two_ranks(launched=True)
    export.kernel(
        1, "ncclDevKernel_AllReduce_Sum_f32", -200_000, -150_000, 999
    )  # its profiler began earlier
    analysis = analyze_trace(read_recordings([export.write(tmp_path / "run.sqlite")]))
    assert analysis.sync_stall_percent == pytest.approx(10 / 400 * 100)
    assert analysis.window.reasons == ()


def test_a_kernel_is_of_the_step_that_launched_it_however_late_it_runs(tmp_path: Path) -> None:
    export = two_ranks(launched=True)
    for pid in (1, 2):
        for kernel in all_reduces(export, pid):
            kernel["start"], kernel["end"] = (
                int(str(kernel["start"])) + 500_000,
                int(str(kernel["end"])) + 500_000,
            )
    for rank in read_nsys([export.write(tmp_path / "run.sqlite")])[0]:
        assert rank.collectives.step.tolist() == list(range(24))


def test_kernels_of_different_process_groups_are_not_one_collective(tmp_path: Path) -> None:
    """Four ranks: an all-reduce of all, then one of the first two and one of the last two, 3 ms
    apart."""
    export, link = NsysExport(), 0
    for number in range(24):
        origin = number * 10_000_000
        for pid in (1, 2, 3, 4):
            late, group = 20_000 * pid, origin + (4_000_000 if pid < 3 else 7_000_000)
            export.range(pid, f"torchscale.step {number}", origin, origin + 10_000_000)
            times = ((origin + 1_000_000 + late, origin + 1_200_000), (group - 50_000, group))
            for start, end in times:
                link += 1
                export.call(pid, "cudaLaunchKernelExC_v11060", origin + 1000, origin + 2000, link)
                export.kernel(pid, "ncclDevKernel_AllReduce_Sum_f32", start, end, link)
    analysis = analyze_trace(read_recordings([export.write(tmp_path / "run.sqlite")]))
    assert analysis.sync_stall_percent == pytest.approx((60 + 40 + 20) / 40_000 * 100)
    assert any(
        "24 of 48 collectives do not end together" in reason for reason in analysis.window.reasons
    )
    assert all(finding.rank is None for finding in analysis.findings)


def test_times_become_utc_unless_they_are_already(tmp_path: Path) -> None:
    plain = two_ranks()
    plain.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=10**18)
    assert read_nsys([plain.write(tmp_path / "a.sqlite")])[0][0].spans.start.min() == 10**18
    normal = two_ranks()
    normal.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=10**18)
    normal.add("META_DATA_EXPORT", name="EXPORT_PARAM_TIME_NORMALIZE", value="true")
    assert read_nsys([normal.write(tmp_path / "b.sqlite")])[0][0].spans.start.min() == 0


@pytest.mark.parametrize("absent", ["CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"])
def test_an_absent_table_is_not_measured_and_never_zero(absent: str, tmp_path: Path) -> None:
    analysis = analyze_trace(
        read_recordings([two_ranks().write(tmp_path / "run.sqlite", without=[absent])])
    )
    if absent == "CUPTI_ACTIVITY_KIND_RUNTIME":
        assert analysis.per_rank[0].idle.host_bound_seconds is None
        assert any(item.kind.value == "host_bound" for item in analysis.abstentions)
    else:
        assert analysis.window.steps is None
        assert any(item.kind.value == "straggler" for item in analysis.abstentions)


def test_several_ranks_without_nccl_are_an_error_or_no_figure(tmp_path: Path) -> None:
    export = NsysExport()
    for pid in (1, 2):
        for number in range(5):
            export.kernel(pid, "gemm", number * 100, number * 100 + 50)
    analysis = analyze_trace(read_recordings([export.write(tmp_path / "run.sqlite")]))
    assert analysis.sync_stall_percent is None
    assert analysis.per_rank[0].overlap is None


def test_copies_say_what_memory_they_use(tmp_path: Path) -> None:
    export = two_ranks()
    for kind, source, target in ((1, 0, 2), (1, 1, 2), (2, 2, 0), (8, 2, 2)):
        export.add(
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            start=0, end=5, streamId=7, correlationId=0, globalPid=PID_UNIT, bytes=4,
            copyKind=kind, srcKind=source, dstKind=target,
        )  # fmt: skip
    spans = read_nsys([export.write(tmp_path / "run.sqlite")])[0][0].spans
    assert spans.detail[spans.of(SpanKind.COPY)].tolist() == [
        SpanCopyKind.HOST_TO_DEVICE_PAGEABLE,
        SpanCopyKind.HOST_TO_DEVICE,
        SpanCopyKind.DEVICE_TO_HOST_PAGEABLE,
        SpanCopyKind.WITHIN_DEVICE,
    ]
    assert spans.size[spans.of(SpanKind.COPY)].tolist() == [4, 4, 4, 4]


def test_what_is_no_export_is_said(tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other)) as database, database:
        database.execute("CREATE TABLE t (a)")
    with pytest.raises(TraceError, match="not an export of nsys"):
        read_nsys([other])
    bare = NsysExport()
    bare.add(
        "DIAGNOSTIC_EVENT",
        timestamp=0,
        timestampType=1,
        source=1,
        severity=1,
        text="No CUDA events collected. x",
    )
    message = "no CUDA kernels were recorded; nsys says: No CUDA events collected"
    with pytest.raises(TraceError, match=message):
        read_nsys([bare.write(tmp_path / "bare.sqlite")])
    # As exports that are not lazy have it.
    with closing(sqlite3.connect(tmp_path / "bare.sqlite")) as database, database:
        database.execute(
            f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({NSYS_2026['CUPTI_ACTIVITY_KIND_KERNEL']})"
        )
    with pytest.raises(TraceError, match=message):
        read_nsys([tmp_path / "bare.sqlite"])
    damaged = tmp_path / "damaged.sqlite"
    content = two_ranks().write(tmp_path / "good.sqlite").read_bytes()
    damaged.write_bytes(content[: len(content) // 3])
    with pytest.raises(TraceError, match="damaged"):
        read_nsys([damaged])


def test_a_view_that_poses_as_a_table_is_not_read(tmp_path: Path) -> None:
    path = NsysExport().write(tmp_path / "view.sqlite")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL "
            "SELECT x+1 FROM n) SELECT x AS start, x AS end, 1 AS globalPid, 1 AS shortName, 7 AS "
            "streamId, 0 AS correlationId FROM n"
        )
    with pytest.raises(TraceError, match="no CUDA kernels"):
        read_nsys([path])


@pytest.mark.skipif(
    not (SHARED / "data" / "nsys").is_dir(), reason="the recorded exports are not here"
)
def test_a_real_export_of_two_h100(tmp_path: Path) -> None:
    analysis = analyze_trace(
        read_recordings([SHARED / "data" / "nsys" / "h100_2rank_pipeline_2026.sqlite"])
    )
    first, second = analysis.per_rank
    assert (analysis.world_size, analysis.collectives[0].op, analysis.collectives[0].count) == (
        2,
        "all_to_all",
        33,
    )
    assert first.sync_stall_seconds == pytest.approx(10.90e-3, rel=1e-3)
    assert second.sync_stall_seconds == pytest.approx(2.48e-3, rel=1e-2)
    assert first.transfer_seconds == pytest.approx(6.27e-3, rel=1e-2)
    assert second.transfer_seconds == pytest.approx(5.75e-3, rel=1e-2)
    assert second.blame_percent == pytest.approx(81.5, abs=0.1)
    assert second.arrives_late_seconds > first.arrives_late_seconds  # type: ignore[operator]
    assert all(finding.rank is None for finding in analysis.findings)
    single = analyze_trace(read_recordings([SHARED / "data" / "nsys" / "1gpu_2026.sqlite"]))
    assert single.sync_stall_percent is None


def test_an_export_that_does_not_tell_the_memory_of_copies_makes_its_rule_abstain(
    tmp_path: Path,
) -> None:
    export = two_ranks()
    for pid in (1, 2):
        export.add(
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            start=0, end=5, streamId=7, correlationId=0, globalPid=pid * PID_UNIT, bytes=4, copyKind=1,
        )  # fmt: skip
    analysis = analyze_trace(read_recordings([export.write(tmp_path / "run.sqlite")]))
    abstained = {item.kind.value: item.reason for item in analysis.abstentions}
    assert "the memory that copies go from and to" in abstained["pageable_copies"]
    assert "values read back" in abstained["host_sync"]  # nsys knows no operators
