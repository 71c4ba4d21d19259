"""Time and memory of analyzing recordings, compared with HolisticTraceAnalysis on the same trace.

::

    python benchmarks/trace_analysis.py                       # creates an environment for HolisticTraceAnalysis
    python benchmarks/trace_analysis.py --hta-python PATH     # or uses an existing one

Both run as complete processes on the same Kineto trace of one rank; idle, compute and window of the
device and the overlap must be equal. Then: growth with the number of events, and an nsys export of
a million kernels.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

HTA = "HolisticTraceAnalysis==0.5.0"
LIMIT_SECONDS = 1800
_THEIRS = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="/")
row = analysis.get_temporal_breakdown(visualize=False).iloc[0]
overlap = analysis.get_comm_comp_overlap(visualize=False).iloc[0]["comp_comm_overlap_pctg"]
print(json.dumps([row["idle_time(us)"], row["compute_time(us)"], row["kernel_time(us)"], overlap], default=float))
"""


@dataclass(frozen=True)
class Ran:
    """Time, memory and output of a process."""

    seconds: float
    peak_bytes: int
    output: str


def main() -> None:
    """Compare the two, then measure growth with the number of events."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--hta-python", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        python = arguments.hta_python or _environment(directory / "hta")
        trace = directory / "rank0.pt.trace.json"
        write_trace(trace, arguments.events)
        print(
            f"Kineto trace of {arguments.events:,} events, {trace.stat().st_size / 2**20:.0f} MiB"
        )
        ours = min(
            (_ours(trace, "--window", "device") for _ in range(arguments.repeats)),
            key=lambda ran: ran.seconds,
        )
        theirs = _run([str(python), "-c", _THEIRS, str(trace)])
        _compare(ours, theirs)
        for share in (4, 2):
            part = directory / f"part{share}" / "rank0.pt.trace.json"
            part.parent.mkdir()
            write_trace(part, arguments.events // share)
            print(
                f"  growth: {arguments.events // share:,} events "
                f"{_words(_ours(part, '--window', 'device'))}"
            )
        for count in (arguments.events // 4, arguments.events):
            for launches in (False, True):
                database = directory / f"{count}{launches}.sqlite"
                write_export(database, count, launches=launches)
                what = "with as many launches" if launches else "alone"
                print(f"nsys export of {count:,} kernels {what}: {_words(_ours(database))}")


def _compare(ours: Ran, theirs: Ran) -> None:
    rank = json.loads(ours.output)["per_rank"][0]
    mine = [rank["idle"]["total_seconds"], rank["compute_seconds"], rank["window_seconds"]]
    equal = all(
        abs(value * 1e6 - other) < 0.01
        for value, other in zip(mine, json.loads(theirs.output), strict=False)
    )
    equal = equal and abs(round(rank["overlap"] * 100, 2) - json.loads(theirs.output)[3]) < 0.011
    print(f"  torchscale profile analyze: {_words(ours)}")
    print(f"  {HTA}: {_words(theirs)}")
    print(
        f"  {theirs.seconds / ours.seconds:.1f} times as fast, "
        f"1/{theirs.peak_bytes / ours.peak_bytes:.1f} of the memory, results "
        f"{'equal' if equal else 'DIFFER: ' + ours.output[:300] + theirs.output}"
    )


def _words(ran: Ran) -> str:
    return f"{ran.seconds:.2f} s, peak {ran.peak_bytes / 2**20:.0f} MiB"


def _ours(path: Path, *options: str) -> Ran:
    return _run(
        [sys.executable, "-m", "torchscale", "profile", "analyze", str(path), "--json", *options]
    )


def _run(argv: list[str]) -> Ran:
    began = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        out.seek(0)
        text = out.read().decode()
    if status != 0 or seconds > LIMIT_SECONDS:
        raise SystemExit(f"{argv[0]} ended with {status} after {seconds:.0f} s")
    return Ran(seconds, usage.ru_maxrss * 1024, text)


def _environment(directory: Path) -> Path:
    venv.create(directory, with_pip=True)
    python = directory / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", HTA], check=True, timeout=900)
    return python


def write_trace(path: Path, count: int) -> None:
    """Write one rank's training as torch.profiler does: operators, launches, flows, kernels, some
    all-reduces."""
    header = {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
    }
    with path.open("w") as file:
        file.write(json.dumps(header, indent=2)[:-2] + ',\n  "traceEvents": [\n  ')
        # Written line by line, because a child's peak memory starts at that of its parent.
        for number, event in enumerate(itertools.islice(_events(), count)):
            file.write((",\n  " if number else "") + json.dumps(event))
        file.write('\n  ],\n  "traceName": "rank0"\n}\n')


def _events() -> Iterator[dict[str, object]]:
    chance = random.Random(0)
    functor = "at::native::functor<float>, at::detail::Array<char*, 2>"
    names = [f"void at::native::kernel_{number}<4, {functor} >" for number in range(80)]
    host, device = 1_000_000, 1_000_100
    for link in itertools.count(1):
        length, busy = chance.randint(20, 60), chance.randint(2, 50)
        device = max(device + chance.choice((0, 1, 3)), host + 10)
        category, name, stream = "kernel", chance.choice(names), 7
        if link % 40 == 0:
            name, stream = "ncclDevKernel_AllReduce_Sum_f32(ncclDevKernelArgsStorage<4096ul>)", 20
        elif link % 12 == 0:
            category, name = "gpu_memcpy", "Memcpy DtoD (Device -> Device)"
        ids = {"External id": link, "Record function id": 0, "Ev Idx": link}
        launch = {"External id": link, "cbid": 211, "correlation": link}
        shape = {
            "grid": [98, 1, 1],
            "block": [128, 1, 1],
            "registers per thread": 32,
            "shared memory": 0,
        }
        kernel = {**launch, "device": 0, "context": 1, "stream": stream, "queued": 0, **shape}
        yield _complete("cpu_op", "aten::linear", 9, 9, host, length, ids)
        yield _complete("cpu_op", "aten::addmm", 9, 9, host + 1, length - 3, ids)
        yield _complete("cuda_runtime", "cudaLaunchKernel", 9, 9, host + 3, 5, launch)
        yield {
            "ph": "s",
            "id": link,
            "pid": 9,
            "tid": 9,
            "ts": host + 3,
            "cat": "ac2g",
            "name": "ac2g",
        }
        yield _complete(category, name, 0, stream, device, busy, kernel)
        device += busy if stream == 7 else 0
        host += length


def _complete(
    category: str, name: str, pid: int, tid: int, ts: int, length: int, args: Mapping[str, object]
) -> dict[str, object]:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": ts,
        "dur": length,
        "args": args,
    }


def write_export(path: Path, count: int, *, launches: bool) -> None:
    """Write the kernels of two ranks in random order; every hundredth is NCCL's."""
    chance = random.Random(0)
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(
            "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);"
            "CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT "
            "NULL, deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER, "
            "globalPid INTEGER, demangledName INTEGER, shortName INTEGER, gridX INTEGER, gridY "
            "INTEGER, gridZ INTEGER);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT "
            "NULL, eventClass INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER, "
            "returnValue INTEGER);"
        )
        texts = [
            *(f"kernel_{n}" for n in range(98)),
            "ncclDevKernel_AllReduce_Sum_f32",
            "cudaLaunchKernel_v7000",
        ]
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", list(enumerate(texts)))
        database.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.25.0')")
        order = list(range(count // 2))
        chance.shuffle(order)
        for rank in (1, 2):
            pid = rank << 24
            kernels = (
                (
                    n * 1000,
                    n * 1000 + 900,
                    0,
                    1,
                    7,
                    n + 1,
                    pid,
                    *((98, 98) if n % 100 == 99 else (n % 98,) * 2),
                    1,
                    1,
                    1,
                )
                for n in order
            )
            database.executemany(
                f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({','.join('?' * 12)})", kernels
            )
            if launches:
                calls = (
                    (n * 1000 - 500, n * 1000 - 400, 0, pid + rank, n + 1, 99, 0) for n in order
                )
                database.executemany(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?,?,?)", calls
                )


if __name__ == "__main__":
    main()
