"""What every command prints, on terminals of every width: the words and figures are those of a
terminal that has room for everything, and each is whole."""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

import torchscale
from tests.factories import experiment, failed_record, machine, run, summarize_cell, trained
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
from tests.features.validate.test_bundle import SLOW
from tests.features.watch.analysis.jobs import job
from tests.features.watch.hang.test_terminal import VERDICT
from tests.features.watch.job.folders import write_job
from tests.features.watch.test_terminal import _report as watched
from tests.report.formats.test_accessibility import comparison
from tests.report.test_build import mixed_run
from tests.report.test_machine import machine_summary
from tests.report.test_one_number import cell, summary
from torchscale.analysis.summary.run import summarize
from torchscale.config.choices import CatalogKind
from torchscale.features.bisect.tables import print_bisection
from torchscale.features.compare.history.page import history_document
from torchscale.features.compare.history.tables import print_history
from torchscale.features.compare.sections.document import ComparisonReport
from torchscale.features.compare.sections.result_set import result_set_blocks
from torchscale.features.compare.terminal.baselines import BaselineRow, baselines_table
from torchscale.features.compare.terminal.comparison import print_comparison
from torchscale.features.decide.forecast.page import prediction_document
from torchscale.features.decide.forecast.tables import print_predictions as print_scaling
from torchscale.features.decide.tune.tables import print_tuning
from torchscale.features.machine.collectives.terminal import print_collectives
from torchscale.features.machine.max_batch_table import print_max_batch
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.features.trace.document import profile_document
from torchscale.features.trace.terminal import print_analysis, print_predictions
from torchscale.features.validate.fleet.document import fleet_document
from torchscale.features.validate.fleet.fleet import judge_fleet, judge_pairwise
from torchscale.features.validate.fleet.speeds import judge_speeds
from torchscale.features.validate.fleet.tables import print_fleet
from torchscale.features.validate.report import AcceptanceReport
from torchscale.features.validate.terminal import print_fixes, print_validation
from torchscale.features.watch.document import watched_document
from torchscale.features.watch.hang.terminal import print_hang
from torchscale.features.watch.terminal import print_watch
from torchscale.measure.init import list_examples
from torchscale.plan.duration import LaunchEnd, cell_progress, estimate_seconds
from torchscale.plan.expand import make_plan
from torchscale.plan.memory import Forecast
from torchscale.read.catalog import catalog_rows
from torchscale.read.docs import list_pages
from torchscale.report.formats.console import print_blocks, print_document, print_pairs
from torchscale.report.sections.one_cell import cell_rows
from torchscale.report.table import Column, Table
from torchscale.report.terminal.catalog import catalog_table
from torchscale.report.terminal.live import LaunchLines
from torchscale.report.terminal.plan import print_plan
from torchscale.report.terminal.run import print_run
from torchscale.report.terminal.runs import runs_table
from torchscale.report.values import TableValue
from torchscale.schema.node.fleet import FleetNode
from torchscale.schema.node.probe import CollectiveFacts
from torchscale.schema.state import State

WIDTHS = (60, 80, 120, 200)
OWN_TESTS = {"torchscale.features.watch.whole_lines", "torchscale.read.report"}
"""Lines between those of a program; one cell, whose rows are among the lists."""
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
    print_pairs([*list_pages(), *list_examples()], console)


def _a_comparison(console: Console, _: Path) -> None:
    explained = slower()
    names = ("before", "after")
    print_comparison(ComparisonReport((explained.pair,), (), names, why=(explained,)), console)
    print_comparison(CONTENDED, console)
    print_blocks(result_set_blocks(explained.pair.reference), console)


def _documents(console: Console, directory: Path) -> None:
    """Pages of every kind, with all their sections."""
    analysis = analyze_trace(Training(data=4, speed=lambda rank, _: 1.5 - (rank != 2) / 2).trace())
    job_report = watched(write_job(directory, job(2, 400)))
    AcceptanceReport(directory, SLOW).print_to(console)
    name = "gpu-node-00017.rack-42.example.org"
    node = FleetNode(node_rank=0, hostname=name, address="10.0.0.1", validation=SLOW)
    for document in (
        fleet_document(judge_fleet([node], None)),
        watched_document(job_report),
        history_document(changed_history()),
        prediction_document(predictions(64)),
        profile_document(analysis, "a recording of a long name"),
        comparison(),
    ):
        print_document(document, console)


def _a_plan(console: Console, _: Path) -> None:
    scripts = [{"script": f"train_a_model_of_a_long_name.py --lr 0.{rate}"} for rate in (1, 2)]
    config = experiment(models=["tiny-decoder", *scripts], batch_sizes=[8, 12345], gpu_counts=[1])
    plan = make_plan(config, machine())
    progress = [cell_progress(cell, {0: LaunchEnd(State.OK, 30.0)}, 3) for cell in plan.to_run]
    print_plan(
        plan,
        console,
        device_label="8 × NVIDIA H100 80GB HBM3",
        folder=Path("results/a-folder-of-a-long-name"),
        forecast=Forecast({}, None, shared=True),
        progress=progress,
        estimate=estimate_seconds(progress, config.benchmark, 1800.0, plan),
    )
    print_max_batch(12345, "tiny-decoder", console, problem="", largest=12345)


def _launches(console: Console, _: Path) -> None:
    measured = run().cells[0]
    lines = LaunchLines(console, "cpu", 12345, 3, lambda _: None)
    reason = "rank 1: CUDA out of memory: tried to allocate 12.3 GiB of 79.2 GiB"
    for one in (measured.launches[0], failed_record(trained(measured.planned), State.OOM, reason)):
        lines.launch_started(trained(measured.planned), 0)
        lines.launch_finished(trained(measured.planned), one, summarize_cell(measured))


