"""Recordings read in several processes, and what becomes of it when one fails."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.features.trace.readers.builders import host, kernel, kineto, step
from torchscale.errors import MachineError, TraceError
from torchscale.features.trace.readers import reader_pool
from torchscale.features.trace.readers.reader_pool import count_processes, read_in_processes
from torchscale.features.trace.readers.recordings import ReadOptions, read_recordings
from torchscale.features.trace.span import RankTrace
from torchscale.util.interpreter import module_command


def recordings(directory: Path, ranks: int) -> list[Path]:
    """Traces of some steps of so many ranks."""
    paths = []
    for rank in range(ranks):
        events = [host("cpu_op", "aten::mm", 10.0, 5.0)]
        for number in range(3):
            begin = 1000.0 * number
            events += [
                step(number, begin, 900.0),
                kernel("gemm", begin + rank, 100.0),
                kernel("ncclDevKernel_AllReduce_Sum_f32", begin + 200.0 + rank, 50.0, stream=9),
            ]
        paths.append(directory / f"rank{rank}.json")
        paths[-1].write_text(kineto(events, rank, ranks))
    return paths


def columns(rank: RankTrace) -> dict[str, object]:
    """Everything of a rank, to compare."""
    tables = (rank.spans, rank.collectives, rank.steps)
    names = (
        ("start", "end", "kind", "name", "lane", "link", "detail", "size"),
        ("start", "end", "op", "group", "payload_bytes", "sequence", "lane", "began", "queue"),
        ("start", "end", "number"),
    )
    content: dict[str, object] = {
        f"{place}.{name}": getattr(table, name).tolist()
        for place, table in enumerate(tables)
        for name in names[place]
    }
    return content | {
        "rank": rank.rank,
        "names": rank.names,
        "source": rank.source,
        "host": rank.host,
        "ops": rank.collectives.ops,
        "groups": rank.collectives.groups,
    }


@pytest.mark.slow
def test_processes_read_what_one_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = recordings(tmp_path, 5)
    alone = read_recordings(paths)
    monkeypatch.setattr(reader_pool, "_BYTES_PER_PROCESS", 1)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    told: list[tuple[int, int]] = []
    reading = ReadOptions(directory=scratch, on_read=lambda done, total: told.append((done, total)))
    if count_processes(paths, reading.memory_bytes) == 1:
        pytest.skip("one core")
    together = read_recordings(paths, reading)
    assert list(map(columns, together.ranks)) == list(map(columns, alone.ranks))
    assert told == [(done, 5) for done in range(1, 6)]


@pytest.mark.slow
def test_the_first_damaged_file_is_named(tmp_path: Path) -> None:
    paths = recordings(tmp_path, 4)
    for damaged in (paths[1], paths[3]):
        damaged.write_text(damaged.read_text()[:-40])
    with pytest.raises(TraceError, match=r"rank1\.json: the trace is cut off"):
        read_in_processes(paths, tmp_path, 2, lambda _: None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("does", "said"),
    [("os.kill(os.getpid(), 9)", "was ended by signal 9"), ("sys.exit(3)", "ended with 3")],
)
def test_a_process_that_ends_is_an_error(
    does: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(*_arguments: str) -> Sequence[str]:
        return [sys.executable, "-c", f"import os, sys; sys.stdin.readline(); {does}"]

    monkeypatch.setattr(reader_pool, "module_command", command)
    with pytest.raises(MachineError, match=rf"rank0\.json: the process that read it {said}"):
        read_in_processes(recordings(tmp_path, 2), tmp_path, 1, lambda _: None)


@pytest.mark.slow
def test_a_file_that_takes_too_long_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_pool, "_LEAST_SECONDS", 0.2)

    def command(*_arguments: str) -> Sequence[str]:
        return [sys.executable, "-c", "import time; time.sleep(30)"]

    monkeypatch.setattr(reader_pool, "module_command", command)
    with pytest.raises(MachineError, match=r"rank0\.json: not read after minutes"):
        read_in_processes(recordings(tmp_path, 1), tmp_path, 1, lambda _: None)


def test_small_recordings_start_no_process(tmp_path: Path) -> None:
    paths = recordings(tmp_path, 8)
    assert count_processes(paths, 1 << 30) == 1


def test_memory_bounds_the_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = recordings(tmp_path, 8)
    monkeypatch.setattr(reader_pool, "_BYTES_PER_PROCESS", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    assert count_processes(paths, 1 << 30) == 6
    assert count_processes(paths, 3 * reader_pool.PROCESS_BYTES + 100_000) == 2 + 1
    assert count_processes(paths, 1) == 1


def test_columns_beyond_the_memory_lie_in_files(tmp_path: Path) -> None:
    paths = recordings(tmp_path, 3)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    kept = read_recordings(paths, ReadOptions(directory=scratch, memory_bytes=1))
    assert len(list(scratch.glob("*.columns"))) == 3
    whole = read_recordings(paths)
    assert list(map(columns, kept.ranks)) == list(map(columns, whole.ranks))
    assert [np.asarray(rank.spans.of()).shape for rank in kept.ranks] == [
        np.asarray(rank.spans.of()).shape for rank in whole.ranks
    ]


@pytest.mark.slow
def test_an_interruption_leaves_no_process(tmp_path: Path) -> None:
    before = set(psutil.Process().children())

    def interrupt(_: int) -> None:
        assert len(set(psutil.Process().children()) - before) == 2
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_in_processes(recordings(tmp_path, 4), tmp_path, 2, interrupt)
    assert set(psutil.Process().children()) <= before


@pytest.mark.slow
def test_a_process_whose_starter_is_gone_ends(tmp_path: Path) -> None:
    (path,) = recordings(tmp_path, 1)
    process = subprocess.Popen(
        module_command("torchscale.features.trace.readers.rank_reader", str(tmp_path)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, said = process.communicate(f'{{"number": 0, "path": "{path}"}}\n'.encode(), timeout=60)
    assert (process.returncode, said) == (0, b"")
