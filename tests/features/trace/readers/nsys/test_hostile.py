"""Exports that were made to do harm, or that are no longer what nsys wrote: an error that says what
is wrong, or the same figures as without."""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.features.trace.readers.builders import PID_UNIT, NsysExport, two_ranks
from tests.features.trace.readers.nsys.hostile import ENDLESS, KERNEL, edited, multiplied, sound
from torchscale.errors import OutputError, TraceError
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.features.trace.readers.nsys.export_file import open_database
from torchscale.features.trace.readers.nsys.strip import strip_export
from torchscale.features.trace.readers.recordings import find_recordings, read_recordings
from torchscale.schema.profiles.analysis import ProfileAnalysis

RUNTIME, COPY = "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_MEMCPY"
RANGES = "NVTX_EVENTS"


def analyzed(path: Path) -> ProfileAnalysis:
    return analyze_trace(read_recordings(find_recordings([path])))


def stripped(export: Path) -> Path:
    """Its copy, of the same name."""
    copy = export.parent / "copy" / export.name
    copy.parent.mkdir()
    strip_export(export, copy)
    return copy


@pytest.fixture
def export(tmp_path: Path) -> Path:
    return sound(tmp_path / "run.sqlite")


HARMLESS = {
    "a trigger that deletes": f"CREATE TRIGGER t AFTER INSERT ON {KERNEL} BEGIN DELETE FROM "
    f"{KERNEL}; END",
    "a trigger on the names": "CREATE TRIGGER t AFTER INSERT ON StringIds BEGIN DELETE FROM "
    "StringIds; END",
    "an endless view beside": ENDLESS.format(table="NVTX_PAYLOAD_SCHEMAS").partition(";")[2],
    "a virtual table beside": "CREATE VIRTUAL TABLE search USING fts5(text); INSERT INTO search "
    "VALUES ('x')",
    "further columns": f"ALTER TABLE {KERNEL} ADD COLUMN secret TEXT DEFAULT 'x'; ALTER TABLE "
    "StringIds ADD COLUMN more BLOB DEFAULT x'00'",
    "versions of another program": "PRAGMA user_version = -5; PRAGMA application_id = 1179871352",
    "names without row numbers": "CREATE TABLE other (id INTEGER PRIMARY KEY, value) WITHOUT ROWID;"
    " INSERT INTO other SELECT * FROM StringIds; DROP TABLE StringIds; ALTER TABLE other RENAME TO "
    "StringIds",
    "a write-ahead log that is closed": "PRAGMA journal_mode = WAL; CREATE TABLE other (a); PRAGMA "
    "wal_checkpoint(TRUNCATE)",
    "ranges of a thread that nobody knows": f"INSERT INTO {RANGES} (start, end, eventType, text, "
    "globalTid) VALUES (0, 9, 59, 'torchscale.step 5', 77 << 24), (0, 9, 59, 'torchscale.step 6', "
    "-1), (0, 9, 59, 'torchscale.step 7', 9223372036854775807)",
    "ranges that never end": f"INSERT INTO {RANGES} (start, eventType, text, globalTid) VALUES "
    f"(0, 59, 'torchscale.step 5', {PID_UNIT}), (0, 59, 'ncclAllReduce', {PID_UNIT})",
    "bytes as the text of a range": f"INSERT INTO {RANGES} (start, end, eventType, text, globalTid)"
    f" VALUES (0, 9, 59, CAST('step 5' AS BLOB), {PID_UNIT})",
    "a text of 60 MB": "INSERT INTO StringIds VALUES (999, hex(zeroblob(30000000)))",
    "many tables of numbers": "BEGIN; "
    + "".join(f"CREATE TABLE CUPTI_ACTIVITY_KIND_{n} (globalPid, nameId);" for n in range(600))
    + "COMMIT",
    "a machine whose number makes all others negative": "".join(
        f"UPDATE {table} SET {column} = {column} + (-9223372036854775807 - 1);"
        for table, column in (
            (KERNEL, "globalPid"),
            (COPY, "globalPid"),
            (RUNTIME, "globalTid"),
            (RANGES, "globalTid"),
        )
    ),
    "a name of no id": f"UPDATE {KERNEL} SET demangledName = 'x'",
    "a thousand views": "BEGIN; "
    + "".join(f"CREATE VIEW v{n} AS SELECT * FROM v{n + 1};" for n in range(999))
    + "COMMIT",
}


@pytest.mark.parametrize("statements", HARMLESS.values(), ids=HARMLESS)
def test_what_does_not_concern_the_figures_leaves_them_as_they_are(
    statements: str, export: Path
) -> None:
    before = analyzed(export)
    assert analyzed(edited(export, statements)) == before
    assert analyzed(stripped(export)) == before


