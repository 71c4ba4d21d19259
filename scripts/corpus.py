"""Analyze every recording and dump in directories, one row each: what is read, and what is refused.

::

    python scripts/corpus.py DIR …                # make corpus DIR=…; a table in Markdown
    python scripts/corpus.py --json DIR > before  # a JSON object a line; --csv for CSV
    python scripts/corpus.py --seconds 60 --memory 4 DIR

Nothing is fetched. ``torchscale profile analyze`` and ``torchscale autopsy`` run as a user runs
them, a process a row with limits for time and memory, so that no file ends the run or takes the
machine. Recordings of one folder whose names differ in numbers alone are taken as the ranks of one
job; where they are refused together, each follows alone. Exit code 1 if a command failed by itself:
a traceback, a signal, a limit. To refuse a file is no failure.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

PROFILER, EXPORT, REPORT, ARCHIVE = "torch.profiler", "nsys export", "nsys report", "archive"
DUMPS, LOGS, UNKNOWN = "flight recorder", "watchdog logs", "unknown"
READ, REFUSED, FAILED = "read", "refused", "failed"
SHARES = {
    "compute": "compute_seconds",
    "exposed": "exposed_communication_seconds",
    "stall": "sync_stall_seconds",
    "transfer": "transfer_seconds",
    "copies": "exposed_copy_seconds",
    "idle": "idle",
}
"""Column → field of a rank in the analysis."""
_TOGETHER = (PROFILER, EXPORT)
"""Kinds of which the files of one folder can be the ranks of one job."""
_BY_FOLDER = (DUMPS, LOGS)
"""Kinds that ``autopsy`` takes as a folder."""
_PEEK_BYTES = 1 << 20
"""What a recording is shows in its beginning; the header of a large job is longer, and its
suffix tells."""
_SUFFIXES = (".json", ".json.gz", ".sqlite")
"""What ``profile analyze`` takes: a file with such a name is tried whatever it holds."""
_BY_NAME = {REPORT: (".nsys-rep",), ARCHIVE: (".tar", ".tar.gz", ".tgz")}
"""Kinds that the name tells."""
_OURS = (".perfetto.json.gz", "analysis.json")
"""Files that torchscale wrote beside recordings."""
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[|"ph"\s*:')
_RANKED = re.compile(r"(?:^|\D)\d{1,6}(?:\.(?:json|pkl|pickle))?$")
"""The name of a dump: torch appends the rank to a prefix."""
_DUMP = re.compile(rb'^\s*\{.*"(?:entries|pg_config|nccl_version)"\s*:', re.DOTALL)
_PICKLE = re.compile(rb"^\x80[\x02-\x05]")
_WATCHDOG = re.compile(rb"Watchdog caught collective operation timeout|ProcessGroup\w+\.cpp")
_LOG_SUFFIXES = (".log", ".txt", ".out", ".err")
_OF_ATTEMPT = re.compile(r"attempt_\d+|\d{1,6}")
"""Folders that torchrun's --log-dir has for attempts and ranks."""
_SECONDS, _GIGABYTES = 120.0, 8.0
"""Limits of a row. A core reads some 80 MB a second, and the largest recordings have a few
gigabytes."""
_LONGEST_CELL = 160
"""Characters of a text in the table; --json and --csv have all of it."""
_LAST_BYTES = 1 << 14
_MOST_OUTPUT = 256 << 20
"""Bytes of an analysis that are read: that of a thousand ranks has seven million."""


@dataclass(frozen=True)
class Item:
    """What is analyzed at once: the name of its row, its kind, its files (of dumps and logs, their
    folder)."""

    name: str
    kind: str
    paths: tuple[Path, ...]
    files: int

    def command(self) -> list[str]:
        """Arguments of ``torchscale``."""
        if self.kind in _BY_FOLDER:
            return ["autopsy", "--log-dir", str(self.paths[0]), "--json"]
        return ["profile", "analyze", *map(str, self.paths), "--json"]


