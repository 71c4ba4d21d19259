"""Does ``torchscale watch`` say what holds a job back, or why it failed?

::

    python benchmarks/job_causes.py --json causes.jsonl         # two and four ranks, about two hours
    python benchmarks/job_causes.py --only none forward --ranks 2 --runs 3
    python benchmarks/job_causes.py --load 2                    # two busy processes beside the job
    python benchmarks/job_causes.py --failures                  # jobs that fail
    python benchmarks/job_causes.py --only forward --peer peer/bin/python

Each run is ``torchscale watch -- torchrun … jobs/PROGRAM``, with one cause whose rank, size, period
and place are drawn by the seed (``cause_list.py``). Kind, rank, line, period and first step are
judged each by itself (``cause_judge.py``), and names of ranks that have no part in it are counted.
With ``--json`` each run is kept as a line of the file, and runs that it holds are not made again.
``--peer`` lets other tools say what they make of the same jobs (``cause_peers.py``).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from cause_judge import JOBS, Row, confusions, is_right, judged, table
from cause_list import ANYWHERE, CAUSES, FAULTS, Draw, Injection, fault, says
from cause_peers import peer_says

from torchscale.util.processes.bounded import Finished, run_bounded

STRATEGIES = ("ddp", "fsdp", "plain")
END_SECONDS = 180.0
"""In which a run has ended; most take 10 to 20."""
STALL = "6s"
"""Of a job that fails: without progress for so long it hangs."""


@dataclass(frozen=True)
class Run:
    """A run, by what it draws its parameters from.

    Attributes:
        cause: Or fault.
        ranks, strategy: Of the job.
        number: Of several that are alike.
        seed: Of the campaign.
        load: Busy processes beside it.
    """

    cause: str
    ranks: int
    strategy: str
    number: int
    seed: int
    load: int

    @property
    def key(self) -> str:
        """Different for different runs."""
        return "/".join(map(str, asdict(self).values()))

    @property
    def injection(self) -> Injection:
        """The job, which is the same with and without load."""
        draw = Draw(Random(replace(self, load=0).key), self.ranks)
        return fault(self.cause, draw) if self.cause in FAULTS else CAUSES[self.cause].make(draw)


def runs(options: argparse.Namespace) -> Iterator[Run]:
    """All that are asked for."""
    names = options.only or list(FAULTS if options.failures else CAUSES)
    for number in range(options.runs):
        for ranks in options.ranks:
            for strategy in options.strategies:
                for name in names:
                    possible = ANYWHERE if name in FAULTS else CAUSES[name].strategies
                    if strategy in possible:
                        yield Run(name, ranks, strategy, number, options.seed, options.load)


def torchrun(run: Run, folder: Path) -> list[str]:
    """The command of a job, whose own files go to the folder."""
    injection = run.injection
    own = folder / "own"
    own.mkdir(parents=True)
    arguments = [str(own) if text == "FOLDER" else text for text in injection.arguments]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    launcher += ["--nproc-per-node", str(run.ranks), str(JOBS / injection.program)]
    return [*launcher, "--strategy", run.strategy, *arguments]


def bounded(command: Sequence[str], seconds: float = END_SECONDS) -> Finished:
    """A command, ended with all its processes after the time; what it prints is not wrapped."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "1000"}
    return run_bounded(command, timeout_seconds=seconds, env=environment)


def watched(run: Run, folder: Path) -> Row:
    """What is said of a run, and which parts of it are right.

    Raises:
        RuntimeError: a job that has no fault failed, or nothing is known of it.
    """
    watch = [sys.executable, "-m", "torchscale", "watch", "--keep-events"]
    options = ["--no-live", "--stall", STALL] if run.cause in FAULTS else ["--no-live"]
    job = folder / "job"
    done = bounded([*watch, *options, "-o", str(job), "--", *torchrun(run, folder)])
    answer = run.injection.answer
    if run.cause in FAULTS:
        line = first_line(bounded([*watch, str(job)]).stdout)
        return {"right": {"first line": says(line, answer)}, "said": [line]}
    report = job / "watch.json"
    if done.returncode != 0 or not report.exists():
        raise RuntimeError(f"{run.key}: {done.returncode} {done.stderr[-2000:]}")
    content: dict[str, Any] = json.loads(report.read_text())
    kept = {name: content[name] for name in ("step_seconds", "steps", "findings")}
    return {"report": kept, **judged(kept, answer)}


def first_line(shown: str) -> str:
    """That is not empty."""
    return next((line.strip() for line in shown.splitlines() if line.strip()), "")


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Beside the jobs."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def done_before(path: Path | None) -> dict[str, Row]:
    """Runs that a file holds, by key; what was cut off at its end is made again."""
    found: dict[str, Row] = {}
    if path is None or not path.exists():
        return found
    for line in path.read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            row = json.loads(line)
            found[row["key"]] = row
    return found


