"""Results that were damaged or made up: the report is harmless and complete, and names what it left
out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.campaign import WHOLE
from tests.factories import (
    environment,
    experiment,
    experiment_file,
    failed_record,
    machine,
    trained,
)
from tests.features.watch.hang.test_explain import IN_OWN_CODE, looped, rank, waiting
from tests.report.sections.test_lost_time import diagnosed_run
from tests.report.test_machine import record as record_of_any_kind
from torchscale.errors import StoreError
from torchscale.features.compare.inputs import load_source
from torchscale.features.compare.sections.document import ComparisonReport, comparison_document
from torchscale.features.watch.hang.explain import explain_hang
from torchscale.plan.expand import make_plan
from torchscale.report.build import build_document
from torchscale.report.formats.export import summary_csv
from torchscale.report.formats.html import render_html
from torchscale.report.formats.markdown import render_markdown
from torchscale.report.formats.pdf import render_pdf
from torchscale.report.formats.report_export import summary_json
from torchscale.report.sections.selection import detailed_cells
from torchscale.results.details import read_details
from torchscale.results.reader import read_summary
from torchscale.schema.launch.telemetry import GpuUse, Telemetry
from torchscale.schema.run.experiment_file import Session
from torchscale.schema.state import State
from torchscale.store.run_folder import RunFolder

SCRIPT = (
    "</script><script>document.title='taken'</script><img src=x "
    "onerror=alert(1)>\u2028{{7*7}}\x1b[31m"
)
VALUES: tuple[Any, ...] = (
    float("nan"),
    float("inf"),
    -1,
    0,
    1e308,
    10**400,
    None,
    SCRIPT,
    "x" * 1_000_000,
    [],
    {},
    True,
)


def tried(place: int) -> list[Any]:
    """All values in a campaign; else four of them, other ones at each place."""
    return list(
        VALUES if WHOLE else [VALUES[(place + 3 * turn) % len(VALUES)] for turn in range(4)]
    )


KINDS = ("hardware", "collectives", "memory", "checkpoint", "training")


def write(path: Path, kinds: Sequence[str] = KINDS, **content: Any) -> RunFolder:
    """One and two ranks with every signal, and every kind of cell of the machine."""
    use = GpuUse(
        uuid="GPU-1",
        busy=0.9,
        energy_joules=5000.0,
        throttle_reasons=("heat",),
        throttled_share=0.5,
    )
    telemetry = Telemetry(
        seconds=10.0, readings=10, cpu_busy=0.5, memory_used_peak_bytes=1, gpus=(use,)
    )
    config = experiment(measure=list(kinds), **content)
    later = Session(
        started_at="2026-01-02",
        tool_version="0.2.0",
        environment=environment(1, env={"NCCL_ALGO": "Ring"}),
    )
    plan = make_plan(config, machine(cores=2)).cells
    folder = RunFolder.create(
        path, experiment_file(config, plan, created_at="2026-01-01", later=(later,))
    )
    diagnosed = {one.planned.cell.id: one for one in diagnosed_run().cells}
    for entry in folder.experiment.plan:
        found = record_of_any_kind(entry.cell, telemetry)
        if entry.cell.id in diagnosed:
            found = diagnosed[entry.cell.id].launches[0].model_copy(update={"telemetry": telemetry})
        directory = folder.begin_launch(entry.cell, 0)
        (directory / "telemetry.jsonl").write_text(
            '{"time": 1, "memory_used_bytes": 1}\n{"time": 2,'
        )
        folder.finish_launch(entry.cell, found)
    return folder


def places(content: Any, where: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in some JSON, of lists the first entry alone."""
    if where:
        yield where
    if isinstance(content, dict):
        for key, value in content.items():
            yield from places(value, (*where, key))
    elif isinstance(content, list) and content:
        yield from places(content[0], (*where, 0))


