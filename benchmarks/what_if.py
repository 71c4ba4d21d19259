"""Is a step without its fault what the replay of the recording with it predicts? Real gloo ranks,
one fault per run.

::

    python benchmarks/what_if.py                       # all cases, about ten minutes
    python benchmarks/what_if.py --only slow_rank --ranks 2
    python benchmarks/what_if.py --short               # a few cases of two ranks, one minute
    python benchmarks/what_if.py --markdown table.md

In one recording blocks of steps with the fault alternate with blocks without it. From each block
with the fault alone the step without it is predicted; the median of the predictions is compared
with the median step of the blocks without. A link cannot change within a run: recordings over both
alternate. The compute of the model is a timed operator (see ``scenario_net.py``), because ranks
that share cores would slow each other. Links are those of network namespaces, limited in rate; they
need root.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import diagnosis
import numpy as np
from diagnosis import NOBODY, Scenario
from numpy.typing import NDArray

from torchscale.errors import TorchscaleError
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.features.trace.analyze import analyze_files
from torchscale.features.trace.readers.recordings import find_recordings, read_recordings
from torchscale.features.trace.span import Steps, Trace
from torchscale.launch.torchrun import worker_environment
from torchscale.schema.launch.task import LaunchTask
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.profiles.what_if import Change
from torchscale.util.processes.bounded import run_bounded
from torchscale.util.processes.subprocesses import adopt_orphans

BLOCK = 20
"""Steps, of which the first and the last are left out: a rank may be a step ahead of another."""
RECORDED = 8 * BLOCK + 1
SEPARATE = 3 * BLOCK
"""Steps of a recording with one setting throughout."""
WIDTH = 128
"""Of the layers: their gradients are small, so that cores that ranks share matter little."""
FAULT = "scenario::fault"
RATES = ("100mbit", "200mbit"), ("200mbit", "400mbit")
"""Of the slow link, and of one twice as fast."""
REPEATS = 2
"""Of recordings with and without, where they alternate."""
LIMIT_SECONDS = 600


@dataclass(frozen=True)
class Case:
    """A run with a fault, and the change that takes the fault away."""

    faulty: Scenario
    change: Change
    rank: int = NOBODY
    rates: tuple[str, str] | None = None

    @property
    def name(self) -> str:
        """For output."""
        if self.rates is not None:
            return f"link of {self.rates[0]}, twice as fast, {self.faulty.ranks} ranks"
        return self.faulty.name


@dataclass
class Outcome:
    """What was predicted from the recording with the fault, and what was measured, in seconds."""

    name: str
    change: str
    with_fault: float = 0.0
    predicted: float = 0.0
    without: float = 0.0
    replay_error: float = 0.0
    problem: str = ""

    @property
    def error(self) -> float:
        """Of the prediction, as a share of what was measured."""
        return self.predicted / self.without - 1


def cases(sizes: Sequence[int]) -> list[Case]:
    """All cases for these numbers of ranks."""
    chosen = []
    for n in sizes:
        shape = Scenario("none", None, n, recorded=RECORDED, blocks=BLOCK, layers=2, width=WIDTH)
        slow = [
            replace(shape, cause="slow_rank", rank=rank, extra=extra)
            for rank, extra in (
                (0, 0.004),
                (n - 1, 0.004),
                (0, 0.012),
                (n - 1, 0.012),
                (n - 1, 0.03),
            )
        ]
        slow.append(replace(shape, cause="slow_loader", rank=n - 1, extra=0.01))
        chosen += [Case(fault, Change.RANK_LIKE_PEERS, fault.rank) for fault in slow]
        for extra in (0.006, 0.015):
            chosen.append(
                Case(replace(shape, cause="slow_loader", extra=extra), Change.NO_LOADER_WAIT)
            )
        chosen.append(Case(replace(shape, cause="host_work", extra=0.01), Change.NO_HOST_GAPS))
        if n > 2:
            chosen.append(Case(replace(shape, cause="moving", extra=0.012), Change.STEADY_WORK))
    if 2 in sizes and os.geteuid() == 0 and shutil.which("ip") and shutil.which("tc"):
        link = Scenario("slow_link", None, 2, recorded=SEPARATE, layers=2)
        chosen += [Case(link, Change.FASTER_LINK, rates=rates) for rates in RATES]
    return chosen


def main() -> None:
    """Run the cases, print one line each, then the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--only", nargs="+", help="causes to run")
    parser.add_argument("--short", action="store_true", help="a few cases of two ranks")
    parser.add_argument("--keep", type=Path, help="leave the recordings here")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path, help="write every outcome here")
    arguments = parser.parse_args()
    adopt_orphans()
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(diagnosis.HERE), os.environ.get("PYTHONPATH")))
    )
    chosen = [
        case
        for case in cases(arguments.ranks)
        if not arguments.only or case.faulty.cause in arguments.only
    ]
    if arguments.short:
        first = {case.faulty.cause: case for case in reversed(cases([2])) if case.rates is None}
        chosen = [first[cause] for cause in ("slow_rank", "slow_loader", "host_work")]
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as scratch:
        for outcome in run(chosen, arguments.keep or Path(scratch)):
            outcomes.append(outcome)
            print(f"[{len(outcomes)}] {line(outcome)}", flush=True)
    text = table(outcomes)
    print(text)
    if arguments.markdown:
        arguments.markdown.write_text(text)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))


