"""How often the autopsy of a hang names the right rank and the right collective, by injecting
causes into real ranks.

::

    python benchmarks/hang_autopsy.py
    python benchmarks/hang_autopsy.py --ranks 2 --cause skip --cause loader --json

Every case starts gloo ranks that train in a loop (load, broadcast, all-reduce, all-gather), causes
one fault on one rank in one step, waits until no rank makes progress, asks the ranks, and compares
the verdict with what was injected. Cases: each cause × two and four ranks × default group and
sub-groups × each rank. The ranks are forked from one process that has imported torch, so that a
case takes about a second.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psutil
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from torchscale.features.watch.hang.evidence import ask_ranks, hang_autopsy
from torchscale.schema.launch.hang import Autopsy, HangCause
from torchscale.schema.profiles.finding import Confidence
from torchscale.worker.hang import answering_requests, write_dump

FAULT_STEP = 6
"""The loop has been round often enough for its history to say what comes next; with ``--step 1`` it
has not."""
STEPS = 30
ELEMENTS = 1024
HANG_SECONDS = 120.0
"""The longest that an injected hang lasts: the autopsy comes within seconds."""
START_SECONDS = 60.0
QUIET_SECONDS = 0.8
"""Without progress of any rank; a step takes some milliseconds."""
POLL_SECONDS = 0.05

MISMATCHES = (HangCause.COLLECTIVE_MISMATCH, HangCause.ORDER)
CAUSES: dict[str, tuple[HangCause, ...]] = {
    "sleep": (HangCause.RANK_MISSING,),
    "skip": MISMATCHES,
    "other": MISMATCHES,
    "size": (HangCause.SIZE_MISMATCH,),
    "dtype": (HangCause.DTYPE_MISMATCH,),
    "order": MISMATCHES,
    "raise": MISMATCHES,
    "loader": (HangCause.LOADER,),
    "stop": (HangCause.RANK_STOPPED,),
    "gone": (HangCause.RANK_GONE,),
    "teardown": (HangCause.TEARDOWN,),
}
"""Injected cause → verdicts that are right. A skipped collective meets the next one, as do swapped
ones."""
COLLECTIVES_A_STEP = 3
REDUCE = 2
"""Place of the all-reduce in a step, from 1. Faults strike there, but for those before the first
collective."""


@dataclass(frozen=True)
class Case:
    """One injection. ``groups``: ``default``, or ``sub`` for groups of two ranks beside the default
    group."""

    cause: str
    world_size: int
    groups: str
    rank: int
    step: int = FAULT_STEP

    @property
    def sequence(self) -> int:
        """Number of the collective that cannot complete."""
        before_first = self.cause in ("loader", "teardown")
        return COLLECTIVES_A_STEP * self.step + (1 if before_first else REDUCE)

    @property
    def label(self) -> str:
        """For one line."""
        return f"{self.cause}, {self.world_size} ranks, {self.groups} group, rank {self.rank}"


@dataclass(frozen=True)
class Result:
    """What a case gave. ``seconds``: from the request to the verdict."""

    case: Case
    autopsy: Autopsy
    seconds: float

    @property
    def right_rank(self) -> bool:
        """The faulty rank, and no other."""
        return self.autopsy.ranks == (self.case.rank,)

    @property
    def among_several(self) -> bool:
        """The faulty rank and others, for want of evidence."""
        return self.case.rank in self.autopsy.ranks and not self.right_rank

    @property
    def right_collective(self) -> bool:
        """By its number and its group."""
        collective = self.autopsy.collective
        expected = "" if self.case.groups == "default" else "pairs"
        if collective is None or collective.sequence != self.case.sequence:
            return False
        return bool(collective.group) == bool(expected)

    @property
    def right_cause(self) -> bool:
        """One of the kinds that describe the injection."""
        return self.autopsy.cause in CAUSES[self.case.cause]

    @property
    def wrong_with_confidence(self) -> bool:
        """A wrong rank with high confidence: what must not happen."""
        return not self.right_rank and self.autopsy.confidence is Confidence.HIGH


class Rows(Dataset[torch.Tensor]):
    """A dataset that stops giving rows."""

    def __init__(self, stuck_at: int | None) -> None:
        self.stuck_at = stuck_at

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.read(index)

    def read(self, index: int) -> torch.Tensor:
        """A row; never, at the step of the fault."""
        if index == self.stuck_at:
            hang()
        return torch.ones(ELEMENTS)


def hang() -> None:
    """Longer than any case takes."""
    time.sleep(HANG_SECONDS)


def train(case: Case, rank: int, group: dist.ProcessGroup | None, progress: Path) -> None:
    """A rank's loop, with the fault of ``case`` if it is the rank's."""
    here = case.cause if rank == case.rank else ""
    root = rank if group is None else rank // 2 * 2
    root = 0 if group is None else root
    loader = DataLoader(Rows(case.step if here == "loader" else None), batch_size=None)
    for step, row in enumerate(loader):
        progress.write_text(str(step))
        fault = here if step == case.step else ""
        if fault == "teardown":
            return
        with contextlib.suppress(ValueError):
            one_step(row + step, root, group, fault)
        if group is not None:
            dist.all_reduce(torch.ones(1))


def one_step(row: torch.Tensor, root: int, group: dist.ProcessGroup | None, fault: str) -> None:
    """Broadcast, all-reduce, all-gather."""
    dist.broadcast(row[:64].clone(), src=root, group=group)
    if fault == "sleep":
        hang()
    if fault == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if fault == "gone":
        os._exit(0)
    if fault == "raise":
        raise ValueError("injected")
    if fault == "order":
        gather(group)
    gradients = row.clone()
    if fault == "size":
        gradients = gradients[: ELEMENTS // 2].clone()
    if fault == "dtype":
        gradients = gradients.double()
    if fault == "other":
        dist.reduce(gradients, dst=root, group=group)
    elif fault != "skip":
        dist.all_reduce(gradients, group=group)
    if fault != "order":
        gather(group)


def gather(group: dist.ProcessGroup | None) -> None:
    """All-gather of eight elements."""
    parts = [torch.empty(8) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, torch.ones(8), group=group)


def as_rank(case: Case, rank: int, port: int, directory: Path) -> None:
    """Run one rank to its hang. Does not return."""
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(case.world_size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    try:
        with answering_requests(directory, rank, 0.0, poll_seconds=POLL_SECONDS):
            dist.init_process_group("gloo", timeout=timedelta(seconds=HANG_SECONDS))
            pairs = [[first, first + 1] for first in range(0, case.world_size, 2)]
            groups = [dist.new_group(pair) for pair in pairs] if case.groups == "sub" else []
            train(case, rank, groups[rank // 2] if groups else None, directory / f"progress-{rank}")
            # As Python does at the end of a program, with a thread that does not end.
            threading.Thread(target=hang, daemon=False).start()
            threading._shutdown()  # type: ignore[attr-defined]
    except RuntimeError as error:
        write_dump(directory, rank, 0.0, error)
        hang()


@contextlib.contextmanager
def ranks_of(case: Case, directory: Path) -> Iterator[dict[int, int]]:
    """Rank → pid of forked ranks, which are killed at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    pids: dict[int, int] = {}
    try:
        for rank in range(case.world_size):
            pid = os.fork()
            if pid == 0:
                try:
                    with (directory / f"rank-{rank}.stderr.log").open("w") as log:
                        os.dup2(log.fileno(), 2)
                        as_rank(case, rank, port, directory)
                finally:
                    os._exit(1)
            pids[rank] = pid
        yield pids
    finally:
        for pid in pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in pids.values():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def wait_until_stuck(case: Case, directory: Path) -> None:
    """Until every rank has reached the step of the fault and none moves any more."""
    deadline = time.monotonic() + START_SECONDS
    last, since = "", time.monotonic()
    while time.monotonic() < deadline:
        paths = [directory / f"progress-{rank}" for rank in range(case.world_size)]
        state = " ".join(path.read_text() if path.exists() else "-" for path in paths)
        if state != last:
            last, since = state, time.monotonic()
        reached = all(step.isdigit() and int(step) >= case.step - 1 for step in state.split())
        if reached and time.monotonic() - since > QUIET_SECONDS:
            return
        time.sleep(POLL_SECONDS)
    raise TimeoutError(f"{case.label}: no hang after {START_SECONDS:g} s; progress {last}")