@dataclass(frozen=True)
class Row:
    """What became of an item. ``None`` stands for what is not known; shares are percent of the
    window, over all ranks."""

    name: str
    kind: str
    files: int
    state: str = FAILED
    reason: str = ""
    ranks: int | None = None
    steps: int | None = None
    verdict: str = ""
    compute: float | None = None
    exposed: float | None = None
    stall: float | None = None
    transfer: float | None = None
    copies: float | None = None
    idle: float | None = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


COLUMNS = tuple(field.name for field in fields(Row))


@dataclass(frozen=True)
class Limits:
    """What a row may take."""

    seconds: float = _SECONDS
    gigabytes: float = _GIGABYTES


def kind_of(path: Path) -> str | None:
    """The kind of a file by its name and beginning; ``None`` for one that nobody takes for a
    recording or a dump."""
    name = path.name
    if name.endswith(_OURS):
        return None
    for kind, suffixes in _BY_NAME.items():
        if name.endswith(suffixes):
            return kind
    beginning = beginning_of(path)
    if beginning.startswith(b"SQLite format 3\0"):
        return EXPORT
    is_ranked = _RANKED.search(name) is not None
    if is_ranked and (_PICKLE.match(beginning) or _DUMP.match(beginning)):
        return DUMPS
    if beginning.lstrip()[:1] in (b"{", b"[") and _EVENTS.search(beginning):
        return PROFILER
    if name.endswith(_SUFFIXES):
        return UNKNOWN
    if name.endswith(_LOG_SUFFIXES) and _WATCHDOG.search(beginning):
        return LOGS
    return None


def beginning_of(path: Path) -> bytes:
    """The first bytes of a file, unpacked; empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(_PEEK_BYTES)
    except OSError:
        return b""
    if not path.name.endswith(".gz"):
        return data
    try:
        return zlib.decompressobj(wbits=31).decompress(data, _PEEK_BYTES)
    except zlib.error:
        return b""


def find_items(directories: Iterable[Path]) -> tuple[list[Item], int]:
    """What is in the directories, by name, and how many other files are there. Links are not
    followed."""
    items: list[Item] = []
    others = 0
    for top in map(Path.resolve, directories):
        if top.is_file():
            items.append(Item(shown(top.name), kind_of(top) or UNKNOWN, (top,), 1))
            continue
        found: dict[tuple[Path, str, str], list[Path]] = defaultdict(list)
        for path in regular_files(top):
            kind = kind_of(path)
            if kind is None:
                others += 1
            else:
                found[place_of(path, kind, top), kind, job_of(path, kind)].append(path)
        for (folder, kind, _), paths in sorted(found.items()):
            items += items_of(top, folder, kind, paths)
    return items, others


def regular_files(top: Path) -> Iterator[Path]:
    """All regular files below a directory, sorted."""
    for place, folders, names in os.walk(top):
        folders.sort()
        for name in sorted(names):
            path = Path(place, name)
            if path.is_file() and not path.is_symlink():
                yield path


def place_of(path: Path, kind: str, top: Path) -> Path:
    """The folder that a file is analyzed with: of logs that of the job, above those of its attempts
    and ranks."""
    folder = path.parent
    while kind == LOGS and folder != top and _OF_ATTEMPT.fullmatch(folder.name):
        folder = folder.parent
    return folder


def job_of(path: Path, kind: str) -> str:
    """What the names of a job's files have in common: all but numbers. Those that TensorBoard's handler
    writes begin with names of hosts, and those of dumps say nothing of the job."""
    if kind not in _TOGETHER or ".pt.trace.json" in path.name:
        return ""
    return re.sub(r"\d+", "", path.name)


def items_of(top: Path, folder: Path, kind: str, paths: list[Path]) -> list[Item]:
    """Files of one kind and folder: together where they can belong together, else each alone."""
    name = shown(f"{top.name}/{folder.relative_to(top)}".removesuffix("/."))
    if kind in _BY_FOLDER:
        return [Item(name, kind, (folder,), len(paths))]
    if kind in _TOGETHER and len(paths) > 1:
        return [Item(f"{name}/ ({len(paths)} files)", kind, tuple(paths), len(paths))]
    return [Item(f"{name}/{shown(path.name)}", kind, (path,), 1) for path in paths]


def shown(name: str) -> str:
    """A name that can be printed, whatever bytes it has."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def each_alone(item: Item) -> list[Item]:
    """The files of an item as items."""
    name = item.name.partition("/ (")[0]
    return [
        replace(item, name=f"{name}/{shown(path.name)}", paths=(path,), files=1)
        for path in item.paths
    ]