REFUSED = {
    "an endless view as names": (ENDLESS.format(table="StringIds"), "no StringIds"),
    "an endless view as meta data": (ENDLESS.format(table="META_DATA_EXPORT"), "META_DATA_EXPORT"),
    "a full-text table as kernels": (
        f"DROP TABLE {KERNEL}; CREATE VIRTUAL TABLE {KERNEL} USING fts5(start, end)",
        "no CUDA kernels",
    ),
    "a tree of boxes as kernels": (
        f"DROP TABLE {KERNEL}; CREATE VIRTUAL TABLE {KERNEL} USING rtree(id, start, end)",
        "no CUDA kernels",
    ),
    "a virtual table under the name of a true one": (
        "DROP TABLE StringIds; CREATE TABLE other (id INTEGER PRIMARY KEY, value); PRAGMA "
        "writable_schema = ON; UPDATE sqlite_master SET name = 'StringIds' WHERE name = 'other'; "
        "INSERT INTO sqlite_master VALUES ('table', 'q', 'q', 0, 'CREATE VIRTUAL TABLE StringIds "
        "USING fts5(id, value)')",
        "malformed database schema",
    ),
    "a generated column": (
        f"ALTER TABLE {KERNEL} ADD COLUMN more AS (hex(zeroblob(1000000)))",
        "generated column",
    ),
    "names without a key": (
        "CREATE TABLE other AS SELECT * FROM StringIds; DROP TABLE StringIds; ALTER TABLE other "
        "RENAME TO StringIds; INSERT INTO StringIds SELECT * FROM StringIds",
        "id is not the key of its StringIds",
    ),
    "names without texts": ("ALTER TABLE StringIds DROP COLUMN value", "with id and value"),
    "kernels without processes": (
        f"ALTER TABLE {KERNEL} DROP COLUMN globalPid",
        "no such column: globalPid",
    ),
    "more tables than nsys writes": (
        f"BEGIN; {''.join(f'CREATE TABLE t{n} (a);' for n in range(1001))} COMMIT",
        "1,0.. tables; an export of nsys has at most 1,000",
    ),
    "a text of 100 MB": (
        f"INSERT INTO StringIds VALUES (999, hex(zeroblob(50000000))); UPDATE {KERNEL} SET "
        "shortName = 999",
        "a text or a value of more than 64 MiB",
    ),
    "more processes than a node has": (
        f"WITH RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM a WHERE n < 100000) INSERT "
        f"INTO {KERNEL} (start, end, globalPid) SELECT 0, 1, n << 24 FROM a",
        "100,000 processes ran kernels",
    ),
    "a process below 0": (f"UPDATE {KERNEL} SET globalPid = -5", "-5 as the process of a kernel"),
    "a process beyond all": (
        f"UPDATE {KERNEL} SET globalPid = 9223372036854775807",
        "9223372036854775807 as the process of a kernel",
    ),
    "one process as two ranks": (
        f"INSERT INTO {RANGES} (start, eventType, text, globalTid) VALUES (0, 34, "
        f"'torchscale.rank 0/2', {PID_UNIT}), (0, 34, 'torchscale.rank 1/2', {PID_UNIT})",
        "process 1 is marked as rank 0 of 2 and as rank 1 of 2",
    ),
    "two processes as one rank": (
        f"INSERT INTO {RANGES} (start, eventType, text, globalTid) VALUES (0, 34, "
        f"'torchscale.rank 0/2', {PID_UNIT}), (0, 34, 'torchscale.rank 0/2', {2 * PID_UNIT})",
        "rank 0 is there more than once",
    ),
    "marks of processes that ran nothing": (
        f"INSERT INTO {RANGES} (start, eventType, text, globalTid) VALUES (0, 34, "
        f"'torchscale.rank 0/1', {9 * PID_UNIT})",
        "processes that ran kernels are marked as no ranks: 1, 2",
    ),
    "a step that ends before it starts": (
        f"UPDATE {RANGES} SET end = start - 1 WHERE text = 'torchscale.step 5'",
        "ends before it starts",
    ),
    "steps within each other": (
        f"UPDATE {RANGES} SET end = 100000000 WHERE text IS NOT NULL",
        "steps overlap",
    ),
    "kernels beyond the recording": (
        f"UPDATE {KERNEL} SET start = 4000000000000000000, end = 4000000000000000001 WHERE "
        "rowid % 2 = 0",
        "a time that no recording has",
    ),
}