def run_case(case: Case) -> Result:
    """Inject, wait, ask, judge."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with ranks_of(case, directory) as pids:
            wait_until_stuck(case, directory)
            started = time.monotonic()
            ask_ranks(directory, {rank: psutil.Process(pid) for rank, pid in pids.items()})
            autopsy = hang_autopsy(directory, case.world_size)
            return Result(case, autopsy, time.monotonic() - started)


def cases(
    causes: list[str], sizes: list[int], groups: list[str], ranks: list[int] | None, step: int
) -> list[Case]:
    """Every combination."""
    return [
        Case(cause, size, group, rank, step)
        for cause in causes
        for size in sizes
        for group in groups
        for rank in (range(size) if ranks is None else ranks)
        if rank < size
    ]


def print_table(results: list[Result]) -> None:
    """Right and wrong by cause, then each case that is not right."""
    print(
        f"{'injected':<10}{'cases':>6}{'rank':>6}{'several':>9}{'collective':>12}{'cause':>7}"
        f"{'wrong, high':>13}{'slowest':>9}"
    )
    for cause in [*CAUSES, "all"]:
        chosen = [result for result in results if cause in (result.case.cause, "all")]
        if chosen:
            checks = (
                "right_rank",
                "among_several",
                "right_collective",
                "right_cause",
                "wrong_with_confidence",
            )
            rank, several, collective, kind, wrong = (
                sum(getattr(result, name) for result in chosen) for name in checks
            )
            slowest = max(result.seconds for result in chosen)
            print(
                f"{cause:<10}{len(chosen):>6}{rank:>6}{several:>9}{collective:>12}{kind:>7}{wrong:>13}{slowest:>7.1f} s"
            )
    confidences = Counter(result.autopsy.confidence.value for result in results)
    print(
        "confidence:", ", ".join(f"{name} {number}" for name, number in confidences.most_common())
    )
    for result in results:
        if not (result.right_rank and result.right_collective and result.right_cause):
            print(f"- {result.case.label} [{result.autopsy.cause.value}]: {result.autopsy.summary}")


def main() -> int:
    """Run the cases; 1 if a wrong rank was named with high confidence, or fewer than 95 % are
    right."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cause", action="append", choices=sorted(CAUSES), help="may be given several times"
    )
    parser.add_argument("--ranks", action="append", type=int, choices=(2, 4))
    parser.add_argument("--groups", action="append", choices=("default", "sub"))
    parser.add_argument("--rank", action="append", type=int, help="the faulty rank; all by default")
    parser.add_argument("--step", type=int, default=FAULT_STEP, help="step of the fault, from 0")
    parser.add_argument("--json", action="store_true", help="a line for each case")
    arguments = parser.parse_args()
    chosen = cases(
        arguments.cause or list(CAUSES),
        arguments.ranks or [2, 4],
        arguments.groups or ["default", "sub"],
        arguments.rank,
        arguments.step,
    )
    results = []
    for case in chosen:
        result = run_case(case)
        results.append(result)
        if arguments.json:
            checks = {
                name: getattr(result, name)
                for name in ("right_rank", "right_collective", "right_cause")
            }
            verdict = result.autopsy.model_dump(mode="json")
            print(
                json.dumps({**vars(case), **checks, "seconds": result.seconds, "autopsy": verdict}),
                flush=True,
            )
    if not arguments.json:
        print_table(results)
    right = sum(result.right_rank and result.right_collective for result in results)
    return int(
        any(result.wrong_with_confidence for result in results) or right < 0.95 * len(results)
    )


if __name__ == "__main__":
    sys.exit(main())