def run(chosen: Sequence[Case], scratch: Path) -> Iterator[Outcome]:
    """All cases: those of a number of ranks one after the other in one torchrun."""
    for size in sorted({case.faulty.ranks for case in chosen}):
        mine = [case for case in chosen if case.faulty.ranks == size and case.rates is None]
        if mine:
            yield from _together(mine, scratch / f"{size}-ranks")
    for number, case in enumerate(case for case in chosen if case.rates is not None):
        yield _over_link(case, scratch / f"link-{number}")


def _together(chosen: Sequence[Case], scratch: Path) -> Iterator[Outcome]:
    launches = []
    for number, case in enumerate(chosen):
        directory = scratch / str(number)
        directory.mkdir(parents=True)
        launches.append((_task(case.faulty, directory), directory))
    diagnosis.run_group(launches, scratch / "channel")
    for case, (_, directory) in zip(chosen, launches, strict=True):
        try:
            yield _judge(case, *_blocks_of(read_recordings(find_recordings([directory]))))
        except TorchscaleError as error:
            yield Outcome(case.name, case.change.value, problem=error.message)


def _blocks_of(trace: Trace) -> tuple[list[ProfileAnalysis], list[ProfileAnalysis]]:
    """Analyses of the blocks with the fault, and of those without."""
    first = trace.ranks[0]
    marks = first.spans.start[
        np.isin(first.spans.name, [n for n, name in enumerate(first.names) if name == FAULT])
    ]
    faulty = np.searchsorted(marks, first.steps.end) > np.searchsorted(marks, first.steps.start)
    edges = np.flatnonzero(np.diff(faulty)) + 1
    blocks: tuple[list[ProfileAnalysis], list[ProfileAnalysis]] = ([], [])
    for begin, end in itertools.pairwise(edges.tolist()):
        numbers = first.steps.number[begin : end - 1]  # the analysis leaves the first out
        ranks = tuple(replace(rank, steps=_only(rank.steps, numbers)) for rank in trace.ranks)
        blocks[0 if faulty[begin] else 1].append(analyze_trace(replace(trace, ranks=ranks)))
    return blocks


def _only(steps: Steps, numbers: NDArray[np.int64]) -> Steps:
    kept = np.isin(steps.number, numbers)
    return Steps(steps.start[kept], steps.end[kept], steps.number[kept])


def _over_link(case: Case, scratch: Path) -> Outcome:
    assert case.rates is not None
    analyses = []
    try:
        for number, rate in enumerate(case.rates * REPEATS):
            directory = scratch / str(number)
            directory.mkdir(parents=True)
            with _shaped(rate):
                _record_over_link(_task(case.faulty, directory), directory)
            analyses.append(analyze_files([directory]))
    except TorchscaleError as error:
        return Outcome(case.name, case.change.value, problem=error.message)
    return _judge(case, analyses[::2], analyses[1::2])


@contextmanager
def _shaped(rate: str) -> Iterator[None]:
    usual, diagnosis.SHAPED = diagnosis.SHAPED, rate
    try:
        with diagnosis.shaped_link():
            yield
    finally:
        diagnosis.SHAPED = usual


