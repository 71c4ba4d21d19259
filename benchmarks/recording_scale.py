"""Cost of analyzing recordings of very many ranks: CPU, wall time and memory by number of ranks.

::

    python benchmarks/recording_scale.py RECORDINGS               # 8 to 2,048 ranks of 3.1 MB, one core and two
    python benchmarks/recording_scale.py RECORDINGS --ranks 64 --megabytes 121 --cores 2
    python benchmarks/recording_scale.py RECORDINGS --jitter      # no two ranks are alike

RECORDINGS is an archive (or a directory) with traces of torch.profiler of one run. Its steps are
repeated until a rank's trace has the size, each at a time of its own, and its ranks are copied
under further rank numbers. ``--jitter`` also makes each copy's device spans a little longer, so
that no two ranks are alike. What is analyzed is real in all but that; the figures that come out
mean nothing, and only the cost of the command is measured: whole processes, their CPU seconds with
those of the processes that they start, and the largest sum of the memory of all of them (PSS, so
that what they share is counted once).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

LIMIT_SECONDS = 3600
SAMPLE_SECONDS = 0.2
FIT_FROM = 32
"""Below so many ranks the start of Python is a large part of the cost."""
SHIFTED = ("correlation", "External id", "Ev Idx")
"""Numbers of events that are unique in a trace."""


@dataclass(frozen=True)
class Cost:
    """What a process and those that it started took."""

    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int
    output: bytes

    def __str__(self) -> str:
        return (
            f"CPU {self.cpu_seconds:.2f} s, wall {self.wall_seconds:.2f} s, "
            f"peak {self.peak_bytes / 2**20:,.0f} MiB"
        )


def main() -> None:
    """Measure all sizes, then fit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recordings", type=Path)
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 32, 128, 512, 1024, 2048])
    parser.add_argument("--megabytes", type=float, default=3.1, help="of a rank's trace")
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--jitter", action="store_true")
    parser.add_argument("--scratch", type=Path, help="where the recordings are written")
    parser.add_argument("--options", nargs="*", default=[], help="of `profile analyze`")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as scratch:
        templates = make_templates(arguments.recordings, Path(scratch), arguments.megabytes)
        for cores in arguments.cores:
            points = []
            for ranks in arguments.ranks:
                directory = Path(scratch) / "ranks"
                size = write_ranks(templates, directory, ranks, jitter=arguments.jitter)
                argv = [sys.executable, "-m", "torchscale", "profile", "analyze", str(directory)]
                argv += ["--json", *arguments.options]
                costs = [measure(argv, cores) for _ in range(arguments.repeats)]
                cost = min(costs, key=lambda one: one.cpu_seconds)
                points.append((ranks, cost.cpu_seconds))
                print(
                    f"{ranks:>5} ranks, {size / 1e6:,.0f} MB, {cores} core{'s' * (cores > 1)}: "
                    f"{cost}",
                    flush=True,
                )
                shutil.rmtree(directory)
            fitted = [point for point in points if point[0] >= FIT_FROM]
            if len(fitted) > 1:
                print(
                    f"      exponent from {FIT_FROM} ranks on: {exponent(fitted):.3f}", flush=True
                )


def exponent(points: list[tuple[int, float]]) -> float:
    """The slope of log(cost) over log(ranks), by least squares."""
    fit = statistics.linear_regression(
        [math.log(ranks) for ranks, _ in points], [math.log(cost) for _, cost in points]
    )
    return fit.slope


@dataclass(frozen=True)
class Template:
    """The trace of a recorded rank: all but its events, the events, and how often to repeat
    them."""

    header: dict[str, Any]
    events: list[dict[str, Any]]
    repeats: int


def make_templates(recordings: Path, scratch: Path, megabytes: float) -> list[Template]:
    """The recorded ranks, each with as many steps as make its trace so large."""
    source = recordings
    if recordings.is_file():
        source = scratch / "unpacked"
        with tarfile.open(recordings) as archive:
            archive.extractall(source, filter="data")
    templates = []
    for path in sorted(source.rglob("*.json")):
        trace = json.loads(path.read_text())
        size = len(json.dumps(trace))
        repeats = max(1, round(megabytes * 1e6 / size))
        header = {name: value for name, value in trace.items() if name not in _OWN_KEYS}
        templates.append(Template(header, trace["traceEvents"], repeats))
    return templates


