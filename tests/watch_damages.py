"""``python -m tests.watch_damages --count 60``: the folder of a watched job with one damaged file of
each kind, so many times. A program that is watched into it must start and end with its exit code,
the commands that read it must say what they can, all in a bounded time, and nothing outside the
folder may change."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.watch_kills import LAUNCHER, TRAINS

BOUND_SECONDS = 30.0
"""A command on a folder of this size takes one second."""
BOUND_KB = 4 << 20
"""Of address space: what reads without end must not take the machine with it."""
CODE = 7
STARTS = f"open('started', 'w').close(); raise SystemExit({CODE})"
FILES = (
    *("ranks/*/rank.json", "ranks/*/marks-*.bin", "ranks/*/calls-*.bin", "ranks/*/lengths-*.bin"),
    *("ranks/*/shares-*.bin", "ranks/*/samples-*.bin", "ranks/*/memory-*.bin"),
    *("ranks/*/names.jsonl", "ranks/*/compiles.jsonl", "ranks/*/use.json"),
    *("ranks/*/checkpoints.json", "runs.json", "attempts/*.json", "watch.json"),
    *("experiment.json", "cells/*/cell.json", "cells/*/*/*.json", "cells/*/*/watch/*.json"),
    *("problem-1", "summary.csv", "ranks/*", "ranks", "attempts", "cells"),
)
"""Kinds of files, and the folders that they are in."""

Damage = Callable[[Path, random.Random, Path], None]
"""Damages a path; the last one is a folder outside."""


def _flip(path: Path, chance: random.Random, outside: Path) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(chance.randint(1, 8)):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def _truncate(path: Path, chance: random.Random, outside: Path) -> None:
    path.write_bytes(path.read_bytes()[: chance.randrange(path.stat().st_size)])


def _grow(path: Path, chance: random.Random, outside: Path) -> None:
    with path.open("ab") as file:
        file.write(chance.randbytes(chance.choice((1, 7, 8, 1000, 100_000))))


def _vast(path: Path, chance: random.Random, outside: Path) -> None:
    os.truncate(path, 1 << chance.randint(33, 40))  # a hole, which takes no room


def _zeros(path: Path, chance: random.Random, outside: Path) -> None:
    path.write_bytes(bytes(chance.choice((8, path.stat().st_size))))


def _ones(path: Path, chance: random.Random, outside: Path) -> None:
    path.write_bytes(b"\xff" * (path.stat().st_size // 24 * 24 or 24))


def _large_keys(path: Path, chance: random.Random, outside: Path) -> None:
    rows = [value.to_bytes(8, "little", signed=True) for value in (1 << 60, 5, 1 << 28, -1, 3, -9)]
    chance.shuffle(rows)
    with path.open("ab") as file:
        file.write(b"".join(rows))


def _number(text: str) -> Damage:
    def damage(path: Path, chance: random.Random, outside: Path) -> None:
        """One number of the file becomes another."""
        content = path.read_text(errors="replace")
        places = [place for place, sign in enumerate(content) if sign.isdigit()]
        if not places:
            path.write_text(text)
            return
        begin = end = chance.choice(places)
        while begin > 0 and content[begin - 1] in "0123456789.-+e":
            begin -= 1
        while end < len(content) and content[end] in "0123456789.-+e":
            end += 1
        path.write_text(content[:begin] + text + content[end:])

    return damage


def _deep(path: Path, chance: random.Random, outside: Path) -> None:
    path.write_text(chance.choice(("[", '{"a":')) * 100_000)


def _directory(path: Path, chance: random.Random, outside: Path) -> None:
    _remove(path)
    path.mkdir()


def _pipe(path: Path, chance: random.Random, outside: Path) -> None:
    _remove(path)
    os.mkfifo(path)


def _socket(path: Path, chance: random.Random, outside: Path) -> None:
    _remove(path)
    folder = os.open(path.parent, os.O_RDONLY)  # the name of a socket has to be short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)


def _link(target: str) -> Damage:
    def damage(path: Path, chance: random.Random, outside: Path) -> None:
        """It becomes a link; ``OUTSIDE`` is what was there, outside of the folder."""
        kept = outside / "kept" / path.name
        if target == "OUTSIDE":
            kept.parent.mkdir(exist_ok=True)
            path.rename(kept)
            if kept.is_dir():
                (kept / "0.7").mkdir(exist_ok=True)
                (kept / "0.7" / "pytorch_model.bin").write_text("weights")
                (kept / "marks-000001.bin").write_text("another's")
        else:
            _remove(path)
        path.symlink_to({"LOOP": path.name, "OUTSIDE": str(kept)}.get(target, target))

    return damage


def _odd_names(path: Path, chance: random.Random, outside: Path) -> None:
    """Beside it, names as of a rank that cannot be."""
    for name in (
        *("99999999999999999999.0", "0.99999999999999999999", "-1.-1", "٣.0", "1e9.0", "0.0.0"),
        *("marks-99999999999999999999.bin", "calls--1.bin", "000001.json", "a" * 250),
    ):
        beside = path.parent / name
        if not beside.exists():
            beside.mkdir()


DAMAGES: dict[str, Damage] = {
    "flipped bits": _flip,
    "cut": _truncate,
    "longer": _grow,
    "vast": _vast,
    "zeros": _zeros,
    "ones": _ones,
    "large keys": _large_keys,
    "a directory": _directory,
    "a pipe": _pipe,
    "a socket": _socket,
    "a link to itself": _link("LOOP"),
    "a link to outside": _link("OUTSIDE"),
    "a link to /dev/zero": _link("/dev/zero"),
    "a link to nothing": _link("/nonexistent/file"),
    "a huge number": _number("9" * 400),
    "2^63": _number("9223372036854775808"),
    "1e308": _number("1e308"),
    "-1": _number("-1"),
    "-1e300": _number("-1e300"),
    "no number": _number("NaN"),
    "deep JSON": _deep,
    "odd names beside it": _odd_names,
}
OF_FOLDERS = ("a pipe", "a socket", "a link to itself", "a link to outside", "odd names beside it")
"""Damages that a folder can have."""


@dataclass(frozen=True)
class Damaged:
    """A case: ``kind`` of file with ``damage``, in a job that has ended or whose watch was killed.

    Attributes:
        is_read: Whether the commands that read it are tried as well: with the first of a kind and
            damage.
    """

    number: int
    is_killed: bool
    kind: str
    damage: str
    is_read: bool

    def __str__(self) -> str:
        state = "killed" if self.is_killed else "ended"
        return f"{self.number}: {self.kind} of a job that was {state} is damaged: {self.damage}"


def drawn(count: int, seed: int) -> Iterator[Damaged]:
    """``count`` cases of each kind of file."""
    chance = random.Random(seed)
    number = 0
    for kind in FILES:
        is_folder = kind.rpartition("/")[2] in ("*", "ranks", "attempts", "cells")
        names = sorted(OF_FOLDERS) if is_folder else sorted(DAMAGES)
        chance.shuffle(names)
        for place in range(count):
            damage = names[place % len(names)]
            is_killed = (place + place // len(names)) % 2 == 1
            yield Damaged(number, is_killed, kind, damage, is_read=place < len(names))
            number += 1


def make_jobs(directory: Path) -> dict[bool, Path]:
    """Whether watch was killed → the folder of such a job, of two ranks.

    Raises:
        AssertionError: it cannot be made.
    """
    (directory / "train.py").write_text(TRAINS)
    made = {}
    for is_killed in (False, True):
        job = directory / ("killed" if is_killed else "ended")
        argv = [*_TORCHSCALE, "watch", "--no-live", "--keep-events", "-o", str(job), "--"]
        process = subprocess.Popen(
            [*argv, sys.executable, *LAUNCHER, "train.py"],
            cwd=directory,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        if is_killed:
            wait_for(lambda: len(list(directory.glob("killed/ranks/*/calls-*.bin"))) == 2)
            process.kill()
            wait_for(lambda: len(list(directory.glob("done-*"))) == 2)
            time.sleep(2)  # its ranks write on until they end
        code = process.wait(120)
        assert code == (-signal.SIGKILL if is_killed else 0), f"{job}: exit code {code}"
        for path in directory.glob("done-*"):
            path.unlink()
        (job / "problem-1").write_text("ValueError: a problem\n")
        made[is_killed] = job
    return made


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until it is so.

    Raises:
        AssertionError: it is not within a minute.
    """
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "not within a minute"
        time.sleep(0.05)