def _record_over_link(task: LaunchTask, directory: Path) -> None:
    """Two ranks, one in each namespace."""
    (directory / "task.json").write_text(task.model_dump_json())
    others = []
    for number in (1, 0):
        env = worker_environment(task, {"GLOO_SOCKET_IFNAME": f"tsv{number}"})
        argv = [
            "ip", "netns", "exec", f"tsdiag{number}", sys.executable, "-m", "torch.distributed.run", "--nnodes=2",
            "--nproc-per-node=1", "--max-restarts=0", "--rdzv-backend=c10d", "--rdzv-endpoint=10.77.0.1:29511",
            f"--rdzv-conf=is_host={int(number == 0)},join_timeout=60", f"--local-addr=10.77.0.{number + 1}",
            "-m", "torchscale.worker", str(directory / "task.json"),
        ]  # fmt: skip
        if number:
            others.append(
                subprocess.Popen(
                    argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            )
        else:
            run_bounded(argv, timeout_seconds=LIMIT_SECONDS, env=env)
    for process in others:
        process.wait(timeout=60)


def _task(scenario: Scenario, directory: Path) -> LaunchTask:
    request = diagnosis.recording_request(directory, scenario.recorded)
    return diagnosis.launch_task(diagnosis.scenario_cell(scenario), request)


def _judge(
    case: Case, faulty: Sequence[ProfileAnalysis], healthy: Sequence[ProfileAnalysis]
) -> Outcome:
    """Medians over blocks or recordings."""
    outcome = Outcome(case.name, case.change.value)
    outcome.with_fault = statistics.median(analysis.step_seconds or 0.0 for analysis in faulty)
    outcome.without = statistics.median(analysis.step_seconds or 0.0 for analysis in healthy)
    predicted, errors = [], []
    ranks = () if case.rank == NOBODY else (case.rank,)
    for analysis in faulty:
        what_if = analysis.what_if
        if what_if is None or what_if.refused is not None:
            outcome.problem = "no replay" if what_if is None else f"no replay: {what_if.refused}"
            return outcome
        unanswered = [
            note for note in what_if.notes if note.startswith("no prediction for less host work")
        ]
        if unanswered and case.change is Change.NO_HOST_GAPS:
            outcome.problem = unanswered[0]
            return outcome
        errors.append(abs(what_if.replay_error_percent or 0.0) / 100)
        rows = [
            row
            for row in what_if.rows
            if row.change is case.change and (not ranks or row.ranks == ranks)
        ]
        # A rank that is no slower than its peers has nothing to gain.
        predicted.append(rows[0].step_seconds if rows else analysis.step_seconds or 0.0)
    outcome.predicted, outcome.replay_error = statistics.median(predicted), max(errors)
    return outcome


def line(outcome: Outcome) -> str:
    """One line for the terminal."""
    if outcome.problem:
        return f"{outcome.name}: {outcome.problem}"
    return (
        f"{outcome.name}: {outcome.with_fault * 1e3:.2f} ms with the fault, "
        f"{outcome.predicted * 1e3:.2f} predicted, {outcome.without * 1e3:.2f} measured without it "
        f"({outcome.error:+.1%})"
    )


def table(outcomes: Sequence[Outcome]) -> str:
    """All cases and the errors in Markdown."""
    rows = [
        "| case | step with the fault, ms | predicted without it | measured without it | error |",
        "|---|---|---|---|---|",
    ]
    for item in outcomes:
        if item.problem:
            rows.append(f"| {item.name} | – | – | – | {item.problem} |")
        else:
            times = " | ".join(
                f"{time * 1e3:.2f}" for time in (item.with_fault, item.predicted, item.without)
            )
            rows.append(f"| {item.name} | {times} | {item.error * 100:+.1f} % |")
    errors = [abs(item.error) for item in outcomes if not item.problem]
    if errors:
        rows.append(
            f"\n{len(errors)} cases: mean error {statistics.fmean(errors) * 100:.1f} %, "
            f"worst {max(errors) * 100:.1f} %; {len(outcomes) - len(errors)} without a prediction."
        )
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
