"""What every command prints, on terminals of every width: the words and figures are those of a
terminal that has room for everything."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from tests.features.bisect.test_change_verdict import change_export
from tests.features.bisect.test_verdict import bisection_export
from tests.features.compare.history.test_page import changed_history
from tests.features.compare.sections.test_document import CONTENDED
from tests.features.compare.sections.test_why import slower
from tests.features.decide.forecast.test_page import report as predictions
from tests.features.decide.tune.test_strategy_table import strategies_export
from tests.features.decide.tune.test_tables import tuning_export
from tests.features.trace.replay.simulator import Training
from tests.features.validate.fleet.test_fleet import NAMES, fleet_node, times, with_driver
from tests.features.validate.fleet.test_speeds import fleet as measured_fleet
from tests.features.validate.health.test_disposition import of, validated
from tests.features.watch.analysis.jobs import job
from tests.features.watch.job.folders import write_job
from tests.features.watch.test_terminal import _report as watched
from tests.report.test_build import mixed_run
from tests.report.test_machine import machine_summary
from tests.report.test_one_number import cell, summary
from torchscale.analysis.summary.run import summarize
from torchscale.config.choices import CatalogKind
from torchscale.features.bisect.tables import print_bisection
from torchscale.features.compare.history.tables import print_history
from torchscale.features.compare.sections.document import ComparisonReport
from torchscale.features.compare.sections.result_set import result_set_blocks
from torchscale.features.compare.terminal.baselines import BaselineRow, baselines_table
from torchscale.features.compare.terminal.comparison import print_comparison
from torchscale.features.decide.forecast.tables import print_predictions as print_scaling
from torchscale.features.decide.tune.tables import print_tuning
from torchscale.features.machine.collectives.terminal import print_collectives
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.features.trace.terminal import print_analysis, print_predictions
from torchscale.features.validate.fleet.fleet import judge_fleet, judge_pairwise
from torchscale.features.validate.fleet.speeds import judge_speeds
from torchscale.features.validate.fleet.tables import print_fleet
from torchscale.features.validate.terminal import print_validation
from torchscale.features.watch.terminal import print_watch
from torchscale.read.catalog import catalog_rows
from torchscale.report.formats.console import print_blocks, print_pairs
from torchscale.report.sections.one_cell import cell_rows
from torchscale.report.terminal.catalog import catalog_table
from torchscale.report.terminal.run import print_run
from torchscale.report.terminal.runs import runs_table
from torchscale.schema.node.probe import CollectiveFacts

WIDTHS = (60, 80, 120, 200)
Printer = Callable[[Console, Path], None]


def _a_watched_job(console: Console, directory: Path) -> None:
    slow = lambda rank, step: 4.0 * (rank == 1 and step >= 200)  # noqa: E731 - a cause, as in other tests
    print_watch(watched(write_job(directory, job(2, 400, slow))), console)


def _an_analysis(console: Console, directory: Path) -> None:
    del directory
    analysis = analyze_trace(Training(data=4, speed=lambda rank, _: 1.5 - (rank != 2) / 2).trace())
    print_analysis(analysis, console)
    print_predictions(analysis, console)


def _a_fleet(console: Console, directory: Path) -> None:
    del directory
    pairwise = judge_pairwise(
        [0, 1, 2, 3], NAMES, times(4, {(1, 3): 1.6}, 1), {}, backend="gloo", message_bytes=4 << 20
    )[0]
    collective = CollectiveFacts(backend="nccl", world_size=72, seconds=0.001)
    nodes = [*(fleet_node(rank) for rank in range(8)), with_driver(8, "470.1")]
    speeds = judge_speeds(measured_fleet(8, {5: 0.85}), {})
    print_fleet(judge_fleet(nodes, collective, [pairwise], speeds=speeds), console)


def _lists(console: Console, _: Path) -> None:
    rows = [
        ("a-run-of-a-long-name", "2026-01-02T03:04:05", "partial", 3, 12, "Scales to 8 GPUs " * 5)
    ]
    baselines = [
        BaselineRow("main", "2026-01-02", "NVIDIA H100 80GB HBM3", 12, 3),
        BaselineRow("torn", problem="torn.json: Invalid JSON: EOF while parsing a list"),
    ]
    names = [catalog_table(kind.value, catalog_rows(kind)) for kind in CatalogKind]
    tables = [runs_table(rows), baselines_table(baselines), *names]
    print_blocks(tables, console)
    print_pairs(cell_rows(summary(), cell()), console)


def _a_comparison(console: Console, _: Path) -> None:
    explained = slower()
    names = ("before", "after")
    print_comparison(ComparisonReport((explained.pair,), (), names, why=(explained,)), console)
    print_comparison(CONTENDED, console)
    print_blocks(result_set_blocks(explained.pair.reference), console)


PRINTED: dict[str, Printer] = {
    "a run": lambda console, _: print_run(summarize(mixed_run()), Path("results/demo"), console),
    "a machine": lambda console, _: print_run(machine_summary(), Path("results/m"), console),
    "collectives": lambda console, _: print_collectives(machine_summary().collectives, console),
    "a comparison": _a_comparison,
    "a watched job": _a_watched_job,
    "an analysis": _an_analysis,
    "a node": lambda console, _: print_validation(validated(of(remapping_failed=True)), console),
    "a fleet": _a_fleet,
    "lists": _lists,
    "a history": lambda console, _: print_history(changed_history(), console),
    "predictions": lambda console, _: print_scaling(predictions(64), console),
    "strategies": lambda console, _: print_tuning(strategies_export(), "a model", console),
    "settings": lambda console, _: print_tuning(tuning_export(), "a model", console),
    "a bisection": lambda console, _: print_bisection(bisection_export(), console),
    "a loss that changed": lambda console, _: print_bisection(change_export(), console),
}


def printed(what: str, width: int, directory: Path, *, terminal: bool = True) -> str:
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=terminal,
        color_system=None,
        highlight=False,
        emoji=False,
    )
    PRINTED[what](console, directory)
    return out.getvalue()


def words_of(text: str) -> set[str]:
    """Without what surrounds them in ``column: value`` and ``caption (column value)``, and the dash
    of a column that has none."""
    return {word.strip("(),:") for word in text.split()} - {"–"}


@pytest.mark.parametrize("what", PRINTED)
def test_no_word_and_no_figure_is_cut_or_broken(what: str, tmp_path: Path) -> None:
    room = printed(what, 10_000, tmp_path / "room", terminal=False)
    words = words_of(room)
    figures = set(re.findall(r"[\d.,]+ (?:%|s|ms|µs|GB/s|MB/s|[KMG]iB|GFLOP|TFLOP/s)(?!\S)", room))
    assert len(words) > 10 and figures
    for width in WIDTHS:
        narrow = printed(what, width, tmp_path / str(width))
        assert words - words_of(narrow) == set(), width
        assert {figure for figure in figures if figure not in narrow} == set(), width
        wide = [line for line in narrow.splitlines() if len(line) > width]
        assert all(re.search(r"^\s*torchscale |^Again: |^</script>", line) for line in wide), wide


@pytest.mark.parametrize("what", PRINTED)
def test_a_pipe_gets_the_same_without_colour(what: str, tmp_path: Path) -> None:
    words = words_of(printed(what, 10_000, tmp_path / "room", terminal=False))
    piped = printed(what, 80, tmp_path / "pipe", terminal=False)
    assert words - words_of(piped) == set()
    assert "\x1b" not in piped