def problems_of(case: Damaged, jobs: dict[bool, Path], scratch: Path, seed: int) -> list[str]:
    """What is wrong with this case; ``scratch`` is used and removed. A kind of file that such a job
    does not have is made first, of text."""
    chance = random.Random(f"{seed} {case.number}")
    scratch.mkdir()
    job, outside = scratch / "job", scratch / "outside"
    shutil.copytree(jobs[case.is_killed], job)
    outside.mkdir()
    for name in ("pytorch_model.bin", "marks-000001.bin", "rank.json", "runs.json"):
        (outside / name).write_text("another's")
    DAMAGES[case.damage](_chosen(job, case.kind, chance), chance, outside)
    before = _content(outside)
    append = ("watch", "--no-live", "--append", "-o", str(job), "--", sys.executable, "-c", STARTS)
    found = []
    reading = (
        ("watch", str(job)),
        ("report", str(job)),
        ("runs", str(scratch)),
        ("compare", str(job), str(jobs[False])),
    )
    for words in (*reading, append, reading[0]) if case.is_read else (append,):
        code, said = _run(words, scratch)
        name = " ".join(words[:1] if words is not append else words[:3])
        if code is None:
            found.append(f"{name}: no end in {BOUND_SECONDS:.0f} s: {said[-150:]}")
        elif "Traceback" in said:
            found.append(f"{name}: traceback: {said.strip().splitlines()[-1][:150]}")
        if words is append and not (scratch / "started").exists():
            found.append(f"{name}: the program was not started: {said.strip()[-200:]}")
        elif words is append and code not in (CODE, None):
            found.append(f"{name}: exit code {code}: {said.strip()[-200:]}")
        if _content(outside) != before:
            found.append(f"{name}: changed what lies outside")
            before = _content(outside)
    shutil.rmtree(scratch)
    return found


