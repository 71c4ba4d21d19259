"""Parts of the report that select, price and draw over time: from worked figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.factories import (
    cells,
    environment,
    experiment,
    experiment_file,
    failed_record,
    launch_nodes,
    launch_record,
    rank_record,
    training_result,
)
from tests.factories import run as make_run
from torchscale.analysis.summary.run import RunSummary, summarize
from torchscale.plan.expand import make_plan
from torchscale.report.build import build_document
from torchscale.report.charts import AnyChart, Chart
from torchscale.report.document import Bullets, ChartGrid, Document, Headline, Paragraph, Section
from torchscale.report.formats.charts.axes import y_frame
from torchscale.report.formats.html import render_html
from torchscale.report.formats.markdown import render_markdown
from torchscale.report.sections.batch_sizes import frontier_section
from torchscale.report.sections.cost import cost_section
from torchscale.report.sections.scaling import scaling_section
from torchscale.report.sections.selection import (
    MAX_DETAILED,
    MAX_LINES,
    MAX_PANELS,
    detailed_cells,
    selection_note,
    shown_panels,
    spread_out,
)
from torchscale.report.sections.telemetry import telemetry_section
from torchscale.report.table import Table
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.nodes import LaunchNode
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.signals import SignalDigest
from torchscale.schema.launch.telemetry import GpuReading, GpuUse, Reading, Telemetry
from torchscale.schema.node.environment import DeviceInfo
from torchscale.schema.node.machine import Machine
from torchscale.schema.run.content import CellRun, LaunchDetail, Run
from torchscale.schema.state import State


def many_cells(batch_sizes: int = 10) -> RunSummary:
    """That many batch sizes at 1 and 2 ranks of 16 models and settings, 320 cells; every 50th ran
    out of memory. Batch 1 of the last setting scales worst."""
    models = ["tiny-resnet", "tiny-gpt2", "resnet18", "resnet50"]
    config = experiment(
        models=models,
        batch_sizes=list(range(1, batch_sizes + 1)),
        gpu_counts=[1, 2],
        training={"precision": ["fp32", "bf16"], "optimizer": ["adamw", "sgd"]},
    )
    plan = make_plan(config, Machine(environment(cores=16), tuple(range(16)))).cells
    runs = []
    for number, entry in enumerate(plan):
        cell = entry.cell
        assert isinstance(cell, TrainingCell)
        slow = cell.world_size == 2 and cell.model == "resnet50" and cell.batch_size == 1
        record = launch_record(cell, batches=[10.0 if slow else 0.5 + number / 1000] * 10)
        if number % 50 == 49:
            record = failed_record(cell, State.OOM, "rank 0: CUDA out of memory")
        runs.append(CellRun(entry, (record,)))
    return summarize(Run("many", experiment_file(config, plan), tuple(runs)))


def charts(section: Section) -> list[AnyChart]:
    return [
        chart for block in section.blocks if isinstance(block, ChartGrid) for chart in block.charts
    ]


def rows(section: Section) -> list[list[str]]:
    (table,) = [block for block in section.blocks if isinstance(block, Table)]
    return [[value.text for value in row] for row in table.rows]


def section_of(document: Document, anchor: str) -> Section:
    (found,) = [section for section in document.sections if section.anchor == anchor]
    return found


def test_of_many_panels_those_that_scale_worst_are_drawn_and_the_rest_is_named() -> None:
    summary = many_cells()
    shown = shown_panels(summary)
    assert len(shown) == MAX_PANELS
    assert {title.split(",")[0] for title, _ in shown[:4]} == {"ResNet-50"}, "the slow ones lead"
    assert all(len(lines) == MAX_LINES for _, lines in shown)
    assert [lines[0][0].cell.batch_size for _, lines in shown][:1] == [1]
    words = selection_note(summary)
    assert "Charts show the 12 of 16 models and settings that scale worst." in words
    assert "The tables list every cell." in words
    assert len(detailed_cells(summary)) == MAX_DETAILED
    assert all(cell.cell.world_size == 2 for cell in detailed_cells(summary))


def test_few_panels_are_all_drawn_in_plan_order() -> None:
    summary = summarize(make_run(models=["tiny-gpt2", "tiny-resnet"], batch_sizes=[8, 16]))
    assert [title for title, _ in shown_panels(summary)] == [
        "tiny GPT-2, fp32",
        "tiny ResNet, fp32",
    ]
    assert selection_note(summary) == ""


@pytest.mark.parametrize(("counts", "drawn"), [([2], 0), ([1, 2], 2)])
def test_throughput_over_a_single_count_is_no_chart(counts: list[int], drawn: int) -> None:
    models = ["tiny-gpt2", "tiny-resnet"]
    section = scaling_section(summarize(make_run(models=models, gpu_counts=counts)))
    found = [chart for chart in charts(section) if chart.name.startswith("throughput")]
    assert len(found) == drawn
    texts = [block.text for block in section.blocks if isinstance(block, Paragraph)]
    assert any("needs two measured device counts" in text for text in texts) == (not drawn)


@pytest.mark.parametrize(("count", "limit"), [(3, 5), (5, 5), (100, 2), (17, 6), (1000, 12)])
def test_what_is_spread_out_keeps_both_ends_and_the_order(count: int, limit: int) -> None:
    found = spread_out(range(count), limit)
    assert (found[0], found[-1], len(found)) == (0, count - 1, min(count, limit))
    assert found == sorted(set(found))


def test_costs_are_those_of_the_measured_throughput() -> None:
    """80 samples a second on one device for $3.60 an hour: $0.001 a second, so 80,000 samples for a
    dollar."""
    plan = cells()
    summary = summarize(
        make_run({plan[0].id: [launch_record(plan[0])], plan[1].id: [launch_record(plan[1])]})
    )
    section = cost_section(summary, 3.6)
    assert rows(section) == [
        ["tiny ResNet, fp32, batch 8, 1 device", "3.60", "80,000", "–", "12.5"],
        ["tiny ResNet, fp32, batch 8, 2 devices", "7.20", "80,000", "–", "12.5"],
    ]
    (chart,) = charts(section)
    assert isinstance(chart, Chart)
    assert chart.series[0].y == pytest.approx((12.5, 12.5))
    assert cost_section(summary, None).blocks == ()


def test_energy_is_there_without_a_price() -> None:
    """1 kW over 10 s is 10 kJ for 800 samples: 12.5 J each, 3.47 kWh a million."""
    (cell,) = cells(gpu_counts=[1])
    use = GpuUse(uuid="GPU-0", energy_joules=10_000.0, throttle_reasons=())
    telemetry = Telemetry(
        seconds=10.0, readings=10, cpu_busy=0.5, memory_used_peak_bytes=1, gpus=(use,)
    )
    summary = summarize(
        make_run({cell.id: [launch_record(cell, telemetry=telemetry)]}, gpu_counts=[1])
    )
    assert rows(cost_section(summary, None)) == [
        ["tiny ResNet, fp32, batch 8, 1 device", "0.0800", "3.47"]
    ]


def test_nodes_are_side_by_side_and_the_one_that_differs_first() -> None:
    (cell,) = cells(gpu_counts=[4])

    def node(clock: float, joules: float) -> Telemetry:
        use = GpuUse(uuid="GPU-0", sm_clock_hertz=clock, energy_joules=joules, throttle_reasons=())
        return Telemetry(
            seconds=10.0, readings=10, cpu_busy=0.5, memory_used_peak_bytes=1, gpus=(use,)
        )

    machines = (node(1.98e9, 900.0), node(1.97e9, 900.0), node(1.2e9, 700.0), None)
    hosts = [
        LaunchNode(
            node_rank=rank, hostname=f"gpu-{rank}", address="10.0.0.1", first_rank=rank, ranks=1
        )
        for rank in range(4)
    ]
    record = launch_record(cell, telemetry=machines[0], node_telemetry=machines, nodes=tuple(hosts))
    section = telemetry_section(summarize(make_run({cell.id: [record]}, gpu_counts=[4])))
    (table,) = (block for block in section.blocks if isinstance(block, Table))
    names = [column.title for column in table.columns]
    shown = [(row[names.index("host")], row[names.index("SM clock")]) for row in rows(section)]
    assert shown == [("gpu-2", "1200 MHz"), ("gpu-0", "1980 MHz"), ("gpu-1", "1970 MHz")]
    assert {row[names.index("joules/step")] for row in rows(section)} == {"–"}, (
        "one node was not read"
    )


def test_what_the_sampler_says_of_gpus_is_cut_and_controls_nothing() -> None:
    (cell,) = cells(gpu_counts=[1])
    problem = "no NVML \x1b[31m\x07\0\x9b\u202e" + "x" * 1_000_000
    telemetry = Telemetry(
        seconds=10.0, readings=10, cpu_busy=0.5, memory_used_peak_bytes=1, gpus=(), problem=problem
    )
    section = telemetry_section(
        summarize(make_run({cell.id: [launch_record(cell, telemetry=telemetry)]}, gpu_counts=[1]))
    )
    (bullets,) = (block for block in section.blocks if isinstance(block, Bullets))
    (text,) = bullets.items
    assert text.startswith("No GPU telemetry: no NVML \ufffd[31m\ufffd\ufffd\ufffd\ufffdxxx")
    assert len(text) < 700


def test_the_frontier_marks_batches_that_ran_out_of_memory() -> None:
    plan = cells(batch_sizes=[8, 16, 32], gpu_counts=[1])
    launches = {
        plan[0].id: [launch_record(plan[0])],
        plan[1].id: [launch_record(plan[1])],
        plan[2].id: [failed_record(plan[2], State.OOM, "out of memory")],
    }
    section = frontier_section(
        summarize(make_run(launches, batch_sizes=[8, 16, 32], gpu_counts=[1]))
    )
    throughput, memory = charts(section)
    assert isinstance(throughput, Chart)
    assert isinstance(memory, Chart)
    assert [(one.x, one.y, one.marks) for one in throughput.series] == [
        ((8.0, 16.0), (80.0, 160.0), False),
        ((32.0,), (0.0,), True),
    ]
    assert (memory.y_label, memory.series[0].y) == ("B", (200.0, 200.0))
    assert rows(section) == [["tiny ResNet, fp32", "1", "16", "32"]]


def test_one_batch_size_has_no_frontier() -> None:
    assert frontier_section(summarize(make_run())).blocks == ()


def detailed(cell: TrainingCell) -> LaunchRecord:
    """Rank 1 computes longer; five batches of ten steps."""
    own = tuple(tuple(seconds for _ in range(5)) for seconds in (0.08, 0.09))
    signals = SignalDigest(compute=own, data_wait=((0.0,) * 5,) * 2)
    ranks = [
        rank_record(cell, rank, [1.0] * 5, measured_from=100.0, measured_until=105.0)
        for rank in range(cell.world_size)
    ]
    return launch_record(cell, batches=[1.0] * 5, ranks=ranks, signals=signals)


def readings(throttled: Sequence[bool]) -> tuple[Reading, ...]:
    return tuple(
        Reading(
            time=98.0 + number,
            cpu_busy=0.5,
            memory_used_bytes=1 << 30,
            gpus=(
                GpuReading(
                    uuid="GPU-0",
                    busy=0.9,
                    sm_clock_hertz=1.5e9,
                    throttle_reasons=("thermal",) if slow else (),
                ),
            ),
        )
        for number, slow in enumerate(throttled)
    )


def over_time_document() -> Document:
    """A cell of two ranks with telemetry, throttled at one reading."""
    plan = cells()
    summary = summarize(
        make_run({plan[0].id: [launch_record(plan[0])], plan[1].id: [detailed(plan[1])]})
    )
    detail = LaunchDetail(training_result(detailed(plan[1])), readings([False, True, False]))
    return build_document(summary, {plan[1].id: detail})


def test_ranks_batches_and_telemetry_are_drawn_over_time() -> None:
    found = {
        chart.title.rpartition(": ")[2]: chart
        for chart in charts(section_of(over_time_document(), "time"))
    }
    assert list(found) == ["step by rank", "over the measurement", "busy", "clock"]
    ranks, batches, busy, clock = found.values()
    for chart in (ranks, batches, busy, clock):
        assert isinstance(chart, Chart)
    assert isinstance(ranks, Chart)
    assert ranks.x_range[0] < 0, "rank 0 is not cut off by the axis"
    assert isinstance(batches, Chart)
    lines = {series.name: series for series in batches.series}
    assert lines["step"].x == lines["rank 1, compute"].x == (1.0, 2.0, 3.0, 4.0, 5.0)
    assert lines["step"].y == pytest.approx((100.0,) * 5)
    assert lines["rank 1, compute"].y == pytest.approx((90.0,) * 5)
    assert isinstance(busy, Chart)
    assert [series.x for series in busy.series if series.reference] == [(0.0, 0.0), (5.0, 5.0)]
    assert isinstance(clock, Chart)
    (marks,) = [series for series in clock.series if series.marks]
    assert (marks.x, marks.y) == ((-1.0,), (1500.0,))


def test_nodes_that_differ_are_named() -> None:
    (cell,) = [one for one in cells() if one.world_size == 2]
    other = DeviceInfo(kind="cpu", index=0, name="Other Processor")
    elsewhere: dict[str, Any] = {
        "hostname": "node-2",
        "node_rank": 1,
        "device": other,
        "threads": 4,
    }
    ranks = [rank_record(cell, 0), rank_record(cell, 1, **elsewhere)]
    record = launch_record(cell, ranks=ranks, nodes=launch_nodes("node-1", "node-2"))
    section = section_of(
        build_document(summarize(make_run({cell.id: [record]}))),
        "environment",
    )
    tables = [block for block in section.blocks if isinstance(block, Table)]
    (nodes,) = [table for table in tables if table.caption == "Machines"]
    text = [[value.text for value in row] for row in nodes.rows]
    assert [row[0] for row in text] == ["node-1", "node-2"]
    assert "Other Processor" in text[1]
    assert Paragraph("The machines differ in devices.") in section.blocks


def test_an_interval_wider_than_its_value_is_shown_by_its_ends_and_drawn_to_the_frame() -> None:
    """Two launches, one twice as fast: t with one degree of freedom is 12.7, so the interval
    reaches a factor of 82."""
    plan = cells()
    launches = {
        cell.id: [launch_record(cell, 0), launch_record(cell, 1, [0.5] * 10)] for cell in plan
    }
    document = build_document(summarize(make_run(launches, benchmark={"repeats": 2})))
    scaling = section_of(document, "scaling")
    drawn = [chart for chart in charts(scaling) if isinstance(chart, Chart)]
    assert all(y_frame(chart) is not None for chart in drawn)
    (throughput,) = [chart.series[0] for chart in drawn if chart.name.startswith("throughput")]
    assert all(
        low < y < high
        for low, y, high in zip(throughput.low, throughput.y, throughput.high, strict=True)
    )
    assert any(
        "Some intervals are wider than the value itself" in block.text
        for block in scaling.blocks
        if isinstance(block, Paragraph)
    )
    text = render_markdown(document)
    assert document.overview is not None
    assert document.overview.headline == Headline(
        "Scaling to 2 CPU ranks cannot be judged: launches differ by more than the efficiency "
        "itself, 100.0 % (12 to 824 %)."
    )
    assert "1 efficiency is uncertain by more than the value" in text
    assert "113 (1.38 to 9,249)" in text
    assert "100.0 % (12 to 824 %)" in text


def test_a_long_table_is_cut_on_paper_and_says_so() -> None:
    text = render_markdown(build_document(many_cells()))
    assert "Showing the first 300 of 320 rows" in text


def test_a_long_table_is_filtered_sorted_and_turned_in_the_browser(
    browser: Browser, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_html(build_document(many_cells())))
    page = browser.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(path.as_uri())
    section = page.locator("section[aria-labelledby=all-cells]")
    section.locator("summary").first.click()
    shown = section.locator("table.searchable tbody tr")
    count = section.get_by_role("status").first
    assert shown.count() == 100

    section.get_by_role("button", name="Next rows").click()
    assert section.get_by_text("rows 101 to 200").is_visible()
    section.get_by_role("button", name="Next rows").click()
    section.get_by_role("button", name="Next rows").click()
    assert section.get_by_text("rows 301 to 320").is_visible()
    assert shown.count() == 20
    assert section.get_by_role("button", name="Next rows").is_disabled()

    section.get_by_label("Filter").fill("state:oom")
    assert count.inner_text() == "6 of 320 rows"
    assert set(section.locator("tbody td:nth-child(5)").all_inner_texts()) == {"oom"}
    section.get_by_label("Filter").fill("model:resnet50 batch:1 bf16")
    assert count.inner_text() == "4 of 320 rows", "1 and not 10: a number is asked for as a whole"

    section.get_by_label("Filter").fill("")
    section.get_by_role("button", name="samples/s").click()
    rates = [
        float(text.split()[0])
        for text in section.locator("tbody td:nth-child(6)").all_inner_texts()
    ]
    assert rates == sorted(rates)
    assert rates[0] == pytest.approx(2.0)
    assert said == []
    page.close()
