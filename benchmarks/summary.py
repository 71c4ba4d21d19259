"""What ``summary.csv`` costs a sweep: processor time to summarize every launch and to make the
file's text after it.

::

    PYTHONPATH=. python benchmarks/summary.py                    # 2,000 launches of 2,000 cells on 8 ranks at most
    PYTHONPATH=. python benchmarks/summary.py --launches 500

The records are made up, in the form that launches leave, and nothing is written; what is measured
is the arithmetic and the text. With ``--again`` every launch is summarized again after each, as a
check of what that would cost.
"""

from __future__ import annotations

import argparse
import time

from large_report import made_up_record

from tests.factories import environment, experiment, experiment_file
from torchscale.analysis.summary.run import summarize, summarize_any
from torchscale.analysis.summary.running import RunningSummary, SeparateCells
from torchscale.plan.expand import make_plan
from torchscale.report.formats.export import SummaryCsv, summary_csv
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.node.machine import Machine
from torchscale.schema.run.content import CellRun, Run
from torchscale.schema.run.experiment_file import ExperimentFile


def make_up(launches: int) -> tuple[ExperimentFile, list[LaunchRecord]]:
    """A plan of that many cells, in series of 1, 2, 4 and 8 GPUs, and a launch of each."""
    batch_sizes = list(range(1, -(-launches // 4) + 1))
    content = {"models": "tiny-resnet", "batch_sizes": batch_sizes, "gpu_counts": [1, 2, 4, 8]}
    config = experiment(**content)
    place = environment(8)
    plan = make_plan(config, Machine(place, tuple(range(64)))).cells[:launches]
    records = []
    for number, entry in enumerate(plan):
        assert isinstance(entry.cell, TrainingCell)
        records.append(made_up_record(entry.cell, number))
    return experiment_file(config, plan, environment=place), records


def follow(file: ExperimentFile, records: list[LaunchRecord]) -> tuple[float, float, str]:
    """Processor seconds of summarizing and of making the text, and the last text."""
    nothing = SeparateCells(tuple(summarize_any(CellRun(entry, ())) for entry in file.plan))
    running, table = RunningSummary("run", file, nothing), SummaryCsv()
    summarizing = writing = 0.0
    text = ""
    for entry, record in zip(file.plan, records, strict=True):
        started = time.process_time()
        running.update(CellRun(entry, (record,)))
        summary = running.summary
        summarized = time.process_time()
        text = table.text(summary)
        summarizing += summarized - started
        writing += time.process_time() - summarized
    return summarizing, writing, text


def summarize_again(file: ExperimentFile, records: list[LaunchRecord]) -> float:
    """Processor seconds of doing everything again after each launch."""
    started = time.process_time()
    runs = [CellRun(entry, ()) for entry in file.plan]
    for place, record in enumerate(records):
        runs[place] = CellRun(file.plan[place], (record,))
        summary_csv(summarize(Run("run", file, tuple(runs))))
    return time.process_time() - started


def main() -> None:
    """Make up, follow, print what it took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--launches", type=int, default=2000)
    parser.add_argument(
        "--again", action="store_true", help="also summarize everything again after each launch"
    )
    arguments = parser.parse_args()
    file, records = make_up(arguments.launches)
    follow(*make_up(8))  # imports what the first summary needs
    summarizing, writing, text = follow(file, records)
    runs = tuple(
        CellRun(entry, (record,)) for entry, record in zip(file.plan, records, strict=True)
    )
    assert text == summary_csv(summarize(Run("run", file, runs))), (
        "the last text is that of the whole run"
    )
    count = len(records)
    print(
        f"{count} launches: {summarizing:.2f} s of summarizing, {writing:.2f} s of CSV, "
        f"{len(text) / 1e6:.2f} MB"
    )
    print(f"a launch: {(summarizing + writing) / count * 1e3:.2f} ms")
    if arguments.again:
        print(f"everything again after each: {summarize_again(file, records):.1f} s")


if __name__ == "__main__":
    main()