def rows_of(items: Iterable[Item], limits: Limits) -> Iterator[Row]:
    """A row for each item, and where files are refused together for each of them."""
    for item in items:
        row = analyze(item, limits)
        yield row
        if row.state != READ and len(item.paths) > 1:
            yield from rows_of(each_alone(item), limits)


def analyze(item: Item, limits: Limits) -> Row:
    """Run ``torchscale`` on an item."""
    row = Row(item.name, item.kind, item.files)
    began = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            code = run_bounded(item.command(), out, err, limits)
        except OSError as error:  # more files than a command can be given
            return replace(row, reason=f"not started: {error.strerror}")
        row = replace(row, seconds=round(time.monotonic() - began, 2))
        errors = last_text(err)
        if code == 0:
            return row_of_result(row, out)
    reason = refusal_in(errors)
    if code is None:
        return replace(row, reason=f"not done after {limits.seconds:g} s")
    if "MemoryError" in errors:
        return replace(row, reason=f"more than {limits.gigabytes:g} GB of memory")
    if code < 0:
        return replace(row, reason=f"killed by {signal.Signals(-code).name}")
    if reason and "Traceback" not in errors:
        return replace(row, state=REFUSED, reason=reason)
    return replace(row, reason=f"exit code {code}: {last_line(errors)}")


