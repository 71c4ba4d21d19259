"""A copy to share: nothing of environment, arguments and output is in any byte of it, and it is
analyzed alike."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.features.trace.readers.builders import SHARED, NsysExport, two_ranks
from torchscale.errors import OutputError, TraceError
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.features.trace.readers.nsys.strip import StrippedTable, strip_export
from torchscale.features.trace.readers.recordings import read_recordings

PLANTED = "hf_planted_token_value"


def with_secrets(path: Path) -> Path:
    """An export in which the planted text is wherever nsys, or a version to come, may put it."""
    export = two_ranks()
    export.add("META_DATA_CAPTURE", name="ENV", value=f"HF_TOKEN={PLANTED}")
    export.add("TARGET_INFO_SYSTEM_ENV", name="Env", devStateName="x", value=f"HF_TOKEN={PLANTED}")
    export.add("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value="3.25.0")
    export.add(
        "META_DATA_EXPORT",
        name="EXPORT_PARAM_INPUT_PATH_ABS",
        value=f"/home/{PLANTED}/run.nsys-rep",
    )
    export.add("DIAGNOSTIC_EVENT", text=f"Process was launched, see /tmp/{PLANTED}.log")
    export.add("PROCESSES", globalPid=1 << 24, pid=1, name=f"/home/{PLANTED}/bin/python3")
    export.add("PROCESSES", globalPid=99 << 24, pid=99, name=PLANTED)
    export.nccl(1, "ncclAllReduce", 5, 6, communicator=5, size=4096)
    export.range(1, "my range", 5, 6)
    export.rows["NVTX_EVENTS"][-1]["binaryData"] = PLANTED.encode()
    export.range(1, f"login hf_{'a' * 34}", 5, 6)
    export.name(f"environment\0HF_TOKEN={PLANTED}")  # a text that no row refers to
    export.write(path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE ProcessStreams (globalPid INTEGER, contentId INTEGER)")
        database.execute("INSERT INTO StringIds VALUES (7777, ?)", (f"output {PLANTED}",))
        database.execute("INSERT INTO ProcessStreams VALUES (1, 7777)")
        database.execute("CREATE TABLE A_TABLE_TO_COME (id INTEGER, nameId INTEGER, value TEXT)")
        database.execute("INSERT INTO A_TABLE_TO_COME VALUES (1, 7777, ?)", (PLANTED,))
        database.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN comment TEXT")
        database.execute(
            "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET comment = ?, gridX = ?", (PLANTED, PLANTED)
        )
        database.execute("CREATE VIEW sneaky AS SELECT value FROM StringIds")
        database.commit()
    return path


def test_nothing_of_it_is_left_and_the_analysis_is_the_same(tmp_path: Path) -> None:
    source, copy = with_secrets(tmp_path / "run.sqlite"), tmp_path / "copy.sqlite"
    before = analyze_trace(read_recordings([source]))
    assert PLANTED not in before.model_dump_json()
    tables = {table.name: table for table in strip_export(source, copy)}
    content = copy.read_bytes()
    assert PLANTED.encode() in source.read_bytes()
    assert PLANTED.encode() not in content
    assert b"a" * 34 not in content, "secrets by their form, in texts that stay"
    after = analyze_trace(read_recordings([copy]))
    assert after.model_dump(exclude={"sources", "per_rank", "notes"}) == before.model_dump(
        exclude={"sources", "per_rank", "notes"}
    )
    assert tables["ProcessStreams"] == StrippedTable("ProcessStreams", 1, 0)
    assert tables["A_TABLE_TO_COME"] == StrippedTable("A_TABLE_TO_COME", 1, 0)
    assert (tables["PROCESSES"].rows, tables["PROCESSES"].kept) == (2, 1)
    assert tables["StringIds"].kept < tables["StringIds"].rows
    with closing(sqlite3.connect(copy)) as database:
        names = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        assert not names & {"ProcessStreams", "sneaky"}
        assert database.execute("SELECT name FROM PROCESSES").fetchall() == [("python3",)]
        payloads = [
            blob for (blob,) in database.execute("SELECT binaryData FROM NVTX_EVENTS") if blob
        ]
    assert len(payloads) == 1, "of payloads, those of NCCL alone"


@pytest.mark.parametrize("name", ["h100_2rank_pipeline_2026.sqlite", "1gpu_2026.sqlite"])
def test_a_real_export_loses_no_figure(name: str, tmp_path: Path) -> None:
    source = SHARED / "data" / "nsys" / name
    if not source.is_file():
        pytest.skip("the recorded exports are not here")
    copy = tmp_path / name
    strip_export(source, copy)
    assert analyze_trace(read_recordings([copy])) == analyze_trace(read_recordings([source]))


def test_what_cannot_be_stripped(tmp_path: Path) -> None:
    source = two_ranks().write(tmp_path / "run.sqlite")
    with pytest.raises(OutputError, match="cannot write"):
        strip_export(source, tmp_path / "absent" / "copy.sqlite")
    with pytest.raises(TraceError, match="exists already"):
        strip_export(source, source)
    other = NsysExport(tables={}).write(tmp_path / "empty.sqlite")
    with pytest.raises(TraceError, match="not an export of nsys"):
        strip_export(other, tmp_path / "copy.sqlite")
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(source.read_bytes()[:5000])
    with pytest.raises((TraceError, OutputError)):
        strip_export(damaged, tmp_path / "copy.sqlite")
    assert not (tmp_path / "copy.sqlite").exists()


def test_a_generated_column_is_refused(tmp_path: Path) -> None:
    source = two_ranks().write(tmp_path / "run.sqlite")
    with closing(sqlite3.connect(source)) as database:
        database.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_X (a INTEGER, b AS (zeroblob(1000000000)))"
        )
        database.commit()
    with pytest.raises(TraceError, match="generated column"):
        strip_export(source, tmp_path / "copy.sqlite")
    assert not (tmp_path / "copy.sqlite").exists()
