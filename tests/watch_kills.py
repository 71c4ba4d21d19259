"""``python -m tests.watch_kills --count 60``: kill -9 of ``torchscale watch``, of its witness, of the
launcher that it has started, or of one of the ranks, at random moments. The program must survive the
end of watch and of the witness, watch must end with the program and its exit code, and no process may
be left."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.integration.conftest import Program

TRAINS = """
import os, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
end = time.monotonic() + 1.5
for step in range(10**9):
    model(torch.ones(8)).sum().backward()
    go_on = torch.tensor([float(time.monotonic() < end)])
    dist.all_reduce(go_on, op=dist.ReduceOp.MIN)
    optimizer.step()
    if step % 50 == 0 and rank == 0:
        torch.save(model.state_dict(), "last.pt")
    if not go_on.item():
        break
dist.destroy_process_group()
open(f"done-{rank}", "w").close()
"""
LAUNCHER = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
VICTIMS = ("watch", "launcher", "rank", "witness")
LONGEST_SECONDS = 9.0
"""Until the program has ended by itself, two imports of torch included."""
ENDED_SECONDS = 60.0
RANKS_LEFT_SECONDS = 10.0
"""Ranks whose launcher was killed before they met wait for each other without watch, too."""
WITNESS = "group_witness"
CODES = {"watch": (-9,), "launcher": (137,), "rank": (1, 0)}
"""Victim → exit codes of watch: its own signal; what a shell says of a killed program; what torchrun
ends with where a rank was killed, which may have trained to its end. Else it is the program's, 0."""


@dataclass
class WatchKills:
    """Kills of watched programs, each in a folder of its own.

    Attributes:
        directory: Of all.
        killed: Victim → how often it was there to be killed.
        problems: What was not as it must be.
    """

    directory: Path
    killed: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def strike(self, number: int, chance: random.Random) -> None:
        """One program, and the kill of one of its processes."""
        victim = VICTIMS[number % len(VICTIMS)]
        after = chance.uniform(0.1, LONGEST_SECONDS)
        folder = self.directory / str(number)
        folder.mkdir()
        (folder / "train.py").write_text(TRAINS)
        program = Program(folder, f"watch-kill-{os.getpid()}-{number}")
        was_hit, code = self._run(program, victim, after, chance)
        if was_hit:
            self.killed[victim] = self.killed.get(victim, 0) + 1
        for problem in _problems(folder, victim if was_hit else "", code, program):
            self.problems.append(f"{number}: {victim} killed after {after:.2f} s: {problem}")

    @property
    def told(self) -> str:
        """What was seen, in a line."""
        places = ", ".join(f"{count} of {victim}" for victim, count in self.killed.items())
        return f"kills: {places}; {len(self.problems)} problems"

    def _run(
        self, program: Program, victim: str, after: float, chance: random.Random
    ) -> tuple[bool, int | None]:
        """Whether the victim was there, and the exit code of watch; ``None`` where it has none in
        time."""
        command = ("watch", "--no-live", "-o", "job", "--", sys.executable, *LAUNCHER, "train.py")
        with (program.directory / "said").open("w") as said:
            process = subprocess.Popen(
                program.argv(*command),
                cwd=program.directory,
                env={**program.env(), "OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
        _await_start(process)
        try:
            return False, process.wait(after)
        except subprocess.TimeoutExpired:
            was_hit = _kill(process.pid, victim, chance)
        try:
            return was_hit, process.wait(ENDED_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return was_hit, None


def _await_start(watch: subprocess.Popen[bytes]) -> None:
    """Until watch has started the program, or ended: moments count from then on."""
    deadline = time.monotonic() + ENDED_SECONDS
    while watch.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(psutil.Error):
            if _children(watch.pid)["launcher"]:
                return
        time.sleep(0.01)


def _kill(watch: int, victim: str, chance: random.Random) -> bool:
    """Whether there was one to kill."""
    try:
        children = _children(watch)
        processes = {
            "watch": [psutil.Process(watch)],
            "rank": [rank for launcher in children["launcher"] for rank in launcher.children()],
            **children,
        }[victim]
        if not processes:
            return False
        chance.choice(processes).kill()
    except psutil.Error:
        return False
    return True


def _children(watch: int) -> dict[str, list[psutil.Process]]:
    """What watch has started: its witness of signals, and the program."""
    children: dict[str, list[psutil.Process]] = {"launcher": [], "witness": []}
    for child in psutil.Process(watch).children():
        is_witness = any(WITNESS in word for word in child.cmdline())
        children["witness" if is_witness else "launcher"].append(child)
    return children


def _problems(folder: Path, victim: str, code: int | None, program: Program) -> list[str]:
    """What is wrong once all should be over; ends what is left."""
    found = []
    deadline = time.monotonic() + (RANKS_LEFT_SECONDS if victim == "launcher" else ENDED_SECONDS)
    while program.leftovers() and time.monotonic() < deadline:
        time.sleep(0.1)
    for process in program.leftovers():
        words = process.cmdline()
        if victim != "launcher" or "train.py" not in words or "watch" in words:
            found.append(f"left: {' '.join(words)[:100]}")
        process.kill()
    is_done = all((folder / f"done-{rank}").exists() for rank in range(2))
    said = (folder / "said").read_text()
    if victim in ("", "watch", "witness") and not is_done:
        found.append(f"the program did not end: {said[-300:]}")
    expected = CODES.get(victim, (0,))
    if code not in expected:
        found.append(f"exit code {code}, expected {expected[0]}: {said[-300:]}")
    if "torchscale/" in said and "Traceback" in said:
        found.append(f"traceback: {said[-300:]}")
    return found


def main() -> int:
    """Run ``--count`` kills, and print what was seen."""
    parser = argparse.ArgumentParser(prog="python -m tests.watch_kills", description=__doc__)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=7, help="Of the moments.")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="torchscale-kills-") as scratch:
        kills = WatchKills(Path(scratch))
        for number in range(options.count):
            known = len(kills.problems)
            kills.strike(number, chance)
            for problem in kills.problems[known:]:
                _tell(problem)
            if number % 10 == 9:
                _tell(f"{number + 1} of {options.count}: {kills.told}")
    _tell(f"{kills.told}, seed {options.seed}")
    return bool(kills.problems)


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