def run_bounded(arguments: list[str], out: IO[bytes], err: IO[bytes], limits: Limits) -> int | None:
    """Exit code of ``torchscale`` with these arguments; ``None`` where it was ended for its time."""
    # Libraries that reserve memory for a thread of each core would reach the limit on large machines.
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "torchscale", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        env=env,
        start_new_session=True,
        preexec_fn=partial(limit_memory, limits.gigabytes),  # noqa: PLW1509 - one plain call
    )
    try:
        return process.wait(timeout=limits.seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        # What it started and left, too; also on Ctrl-C, which does not reach another session.
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def limit_memory(gigabytes: float) -> None:
    """Limit the address space of this process and of those that it starts, each."""
    size = int(gigabytes * (1 << 30))
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def row_of_result(row: Row, out: IO[bytes]) -> Row:
    """A row with what ``torchscale`` printed."""
    out.seek(0)
    try:
        content = json.loads(out.read(_MOST_OUTPUT))
        if row.kind in _BY_FOLDER:
            return of_autopsy(row, content)
        return of_analysis(row, content)
    except (ValueError, KeyError, TypeError) as error:
        return replace(row, reason=f"its JSON is not as documented: {type(error).__name__} {error}")


def of_analysis(row: Row, analysis: dict[str, Any]) -> Row:
    """A row with figures of an analysis: shares over all ranks, of those that have a figure for
    each."""
    ranks = analysis["per_rank"]
    window = sum(rank["window_seconds"] for rank in ranks)
    findings = analysis["findings"]
    verdict = "no finding"
    if findings:
        first = findings[0]
        verdict = f"{first['kind']} ({first['confidence']}): {first['summary']}"
    shares: dict[str, Any] = {
        column: percent([seconds_of(rank, key) for rank in ranks], window)
        for column, key in SHARES.items()
    }
    return replace(
        row,
        state=READ,
        ranks=len(ranks),
        steps=analysis["window"]["steps"],
        verdict=verdict,
        notes=(*analysis["window"]["reasons"], *analysis["notes"]),
        **shares,
    )


def seconds_of(rank: dict[str, Any], key: str) -> float | None:
    """A figure of a rank; of idle time all of it."""
    value: Any = rank[key]
    if isinstance(value, dict):
        value = value["total_seconds"]
    return None if value is None else float(value)


def percent(values: Sequence[float | None], whole: float) -> float | None:
    """The sum of values in percent of the whole; ``None`` where one is missing."""
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not whole > 0:
        return None
    return round(sum(known) / whole * 100, 2)


def of_autopsy(row: Row, autopsy: dict[str, Any]) -> Row:
    """A row with the verdict of an autopsy."""
    verdict = f"{autopsy['cause']} ({autopsy['confidence']}): {autopsy['summary']}"
    return replace(row, state=READ, ranks=len(autopsy["positions"]), verdict=verdict)


def last_text(file: IO[bytes]) -> str:
    """The end of what was printed."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _LAST_BYTES))
    return file.read().decode("utf-8", "replace")


def refusal_in(errors: str) -> str:
    """The message of an error that ``torchscale`` tells; empty for none."""
    match = re.search(r"^error: (.*?)(?=^hint: |\Z)", errors, re.MULTILINE | re.DOTALL)
    if match is None:
        return ""
    return " ".join(match[1].split())


def last_line(text: str) -> str:
    """The last line that holds something."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "no message")


def write_markdown(rows: Iterable[Row], write: Callable[[str], object]) -> None:
    """A table, a row as soon as it is known."""
    shown = tuple(name for name in COLUMNS if name not in ("reason", "files", "notes"))
    write(f"| {' | '.join(shown)} |\n|{'---|' * len(shown)}\n")
    for row in rows:
        said = replace(row, verdict=row.verdict or row.reason)
        write(f"| {' | '.join(cell(getattr(said, name)) for name in shown)} |\n")


def cell(value: object) -> str:
    """A value in a cell of a table."""
    if value is None:
        return "–"
    text = " ".join(str(value).split()).replace("|", "\\|")
    if len(text) > _LONGEST_CELL:
        return f"{text[:_LONGEST_CELL]}…"
    return text


def write_json(rows: Iterable[Row], write: Callable[[str], object]) -> None:
    """A JSON object a line."""
    for row in rows:
        write(f"{json.dumps(asdict(row))}\n")


def write_csv(rows: Iterable[Row], write: Callable[[str], object]) -> None:
    """Comma-separated values with a header."""
    write(csv_line(COLUMNS))
    for row in rows:
        values = asdict(row)
        write(
            csv_line([values[name] for name in COLUMNS[:-2]] + ["; ".join(row.notes), row.seconds])
        )


def csv_line(values: Iterable[object]) -> str:
    """A line of CSV; nothing stands for ``None``."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(
        ["" if value is None else value for value in values]
    )
    return line.getvalue()


def printed(text: str) -> None:
    """Print a part of the output at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    """Exit code 0, or 1 where a command failed by itself, or 2 where there is nothing to analyze."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="+", type=Path, metavar="DIR")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="limit of a row")
    parser.add_argument("--memory", type=float, default=_GIGABYTES, help="limit of a row in GB")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_const", const=write_json, dest="writer")
    form.add_argument("--csv", action="store_const", const=write_csv, dest="writer")
    parser.set_defaults(writer=write_markdown)
    options = parser.parse_args(arguments)
    missing = [path for path in options.paths if not path.exists()]
    if missing:
        parser.error(f"{missing[0]}: no such file or directory")
    items, others = find_items(options.paths)
    if not items:
        parser.error(f"{options.paths[0]}: no recording and no dump in it")
    counts: dict[str, int] = dict.fromkeys((READ, REFUSED, FAILED), 0)
    options.writer(
        counted(rows_of(items, Limits(options.seconds, options.memory)), counts), printed
    )
    told = ", ".join(f"{count} {state}" for state, count in counts.items())
    sys.stderr.write(f"{told}; {others} other files left out\n")
    return int(counts[FAILED] > 0)


def counted(rows: Iterable[Row], counts: dict[str, int]) -> Iterator[Row]:
    """The rows; their states are counted."""
    for row in rows:
        counts[row.state] += 1
        yield row


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