PRINTED: dict[str, Printer] = {
    "a run": lambda console, _: print_run(summarize(mixed_run()), Path("results/demo"), console),
    "a machine": lambda console, _: print_run(machine_summary(), Path("results/m"), console),
    "collectives": lambda console, _: print_collectives(machine_summary().collectives, console),
    "a comparison": _a_comparison,
    "a watched job": _a_watched_job,
    "an analysis": _an_analysis,
    "a node": lambda console, _: print_validation(validated(of(remapping_failed=True)), console),
    "fixes": lambda console, _: print_fixes(validated(of(remapping_failed=True)), console),
    "a fleet": _a_fleet,
    "documents": _documents,
    "a plan": _a_plan,
    "launches": _launches,
    "a hang": lambda console, _: print_hang(VERDICT, 12345.0, console),
    "lists": _lists,
    "a history": lambda console, _: print_history(changed_history(), console),
    "predictions": lambda console, _: print_scaling(predictions(64), console),
    "strategies": lambda console, _: print_tuning(strategies_export(), "a model", console),
    "settings": lambda console, _: print_tuning(tuning_export(), "a model", console),
    "a bisection": lambda console, _: print_bisection(bisection_export(), console),
    "a loss that changed": lambda console, _: print_bisection(change_export(), console),
}


def console_of(width: int, *, terminal: bool = True) -> tuple[Console, io.StringIO]:
    """A console of a width, and what it prints."""
    out = io.StringIO()
    how = {"color_system": None, "highlight": False, "emoji": False}
    return Console(file=out, width=width, force_terminal=terminal, **how), out  # type: ignore[arg-type]


def printed(what: str, width: int, directory: Path, *, terminal: bool = True) -> str:
    console, out = console_of(width, terminal=terminal)
    PRINTED[what](console, directory)
    return out.getvalue()


def words_of(text: str) -> set[str]:
    """Without what surrounds them in ``column: value`` and captions, and the dash for no value."""
    return {word.strip("(),:") for word in text.split()} - {"–", ""}


def check_whole(room: str, narrow: str, width: int) -> None:
    """No word is missing on a narrow terminal, there is no part of one, a number has its unit
    beside it, and no line is broken by the terminal but what is to be copied."""
    assert words_of(room) == words_of(narrow), width
    figures = re.findall(r"[\d.,]+ (?:%|s|ms|µs|GB/s|MB/s|[KMG]iB|GFLOP|TFLOP/s)(?!\S)", room)
    assert {figure for figure in figures if figure not in narrow} == set(), width
    wide = [line for line in narrow.splitlines() if cell_len(line) > width]
    assert all(re.search(r"^\s*torchscale |^Again: |^</script>", line) for line in wide), wide


@pytest.mark.parametrize("what", PRINTED)
def test_no_word_and_no_figure_is_cut_or_broken(what: str, tmp_path: Path) -> None:
    room = printed(what, 10_000, tmp_path / "room", terminal=False)
    assert len(words_of(room)) > 10
    for width in WIDTHS:
        check_whole(room, printed(what, width, tmp_path / str(width)), width)


@pytest.mark.parametrize("what", PRINTED)
def test_a_pipe_gets_the_same_without_colour(what: str, tmp_path: Path) -> None:
    words = words_of(printed(what, 10_000, tmp_path / "room", terminal=False))
    piped = printed(what, 80, tmp_path / "pipe", terminal=False)
    assert words - words_of(piped) == set()
    assert "\x1b" not in piped


_TEXTS = (
    "ok",
    "unclear (contended, slowed)",
    "gpu-node-00017.rack-42.example.org",
    "meta-llama-3.1-70b-instruct fsdp, bf16, batch 16, 1024 devices",
    "rank 12 raised RuntimeError: NCCL communicator was aborted after 600 s in all_reduce",
)
_NUMBERS = ("7", "54,321", "1,234.5 (1,200.5 to 12,260.5)", "[-46.7 to +66.2 %]", "61.1 MiB")
_TITLES = ("model", "samples/s", "95 % interval", "waits for ranks", "RSS growth")


@st.composite
def _tables(draw: st.DrawFn) -> Table:
    """Columns of numbers, texts and prose; the first of one to five rows has a value in each."""
    count = draw(st.integers(1, 12))
    columns = tuple(
        Column(draw(st.sampled_from(_TITLES)), numeric=kind == 0, prose=kind == 1)
        for kind in draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    )
    values = [_NUMBERS if column.numeric else _TEXTS for column in columns]
    rows = tuple(
        tuple(TableValue(draw(st.sampled_from((*of, *("", "–") * (row > 0))))) for of in values)
        for row in range(draw(st.integers(1, 5)))
    )
    return Table("", columns, rows)


@given(_tables())
def test_no_table_is_cut_or_broken(table: Table) -> None:
    shown = {}
    for width in (10_000, *WIDTHS):
        console, out = console_of(width)
        print_blocks([table], console)
        shown[width] = out.getvalue()
        check_whole(shown[10_000], shown[width], width)


def test_whoever_prints_is_printed_here() -> None:
    """A module of which nothing is imported here is in no test of widths."""
    package = Path(torchscale.__file__).parent
    printing = {
        ".".join(path.relative_to(package.parent).with_suffix("").parts)
        for path in package.rglob("*.py")
        if not {"cli", "formats"} & set(path.parts)
        and any(
            isinstance(node, ast.ImportFrom)
            and (node.module or "").startswith("torchscale.report.formats.console")
            for node in ast.walk(ast.parse(path.read_text()))
        )
    }
    used = {getattr(value, "__module__", "") for value in globals().values()}
    assert printing - used - OWN_TESTS == set()