_TORCHSCALE = (sys.executable, "-m", "torchscale")


def _run(words: tuple[str, ...], directory: Path) -> tuple[int | None, str]:
    """Exit code, ``None`` where it does not end, and what was said."""
    limited = ("sh", "-c", f'ulimit -v {BOUND_KB}; exec "$@"', "sh")
    process = subprocess.Popen(
        [*limited, *_TORCHSCALE, *words],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    code: int | None
    try:
        said, _ = process.communicate(timeout=BOUND_SECONDS)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        code = None
    return code, said.decode(errors="replace")


def _chosen(job: Path, kind: str, chance: random.Random) -> Path:
    paths = [path for path in sorted(job.glob(kind)) if path.is_file() or "*" not in path.name]
    if kind == "ranks/*":
        paths = sorted(job.glob(kind))
    if paths:
        return chance.choice(paths)
    path = job / kind.replace("cells/*", "cells/other").replace("*", "0", 1).replace("*", "000001")
    if path.name in ("attempts", "cells"):
        path.mkdir()
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"schema_version": 2, "number": 12345678}' + " " * 31)
    return path


def _content(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path): (
            path.stat().st_mode,
            path.stat().st_mtime_ns if path.is_file() else 0,
            path.read_bytes() if path.is_file() and path.stat().st_size < 1 << 20 else b"",
        )
        for path in sorted(folder.rglob("*"))
    }


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def main() -> int:
    """Cause ``--count`` damages of each kind of file, and print what was not right."""
    parser = argparse.ArgumentParser(prog="python -m tests.watch_damages", description=__doc__)
    parser.add_argument("--count", type=int, default=60, help="Of each kind of file.")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", type=int, help="The case of this number alone.")
    parser.add_argument("--kind", choices=FILES, action="append", help="Of file; default: all.")
    options = parser.parse_args()
    cases = [
        case
        for case in drawn(options.count, options.seed)
        if options.only in (None, case.number) and case.kind in (options.kind or FILES)
    ]
    bad = 0
    with tempfile.TemporaryDirectory(prefix="torchscale-damages-") as scratch:
        jobs = make_jobs(Path(scratch))
        for done, case in enumerate(cases, 1):
            problems = problems_of(case, jobs, Path(scratch, "case"), options.seed)
            bad += bool(problems)
            for problem in problems:
                _tell(f"{case}: {problem}")
            if done % 50 == 0:
                _tell(f"{done} of {len(cases)}: {bad} bad")
    _tell(f"{len(cases)} cases, {bad} bad, seed {options.seed}")
    return bool(bad)


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