@pytest.mark.parametrize(("statements", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_export_is_refused(statements: str, message: str, export: Path) -> None:
    edited(export, statements)
    with pytest.raises(TraceError, match=message):
        analyzed(export)


@pytest.mark.parametrize("value", ["'x'", "0.5", "x'00ff'", "9e999", "NULL"])
@pytest.mark.parametrize(
    ("table", "column"),
    [(KERNEL, "start"), (KERNEL, "end"), (KERNEL, "streamId"), (RUNTIME, "start"), (COPY, "end"),
     (COPY, "copyKind")],
)  # fmt: skip
def test_what_is_no_whole_number_is_not_made_one(
    table: str, column: str, value: str, export: Path
) -> None:
    edited(export, f"UPDATE {table} SET {column} = {value} WHERE rowid = 3")
    with pytest.raises(TraceError, match=r"where a time or an id is to be, a whole number"):
        analyzed(export)


@pytest.mark.parametrize("value", ["'x'", "0.5", "x'00ff'"])
@pytest.mark.parametrize(
    ("table", "column"),
    [(KERNEL, "globalPid"), (COPY, "globalPid"), (RUNTIME, "globalTid"), (RUNTIME, "nameId"),
     (RANGES, "globalTid"), (RANGES, "textId"), (RANGES, "eventType")],
)  # fmt: skip
def test_a_row_of_no_process_is_not_left_out_in_silence(
    table: str, column: str, value: str, export: Path
) -> None:
    edited(export, f"UPDATE {table} SET {column} = {value} WHERE rowid = 3")
    with pytest.raises(TraceError, match=f"as {column} of {table}; expected a whole number"):
        analyzed(export)


@pytest.mark.parametrize("value", ["'x'", "0.5", "x'00ff'", "-1", "9223372036854775807", "NULL"])
def test_a_name_that_is_not_there_changes_no_time(value: str, export: Path) -> None:
    before = analyzed(export)
    edited(export, f"UPDATE StringIds SET value = {value} WHERE value = 'gemm'")
    after = analyzed(export)
    assert after.per_rank == before.per_rank
    assert after.sync_stall_percent == before.sync_stall_percent


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_another_encoding_is_read_and_stripped(encoding: str, export: Path, tmp_path: Path) -> None:
    before = analyzed(export)
    with closing(sqlite3.connect(export)) as old, closing(sqlite3.connect(tmp_path / "b")) as new:
        new.execute(f"PRAGMA encoding = '{encoding}'")
        new.executescript("\n".join(old.iterdump()))
    (tmp_path / "b").replace(export)
    assert analyzed(export) == before
    assert analyzed(stripped(export)) == before


def test_texts_that_are_no_utf_8_are_read_and_stripped(export: Path) -> None:
    edited(
        export,
        "UPDATE StringIds SET value = CAST(x'fffe' AS TEXT) WHERE value = 'gemm'; INSERT INTO "
        f"{RANGES} (start, end, eventType, text, globalTid) VALUES (0, 1, 59, "
        f"CAST(x'c328' AS TEXT), {PID_UNIT})",
    )
    assert analyzed(stripped(export)) == analyzed(export)


@pytest.mark.parametrize("table", [KERNEL, RANGES, "StringIds"])
def test_pages_that_stand_in_a_table_many_times_end(
    table: str, export: Path, tmp_path: Path
) -> None:
    multiplied(export, table)
    with pytest.raises(TraceError, match=r"more rows than its .* bytes can hold"):
        analyzed(export)
    with pytest.raises(TraceError, match=r"more rows than its .* bytes can hold"):
        strip_export(export, tmp_path / "copy.sqlite")
    assert sorted(tmp_path.iterdir()) == [export]


def fill(path: Path) -> None:
    path.write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(600))


def test_a_part_beside_it_is_missing_from_the_figures(export: Path, tmp_path: Path) -> None:
    for end in ("-journal", "-wal"):
        companion = export.with_name(export.name + end)
        fill(companion)
        before = companion.read_bytes()
        with pytest.raises(TraceError, match=f"run.sqlite{end} beside it holds a part of it"):
            analyzed(export)
        assert companion.read_bytes() == before
        companion.unlink()


@pytest.mark.parametrize("end", ["-journal", "-wal", "-shm"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, Path.touch], ids=["pipe", "folder", "empty"])
def test_other_things_beside_it_are_not_looked_at(
    make: Callable[[Path], None], end: str, export: Path
) -> None:
    before = analyzed(export)
    edited(export, "PRAGMA journal_mode = WAL")
    companion = export.with_name(export.name + end)
    companion.unlink(missing_ok=True)
    make(companion)
    there = sorted(export.parent.iterdir())
    assert analyzed(export) == before
    assert sorted(export.parent.iterdir()) == there, "nothing is left beside it"


def test_a_write_ahead_log_that_is_in_use(export: Path) -> None:
    with closing(sqlite3.connect(export, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute(f"DELETE FROM {KERNEL} WHERE rowid % 2 = 0")
        with pytest.raises(TraceError, match="another program is writing it"):
            analyzed(export)


def test_a_lock_of_another_program_is_no_wait(export: Path) -> None:
    before = analyzed(export)
    with closing(sqlite3.connect(export, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        assert analyzed(export) == before


def test_what_changes_while_it_is_read_gives_no_figure(export: Path) -> None:
    with pytest.raises(TraceError, match="changed while it was read"), open_database(export):
        edited(export, f"DELETE FROM {KERNEL} WHERE rowid > 9")


def test_what_changes_while_it_is_copied_leaves_no_copy(
    export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(text: str) -> str:
        os.utime(export)
        return text

    monkeypatch.setattr("torchscale.features.trace.readers.nsys.strip.redact_text", change)
    with pytest.raises(TraceError, match="changed while it was read"):
        strip_export(export, tmp_path / "copy.sqlite")
    assert sorted(tmp_path.iterdir()) == [export]


def test_what_is_removed_while_it_is_read_is_read_to_its_end(export: Path) -> None:
    with open_database(export) as database:
        export.unlink()
        assert len(list(database.rows(f"SELECT 1 FROM {KERNEL}"))) == 96


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:6000])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def encrypted(path: Path) -> None:
    path.write_bytes(bytes(byte ^ 0x5A for byte in path.read_bytes()))


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def circled(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("change", [truncated, emptied, encrypted, piped, circled, folder])
def test_what_is_no_whole_database(
    change: Callable[[Path], None], export: Path, tmp_path: Path
) -> None:
    change(export)
    with pytest.raises(TraceError, match=r"run\.sqlite"):
        analyzed(export)
    with pytest.raises(TraceError, match=r"run\.sqlite"):
        strip_export(export, tmp_path / "copy.sqlite")
    assert not (tmp_path / "copy.sqlite").exists()


def test_a_link_that_leads_nowhere_is_not_written_through(export: Path, tmp_path: Path) -> None:
    victim, copy = tmp_path / "victim", tmp_path / "copy.sqlite"
    copy.symlink_to(victim)
    with pytest.raises(TraceError, match="exists already"):
        strip_export(export, copy)
    assert not victim.exists()


@pytest.mark.parametrize("end", ["-journal", "-wal", "-shm"])
def test_what_lies_beside_the_copy_is_not_touched(end: str, export: Path, tmp_path: Path) -> None:
    victim, copy = tmp_path / "victim", tmp_path / "copy.sqlite"
    fill(victim)
    before = victim.read_bytes()
    copy.with_name(copy.name + end).symlink_to(victim)
    strip_export(export, copy)
    assert victim.read_bytes() == before
    copy.with_name(copy.name + end).unlink()
    assert len(analyzed(copy).per_rank) == 2


def test_an_export_that_cannot_be_copied_is_said_to_be_the_cause(
    export: Path, tmp_path: Path
) -> None:
    edited(export, "CREATE TABLE PROCESSES (name TEXT); INSERT INTO PROCESSES VALUES ('x')")
    with pytest.raises(TraceError, match=r"run.sqlite: no such column: t.globalPid"):
        strip_export(export, tmp_path / "copy.sqlite")


def test_a_text_that_stands_for_all_rows_is_no_larger_in_a_copy(
    export: Path, tmp_path: Path
) -> None:
    edited(
        export,
        f"CREATE TABLE other AS SELECT start, end, eventType, globalTid, textId FROM {RANGES}; "
        f"INSERT INTO other SELECT t.* FROM other t, other; ALTER TABLE other ADD COLUMN text TEXT "
        f"DEFAULT 'nccl{'A' * 900_000}'; DROP TABLE {RANGES}; ALTER TABLE other RENAME TO {RANGES}",
    )
    with pytest.raises(TraceError, match="a copy of it would have more than"):
        strip_export(export, tmp_path / "copy.sqlite")
    assert sorted(tmp_path.iterdir()) == [export]


def test_a_disk_that_is_full_is_said_to_be_the_cause(
    export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torchscale.features.trace.readers.nsys.strip.os.link", refuse)
    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OutputError, match="No space left"):
        strip_export(export, tmp_path / "copy.sqlite")
    assert sorted(tmp_path.iterdir()) == [export]


def grouped(calls: int, kernels: int) -> NsysExport:
    """Many calls in one group, and many kernels that its end launches."""
    export = NsysExport()
    export.nccl(1, "ncclGroupStart", 0, 1)
    for number in range(calls):
        export.nccl(1, "ncclSend", 2 + number, 3 + number, communicator=5, size=8, peer=1)
    end = calls + 10
    export.nccl(1, "ncclGroupEnd", end, end + kernels + 10)
    for number in range(kernels):
        export.call(1, "cudaLaunchKernel", end + number, end + number + 1, number + 1)
        export.kernel(1, "ncclDevKernel_SendRecv", end + number * 10, end + number * 10 + 9,
                      number + 1)  # fmt: skip
    return export


def nested(depth: int) -> NsysExport:
    """Ranges within ranges."""
    export = NsysExport()
    export.kernel(1, "gemm", 0, 9)
    for number in range(depth):
        export.range(1, "ncclGroupStart", number, 3 * depth - number)
        export.range(1, f"step {number}", 5 * depth + 10 * number, 5 * depth + 10 * number + 9)
    for number in range(depth):
        export.range(1, "ncclGroupEnd", depth + number, depth + number + 1)
    return export


@pytest.mark.parametrize(
    "make", [lambda: grouped(6_000, 6_000), lambda: nested(6_000)], ids=["grouped", "nested"]
)
def test_time_grows_with_the_ranges_and_not_with_their_square(
    make: Callable[[], NsysExport], tmp_path: Path
) -> None:
    path = make().write(tmp_path / "run.sqlite")
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT COUNT(*) FROM NVTX_EVENTS").fetchone()[0] > 6_000
    began = os.times().user
    analyzed(path)
    assert os.times().user - began < 5, "seconds of CPU; the square takes minutes"


def test_a_long_text_of_many_ranges_is_read_once(export: Path) -> None:
    before = analyzed(export)
    edited(
        export,
        "INSERT INTO StringIds VALUES (999, 'nccl' || hex(zeroblob(25000000))); WITH RECURSIVE "
        f"a(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM a WHERE n < 3000) INSERT INTO {RANGES} "
        f"(start, end, eventType, textId, globalTid) SELECT n, n + 1, 59, 999, {PID_UNIT} FROM a",
    )
    began = os.times().user
    after = analyzed(export)
    assert after.per_rank == before.per_rank
    assert os.times().user - began < 10, "seconds of CPU; each time anew takes minutes"


@pytest.mark.parametrize("size", [2**63, 2**64 - 1, 2**61])
def test_a_size_that_no_buffer_has_is_not_known(size: int, tmp_path: Path) -> None:
    export = two_ranks(launched=True)
    for number in range(24):
        for pid in (1, 2):
            at = number * 200_000 + 5_500
            export.nccl(pid, "ncclAllReduce", at, at + 4_000, communicator=5)
            blob = bytearray(export.rows[RANGES][-1]["binaryData"])  # type: ignore[call-overload]
            struct.pack_into("<Q", blob, 40, size)
            export.rows[RANGES][-1]["binaryData"] = bytes(blob)
    (summary,) = analyzed(export.write(tmp_path / "run.sqlite")).collectives
    assert (summary.op, summary.payload_bytes) == ("all_reduce", None)


def test_a_payload_of_more_fields_than_any_library_has_is_not_decoded(tmp_path: Path) -> None:
    export = two_ranks(launched=True)
    export.nccl(1, "ncclAllReduce", 5_500, 9_500, communicator=5, size=9)
    entry = export.rows["NVTX_PAYLOAD_SCHEMA_ENTRIES"][1]
    for place in range(3, 200):
        export.add("NVTX_PAYLOAD_SCHEMA_ENTRIES", **{**entry, "idx": place, "name": f"n{place}"})
    summaries = analyzed(export.write(tmp_path / "run.sqlite")).collectives
    assert {summary.payload_bytes for summary in summaries} == {None}


@pytest.mark.parametrize("name", ["\x1b[31mred", "<script>", "a\0b", "x" * 10**6], ids=repr)
def test_a_process_is_named_in_few_words(name: str, tmp_path: Path) -> None:
    export = two_ranks()
    export.add("PROCESSES", globalPid=PID_UNIT, pid=1, name=name)
    (note, *_) = read_recordings([export.write(tmp_path / "run.sqlite")]).notes
    assert f"process 1 ({Path(name).name[:60]}) as rank 0" in note
    assert len(note) < 400