def changed(content: Any, where: Sequence[str | int], value: Any) -> Any:
    """A copy with one place changed; ``where`` leads there."""
    head, *rest = where
    if isinstance(content, dict):
        return {**content, head: changed(content[head], rest, value) if rest else value}
    first = changed(content[0], rest, value) if rest else value
    return [first, *content[1:]]


def without(content: Any, where: Sequence[str | int]) -> Any:
    """The same without that place."""
    head, *rest = where
    if isinstance(content, dict):
        if not rest:
            return {key: item for key, item in content.items() if key != head}
        return {**content, head: without(content[head], rest)}
    return [without(content[0], rest), *content[1:]] if rest else content[1:]


def report_of(folder: RunFolder) -> str:
    """Every light form of the report, one after the other."""
    summary = read_summary(folder.path)
    details = read_details(
        folder.path, summary.experiment, [one.cell for one in detailed_cells(summary)]
    )
    document = build_document(summary, details, price=2.0)
    return "\n".join(
        [
            render_html(document),
            render_markdown(document),
            summary_csv(summary),
            summary_json(summary),
        ]
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return write(tmp_path_factory.mktemp("results") / "hostile")


@pytest.mark.parametrize("kind", KINDS)
def test_no_value_anywhere_in_a_record_breaks_the_summary(tmp_path: Path, kind: str) -> None:
    """Each place of a record with each value: read, summarized and written out; the cell is there
    whatever happens."""
    folder = write(tmp_path / "run", [kind], gpu_counts=[2])
    (entry,) = folder.experiment.plan
    path = folder.launch_directory(entry.cell, 0) / "record.json"
    content = json.loads(path.read_bytes())
    seen = set()
    for number, where in enumerate(places(content)):
        values = [
            value for value in tried(number) if not isinstance(value, str) or len(value) < 999
        ]
        damaged = [changed(content, where, value) for value in values]
        for one in [*damaged, without(content, where)]:
            path.write_text(json.dumps(one))
            summary = read_summary(folder.path)
            (cell,) = summary.in_plan_order
            if cell.state is State.OK or cell.state not in seen:
                assert build_document(summary).sections, where
                json.loads(summary_json(summary))
                summary_csv(summary)
            seen.add(cell.state)
    assert {State.OK, State.WAITING} <= seen


def test_no_value_anywhere_in_an_autopsy_breaks_the_report(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", ["training"], gpu_counts=[2])
    (entry,) = folder.experiment.plan
    path = folder.launch_directory(entry.cell, 0) / "record.json"
    verdict = explain_hang([waiting(0), rank(1, looped(19), IN_OWN_CODE)])
    hung = failed_record(trained(entry), State.TIMEOUT, "no progress").model_copy(
        update={"autopsy": verdict}
    )
    content = json.loads(hung.model_dump_json())
    seen = set()
    for number, where in enumerate(places(content["autopsy"], ("autopsy",))):
        for value in tried(number):
            path.write_text(json.dumps(changed(content, where, value)))
            summary = read_summary(folder.path)
            (cell,) = summary.in_plan_order
            if cell.state is State.TIMEOUT:
                document = build_document(summary)
                assert "<script>document" not in render_markdown(document)
                json.loads(summary_json(summary))
            seen.add(cell.state)
    assert seen == {State.TIMEOUT, State.WAITING}


def test_what_is_left_out_is_named(folder: RunFolder) -> None:
    entry = folder.experiment.plan[-1]
    path = folder.launch_directory(entry.cell, 0) / "record.json"
    original = path.read_bytes()
    content = json.loads(original)
    cases = {
        "schema version 99; this torchscale reads up to 2": changed(
            content, ["schema_version"], 99
        ),
        "payload.training.steps.seconds.p50": changed(
            content, ["payload", "steps", "seconds", "p50"], float("nan")
        ),
        "payload.training.ranks.0.batches.seconds.0": changed(
            content, ["payload", "ranks", 0, "batches", "seconds", 0], -3.0
        ),
        "payload.training.ranks.0.host_load.wall_seconds": changed(
            content, ["payload", "ranks", 0, "host_load", "wall_seconds"], 1e308
        ),
        "payload.training.ranks.0.warmup.seconds": changed(
            content, ["payload", "ranks", 0, "warmup", "seconds"], 1e29
        ),
        "unheard_of": {**content, "unheard_of": 1},
        "cell_id": without(content, ["cell_id"]),
    }
    try:
        for told, damaged in cases.items():
            path.write_text(json.dumps(damaged))
            summary = read_summary(folder.path)
            assert any(
                told in problem and entry.cell.id in problem for problem in summary.problems
            ), told
            assert told in report_of(folder)
        path.write_text(
            json.dumps(changed(content, ["payload", "ranks", 0, "batches", "seconds", 0], 1e9))
        )
        cell = read_summary(folder.path).cells[-1]
        assert cell.state is State.INVALID
        assert "contradicts itself" in cell.reason
    finally:
        path.write_bytes(original)


def test_no_value_anywhere_in_the_experiment_does_harm(tmp_path: Path) -> None:
    """What a run is about is either read as text, or refused with the place that is wrong."""
    folder = write(tmp_path / "run", ["training"], gpu_counts=[1])
    path = folder.path / "experiment.json"
    content = json.loads(path.read_bytes())
    read = 0
    for number, where in enumerate(places(content)):
        for value in tried(number):
            path.write_text(json.dumps(changed(content, where, value)))
            try:
                summary = read_summary(folder.path)
            except StoreError as error:
                assert "experiment.json" in error.message
                assert len(error.message) < 2_000
                continue
            read += 1
            build_document(summary)
    assert read > 100


def scripted(path: Path) -> RunFolder:
    """The same with a script in every text that is free."""
    write(path)
    for file in [path / "experiment.json", *path.glob("cells/*/launch-0/record.json")]:
        content = json.loads(file.read_bytes())
        kept = (
            "cell_id",
            "state",
            "plan",
            "config",
            "kind",
            "dtype",
            "operation",
            "stop_rule",
            "type",
            "started_at",
            "created_at",
        )
        for where in list(places(content)):
            value: Any = content
            for key in where:
                value = value[key]
            if isinstance(value, str) and not {*where} & {*kept}:
                content = changed(
                    content, where, SCRIPT if where[-1] != "topology" else SCRIPT * 10_000
                )
        file.write_text(json.dumps(content))
    return RunFolder.open(path)


def watch(page: Page) -> list[str]:
    """What the page says from now on: dialogs, the console, errors."""
    said: list[str] = []
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    return said


def test_scripts_in_every_text_run_nowhere(browser: Browser, tmp_path: Path) -> None:
    folder = scripted(tmp_path / "run")
    summary = read_summary(folder.path)
    assert summary.problems == (), "else the test would show nothing"
    details = read_details(
        folder.path, summary.experiment, [one.cell for one in detailed_cells(summary)]
    )
    document = build_document(summary, details)
    assert render_pdf(document).startswith(b"%PDF")
    side = load_source(str(folder.path)).model_copy(update={"name": SCRIPT})
    from torchscale.features.compare.analysis.compare import compare
    from torchscale.features.compare.analysis.differences import differences

    pair = compare(side, side.model_copy(update={"tool_version": SCRIPT * 2}))
    names = (SCRIPT, SCRIPT)
    found = tuple(differences([pair.reference, pair.other]))
    compared = comparison_document(ComparisonReport((pair,), found, names))
    for name, one in (("report", document), ("comparison", compared)):
        path = tmp_path / f"{name}.html"
        path.write_text(render_html(one))
        page = browser.new_page()
        said = watch(page)
        page.goto(path.as_uri())
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.title() != "taken"
        assert page.locator("img").count() == 0
        assert said == []
        page.close()