def campaign(options: argparse.Namespace) -> list[Row]:
    """All runs, each printed and kept as it ends."""
    before = done_before(options.json)
    rows = []
    with tempfile.TemporaryDirectory() as name, busy_processes(options.load):
        for number, run in enumerate(runs(options)):
            row = _again(run, before.get(_key(run, options)))
            if row is None:
                folder = Path(name) / str(number)
                row = _one(run, folder, options)
                _keep(options, run, row, folder)
            rows.append(row)
            print(_row_text(run, row), flush=True)
    return rows


def _key(run: Run, options: argparse.Namespace) -> str:
    return f"{run.key}/peer" if options.peer else run.key


def _again(run: Run, row: Row | None) -> Row | None:
    """A run that was made before, judged as runs are judged now; ``None`` where the job has become
    another one, or gave no answer."""
    if row is None or row["arguments"] != list(run.injection.arguments) or "problem" in row:
        return None
    answer = run.injection.answer
    if "first line" in row["right"]:
        return {**row, "right": {"first line": says(row["said"][0], answer)}}
    return {**row, **judged(row["report"], answer)} if "report" in row else row


def _one(run: Run, folder: Path, options: argparse.Namespace) -> Row:
    base = {"key": _key(run, options), **asdict(run), "arguments": run.injection.arguments}
    try:
        if options.peer:
            peers = peer_says(options.peer, torchrun(run, folder), folder, run.cause in FAULTS)
            return {**base, "said": peers, "right": {}}
        return {**base, **watched(run, folder)}
    except (RuntimeError, StopIteration) as error:
        return {**base, "problem": str(error), "said": [], "right": {"run": False}}


def _keep(options: argparse.Namespace, run: Run, row: Row, folder: Path) -> None:
    """The line of a run, and its folder if it is asked for."""
    if options.json is not None:
        with options.json.open("a") as file:
            file.write(json.dumps(row) + "\n")
    wrong = not all(row["right"].values()) or row.get("wrong_names")
    if options.keep == "all" or (options.keep == "wrong" and wrong):
        kept = options.directory / run.key.replace("/", "_").replace(" ", "-")
        shutil.copytree(folder, kept, dirs_exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _row_text(run: Run, row: Row) -> str:
    """A run in some lines."""
    where = f"{run.cause}, {run.ranks} ranks, {run.strategy}, {run.number}"
    wrong = [part for part, right in row["right"].items() if not right]
    wrong += ["named wrongly"] if row.get("wrong_names") else []
    mark = f"WRONG ({', '.join(wrong)})" if wrong else "right" if row["right"] else "said"
    told = "\n".join(f"    {text}" for text in row["said"]) or "    nothing"
    problem = f"\n    {row['problem']}" if "problem" in row else ""
    return f"{mark}  {where}: {' '.join(row['arguments'])}{problem}\n{told}"


def tell(rows: Sequence[Row]) -> None:
    """The table, and what was said instead."""
    judged_rows = [row for row in rows if "kind" in row["right"]]
    if judged_rows:
        whole = f"{sum(map(is_right, judged_rows))} of {len(judged_rows)} right as a whole"
        print("\n".join(["", *table(judged_rows), "", *confusions(judged_rows), whole]))
    lines = [row for row in rows if "first line" in row["right"]]
    for name in dict.fromkeys(row["cause"] for row in lines):
        right = [row["right"]["first line"] for row in lines if row["cause"] == name]
        print(f"{name}: first line right in {sum(right)} of {len(right)}")
    broken = [row for row in rows if "problem" in row]
    if broken:
        print(f"{len(broken)} runs gave no answer: {', '.join(row['key'] for row in broken)}")


def main() -> None:
    """Run, judge, tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", default=[], choices=[*CAUSES, *FAULTS], metavar="CAUSE"
    )
    parser.add_argument("--failures", action="store_true", help="faults instead of causes")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--strategies", nargs="+", choices=ANYWHERE, default=list(STRATEGIES))
    parser.add_argument("--runs", type=int, default=1, help="of each cause, ranks and strategy")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--load", type=int, default=0, help="busy processes beside")
    parser.add_argument("--json", type=Path, help="a line for each run; continued where it exists")
    parser.add_argument("--keep", choices=("none", "wrong", "all"), default="none")
    parser.add_argument("--directory", type=Path, default=Path("kept"), help="for --keep")
    parser.add_argument("--peer", type=Path, help="a Python with traceml-ai and torch")
    options = parser.parse_args()
    tell(campaign(options))


if __name__ == "__main__":
    main()