_OWN_KEYS = ("traceEvents", "traceName")


def repeated(events: list[dict[str, Any]], times: int) -> list[dict[str, Any]]:
    """The events so many times, one after the other."""
    timed = [event for event in events if "ts" in event and event.get("cat") != "Trace"]
    begin = min(event["ts"] for event in timed)
    length = max(event["ts"] + event.get("dur", 0) for event in timed) - begin + 100
    numbers = [
        int(event["args"][name])
        for event in events
        for name in SHIFTED
        if name in event.get("args", {})
    ]
    stride = max(numbers, default=0) + 1
    copies = []
    for number in range(times):
        for event in events:
            if "ts" not in event and number:
                continue
            copy = dict(event)
            if "ts" in copy:
                copy["ts"] += number * length
            if "id" in copy and isinstance(copy["id"], int):
                copy["id"] += number * stride
            if "args" in copy:
                copy["args"] = {
                    name: value + number * stride if name in SHIFTED else value
                    for name, value in copy["args"].items()
                }
            step = re.fullmatch(r"ProfilerStep#(\d+)", copy.get("name", ""))
            if step is not None:
                copy["name"] = f"ProfilerStep#{int(step[1]) + number}"
            copies.append(copy)
    return copies


def write_ranks(templates: list[Template], directory: Path, ranks: int, *, jitter: bool) -> int:
    """Write the traces of so many ranks; returns their size in bytes."""
    directory.mkdir()
    size = 0
    # One after the other: the events of large ones take gigabytes as objects.
    for number, template in enumerate(templates):
        events = repeated(template.events, template.repeats)
        body = json.dumps(events).encode()
        for rank in range(number, ranks, len(templates)):
            if jitter:
                body = json.dumps(jittered(events, rank)).encode()
            info = {"backend": "nccl", "rank": rank, "world_size": ranks}
            head = json.dumps({**template.header, "distributedInfo": info})[:-1].encode()
            path = directory / f"rank{rank:05d}.pt.trace.json"
            path.write_bytes(head + b', "traceEvents": ' + body + b"}")
            size += path.stat().st_size
    return size


def jittered(events: list[dict[str, Any]], rank: int) -> list[dict[str, Any]]:
    """The events with device spans up to 2 µs longer, by chance."""
    chance = random.Random(rank)
    return [
        {**event, "dur": event["dur"] + chance.random() * 2}
        if event.get("cat") == "kernel"
        else event
        for event in events
    ]


def measure(argv: list[str], cores: int) -> Cost:
    """Run a command on so many cores."""
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    before = os.times()
    began = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            argv,
            stdout=out,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: os.sched_setaffinity(0, allowed),  # noqa: PLW1509 - one thread here
        )
        watcher = _MemoryWatcher(process.pid)
        watcher.start()
        code = process.wait(timeout=LIMIT_SECONDS)
        seconds = time.perf_counter() - began
        watcher.stop()
        after = os.times()
        out.seek(0)
        output = out.read()
    if code != 0:
        raise SystemExit(f"{' '.join(argv)} ended with {code}")
    spent = after.children_user + after.children_system
    spent -= before.children_user + before.children_system
    return Cost(seconds, spent, watcher.peak_bytes, output)


class _MemoryWatcher(threading.Thread):
    """The largest memory of a process and its descendants, all together."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._process, self._ended = psutil.Process(pid), threading.Event()
        self.peak_bytes = 0

    def run(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            total = 0
            try:
                for process in [self._process, *self._process.children(recursive=True)]:
                    total += process.memory_full_info().pss
            except psutil.Error:
                continue
            self.peak_bytes = max(self.peak_bytes, total)

    def stop(self) -> None:
        """End the watch."""
        self._ended.set()
        self.join()


if __name__ == "__main__":
    main()
