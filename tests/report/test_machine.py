"""What the machine can do, in every form of the report: from records written down, hostile text
among them."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from tests.factories import (
    cells,
    experiment,
    experiment_file,
    launch_record,
    machine,
    rank_identity,
    rank_record,
)
from torchscale.analysis.summary.run import RunSummary, summarize
from torchscale.features.machine.collectives.report import outcome as collectives_outcome
from torchscale.features.machine.collectives.terminal import print_collectives
from torchscale.features.machine.hardware.report import outcome as hardware_outcome
from torchscale.features.machine.text import point_flag_lines
from torchscale.plan.expand import make_plan
from torchscale.report.build import build_document
from torchscale.report.charts import Chart, log_ticks
from torchscale.report.document import ChartGrid, Document
from torchscale.report.formats.console import print_document
from torchscale.report.formats.export import summary_csv
from torchscale.report.formats.html import render_html
from torchscale.report.formats.machine_export import ceilings_json
from torchscale.report.formats.markdown import render_markdown
from torchscale.report.formats.report_export import summary_json
from torchscale.report.sections.first_screen.status import statuses
from torchscale.report.table import Table
from torchscale.schema.cells.checkpoint import (
    AsyncSaveSample,
    CheckpointCell,
    CheckpointRank,
    CheckpointResult,
    LoadSample,
    SaveSample,
)
from torchscale.schema.cells.collectives import (
    CollectiveSample,
    CollectivesCell,
    CollectivesRank,
    CollectivesResult,
    PairSample,
)
from torchscale.schema.cells.hardware import (
    CopySample,
    DiskSample,
    HardwareCell,
    HardwareRank,
    HardwareResult,
    MatmulSample,
)
from torchscale.schema.cells.kinds import AnyCell, AnyPayload
from torchscale.schema.cells.memory import (
    MemoryCell,
    MemoryParts,
    MemoryRank,
    MemoryResult,
    PredictedMemory,
)
from torchscale.schema.launch.rank import FlopCount, HostLoad
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.telemetry import GpuUse, Telemetry
from torchscale.schema.run.content import CellRun, Run
from torchscale.schema.state import State

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
MIB = 1 << 20


def collectives(rank: int) -> CollectivesRank:
    def sample(operation: str, size: int, seconds: float) -> CollectiveSample:
        return CollectiveSample.model_validate(
            {
                "operation": operation,
                "dtype": "fp32",
                "payload_bytes": size,
                "elements": size // 4,
                "in_place": True,
                "mean_seconds": seconds,
                "call_seconds": (seconds, 2 * seconds),
                "wrong_elements": None if operation == "barrier" else 0,
            }
        )

    sizes = [1024 << power for power in range(5)]
    pair = PairSample(
        source=(rank + 1) % 2,
        target=rank,
        payload_bytes=MIB,
        seconds=1e-3,
        latency_seconds=1e-5,
        wrong_elements=0,
    )
    return CollectivesRank(
        **rank_identity(rank, 2),
        samples=(
            *(sample("all_reduce", size, 1e-5 + size / 1e9) for size in sizes),
            sample("barrier", 0, 1e-4),
        ),
        pairs=(pair,),
        unsupported={"all_to_all fp32": HOSTILE},
        topology=HOSTILE,
    )


def hardware(rank: int, world_size: int) -> HardwareRank:
    return HardwareRank(
        **rank_identity(rank, world_size),
        matmuls=(
            MatmulSample(
                dtype="fp32", m=1000, n=1000, k=1000, warm_seconds=(1e-2,), cold_seconds=(2e-2,)
            ),
        ),
        copies=(CopySample(kind="device", payload_bytes=MIB, seconds=(1e-4,)),),
        disk=DiskSample(
            path=HOSTILE,
            payload_bytes=MIB,
            write_seconds=1e-2,
            read_seconds=1e-3,
            resident_share=0.5,
        ),
    )


def memory(rank: int, world_size: int) -> MemoryRank:
    parts = MemoryParts(
        parameters=MIB,
        buffers=0,
        gradients=MIB,
        optimizer_states=2 * MIB,
        activations=None if rank else 3 * MIB,
    )
    predicted = PredictedMemory(parts=parts, peak_bytes=9 * MIB, method="a test")
    return MemoryRank(
        **rank_identity(rank, world_size),
        parts=parts,
        peak_bytes=10 * MIB,
        predicted=None if rank else predicted,
    )


def checkpoint(rank: int, world_size: int, device_bytes: int = 4 * MIB) -> CheckpointRank:
    """Three saves of 4 MiB a rank in 0.5 s, and as many loads in 0.25 s; asynchronous ones take a
    quarter of the rate of steps."""
    save = SaveSample(
        payload_bytes=4 * MIB,
        write_seconds=0.4,
        write_cpu_seconds=0.3,
        seconds=0.5,
        stop_seconds=0.6,
    )
    load = LoadSample(
        payload_bytes=4 * MIB,
        read_seconds=0.2,
        read_cpu_seconds=0.1,
        seconds=0.25,
        resident_share=0.0,
        device_bytes=device_bytes,
        restored=True,
    )
    asynchronous = AsyncSaveSample(
        payload_bytes=4 * MIB,
        stop_seconds=0.1,
        durable_seconds=2.0,
        before=(0.3,) * 10,
        during=(0.4,) * 4,
        after=(0.3,) * 10,
        host_bytes=4 * MIB,
    )
    return CheckpointRank(
        **rank_identity(rank, world_size),
        place=HOSTILE,
        filesystem="ext4",
        state_bytes=4 * world_size * MIB,
        saves=(save,) * 3,
        async_saves=(asynchronous,),
        loads=(load,) * 3,
    )


def record(cell: AnyCell, telemetry: Telemetry) -> LaunchRecord:
    """An ``ok`` launch of any kind of cell."""
    count = cell.world_size
    if isinstance(cell, CollectivesCell | HardwareCell | MemoryCell | CheckpointCell):
        (other,) = make_plan(experiment(gpu_counts=1), machine()).training
        measured: AnyPayload
        if isinstance(cell, CollectivesCell):
            measured = CollectivesResult(ranks=tuple(collectives(rank) for rank in range(count)))
        elif isinstance(cell, HardwareCell):
            measured = HardwareResult(ranks=tuple(hardware(rank, count) for rank in range(count)))
        elif isinstance(cell, CheckpointCell):
            measured = CheckpointResult(
                ranks=tuple(checkpoint(rank, count) for rank in range(count))
            )
        else:
            measured = MemoryResult(ranks=tuple(memory(rank, count) for rank in range(count)))
        return launch_record(other, cell_id=cell.id, payload=measured)
    flops = FlopCount(forward=1e9, backward=2e9, sample_bytes=1e8, fixed_bytes=1e8)
    ranks = [rank_record(cell, rank, flops=flops if rank == 0 else None) for rank in range(count)]
    return launch_record(cell, ranks=ranks, telemetry=telemetry)


def machine_summary(**content: Any) -> RunSummary:
    """Every kind of cell, at 1 and 2 ranks; the memory of batch 16 could not be measured."""
    kinds = ["hardware", "collectives", "memory", "checkpoint", "training"]
    config = experiment(measure=kinds, batch_sizes=[8, 16], **content)
    plan = make_plan(config, machine(cores=2)).cells
    use = GpuUse(
        uuid="GPU-1",
        busy=0.9,
        power_watts=500.0,
        energy_joules=5000.0,
        throttle_reasons=(),
        throttled_share=0.0,
    )
    telemetry = Telemetry(
        seconds=10.0, readings=10, cpu_busy=0.5, memory_used_peak_bytes=MIB, gpus=(use,)
    )
    runs = []
    for entry in plan:
        found = record(entry.cell, telemetry)
        if isinstance(entry.cell, MemoryCell) and entry.cell.training.batch_size == 16:
            found = found.model_copy(update={"state": State.OOM, "reason": HOSTILE, "memory": ()})
        runs.append(CellRun(entry, (found,)))
    return summarize(Run("run", experiment_file(config, plan), tuple(runs)))


@pytest.fixture(scope="module")
def summary() -> RunSummary:
    return machine_summary()


def test_the_link_is_a_line_in_the_chart_where_it_is_known(document: Document) -> None:
    def busbw(found: Document) -> Chart:
        charts = [chart for section in found.sections if section.anchor == "collectives" for block in section.blocks
                  if isinstance(block, ChartGrid) for chart in block.charts]  # fmt: skip
        (chart,) = charts
        assert isinstance(chart, Chart)
        return chart

    assert not [series for series in busbw(document).series if series.reference]
    known = build_document(machine_summary(hardware={"link_bytes_per_second": 2e9}))
    (line,) = [series for series in busbw(known).series if series.reference]
    assert (line.name, set(line.y), line.legend) == ("the declared link", {2.0}, True)
    assert "the declared link" in render_html(known)


def test_the_share_of_the_link_is_shown_where_its_rate_is_known(
    summary: RunSummary, document: Document, capsys: pytest.CaptureFixture[str]
) -> None:
    """16 KiB in 10 µs + 16 KiB ÷ 1 GB/s, on a link that is declared to carry 1.2 GB/s."""
    known = machine_summary(hardware={"link_bytes_per_second": 1.2e9})
    (sweep,) = known.collectives
    assert sweep.figures is not None
    peak = sweep.figures.curves[0].peak
    share = 16384 / (1e-5 + 16384 / 1e9) / 1.2e9
    assert 0.51 < share < 0.52
    assert peak.link_share == pytest.approx(share)
    (row, barrier) = table(build_document(known), "Collectives")
    assert (row[5], barrier[5]) == ("52 %", "–")
    content = json.loads(summary_json(known))
    points = next(cell for cell in content["machine"] if cell["cell"]["kind"] == "collectives")[
        "figures"
    ]["curves"]
    assert points[0]["points"][-1]["link_share"] == pytest.approx(share)
    assert points[1]["points"][0]["link_share"] is None, "a barrier carries nothing"
    print_collectives(known.collectives, Console(width=140))
    assert "highest 621 MB/s (52 % of the declared link)" in capsys.readouterr().out
    assert len(table(document, "Collectives")[0]) == len(row) - 1, (
        "without a known link there is no column"
    )
    (unknown,) = summary.collectives
    assert unknown.figures is not None
    assert unknown.figures.curves[0].peak.link_share is None


@pytest.fixture(scope="module")
def document(summary: RunSummary) -> Document:
    return build_document(summary)


def table(document: Document, caption: str) -> list[list[str]]:
    found = [
        block
        for section in document.sections
        for block in section.blocks
        if isinstance(block, Table)
    ]
    (chosen,) = [one for one in found if one.caption.startswith(caption)]
    return [[value.text for value in row] for row in chosen.rows]


def test_sections_and_charts_are_there(document: Document) -> None:
    titles = [section.title for section in document.sections]
    for title in ("Compute", "Memory", "Checkpoints", "Telemetry", "Peak rates", "Collectives"):
        assert title in titles
    charts = [chart.name for section in document.sections for block in section.blocks
              if isinstance(block, ChartGrid) for chart in block.charts]  # fmt: skip
    assert "roofline" in charts
    assert "memory-parts" in charts
    assert any(name.startswith("busbw") for name in charts)
    assert len(charts) == len(set(charts))


def test_tables_say_what_the_records_hold(document: Document) -> None:
    compute = table(document, "Compute")
    # 3 GFLOP a sample, 8 samples in 0.1 s on each device, against 200 GFLOP/s measured (2 GFLOP in
    # 10 ms).
    assert compute[0][4:7] == ["24.0 GFLOP", "240 GFLOP/s", "120.0 %"]
    memory_rows = table(document, "Memory by part")
    assert memory_rows[0][4:] == [
        "1.00 MiB",
        "1.00 MiB",
        "2.00 MiB",
        "3.00 MiB",
        "10.0 MiB",
        "–",
        "9.00 MiB",
        "-10.0 %",
    ]
    assert [row[1:] for row in table(document, "Largest batch sizes")] == [
        ["1", "16", "16"],
        ["2", "16", "16"],
    ]
    assert table(document, "Matmuls")[0][1:5] == [
        "fp32",
        "200 GFLOP/s",
        "1000×1000×1000",
        "100 GFLOP/s",
    ]
    assert table(document, "Bandwidth of")[0][1:] == ["–", "1.05 GB/s"]
    collective = table(document, "Collectives")
    assert collective[0][:3] == ["all_reduce", "fp32", "11.0 µs"]
    assert collective[0][7] == "10.0 µs + bytes ÷ 1.00 GB/s (off by 0 %)"
    assert collective[1][0] == "barrier"
    # 8 MiB of two ranks in 0.5 s and 0.25 s; 2.5 of 3.33 steps per second during a save.
    two = table(document, "Checkpoints")[1]
    assert two[5:] == [
        "8.00 MiB",
        "16.8 MB/s",
        "33.6 MB/s",
        "600 ms",
        "100 ms",
        "2.00 s",
        "25 % slower",
        "8.00 MiB",
    ]
    assert table(document, "Each rank")[1][4:] == [
        "0",
        "4.00 MiB",
        "10.5 MB/s",
        "21.0 MB/s",
        "75 %",
        "50 %",
    ]
    telemetry = table(document, "Telemetry")[0]
    assert telemetry[4:12] == ["90 %", "–", "500 W", "–", "–", "0 %", "50.0", "0.160"]


def test_hostile_text_does_nothing_anywhere(summary: RunSummary, document: Document) -> None:
    page = render_html(document)
    assert "<script>alert(1)" not in page
    assert "<img src=x" not in page
    fenced = render_markdown(document).split("```")
    assert all(
        "<script>" not in text for text in fenced[::2]
    )  # between fences it is shown and not read
    json.loads(summary_json(summary))


def test_machines_get_everything(summary: RunSummary) -> None:
    content = json.loads(summary_json(summary))
    kinds = [cell["cell"]["kind"] for cell in content["machine"]]
    assert sorted(set(kinds)) == ["checkpoint", "collectives", "hardware", "memory"]
    sweep = next(cell for cell in content["machine"] if cell["cell"]["kind"] == "collectives")
    assert sweep["figures"]["curves"][0]["points"][0]["busbw"] == pytest.approx(
        1024 / (1e-5 + 1024 / 1e9)
    )
    assert sweep["figures"]["pairs"][0]["payload_bytes"] == MIB
    assert content["cells"][0]["compute"]["mfu"] == pytest.approx(1.2)
    rows = list(csv.DictReader(io.StringIO(summary_csv(summary))))
    assert [row["cell_id"] for row in rows] == [one.cell.id for one in summary.in_plan_order]
    (first, *_) = [row for row in rows if row["kind"] == "training"]
    assert float(first["joules_per_step"]) == pytest.approx(50)
    assert float(first["gpu_power_watts"]) == 500
    assert first["cpu_busy"] == "0.5"


def test_the_terminal_shows_them(summary: RunSummary, capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(width=140)
    print_document(build_document(summary), console)
    print_collectives(summary.collectives, console)
    text = capsys.readouterr().out
    assert "within the device, read + written" in text
    assert re.search(r"tiny-resnet .* 10\.0 MiB +9\.00 MiB +-10\.0 %", text)
    assert "120.0 %" in text
    assert "#wrong" in text
    assert "oom: memory of tiny ResNet at batch 16, 1 device" in text
    assert summary.cells[-1].cell.model == "tiny-resnet"


def disturbed(monkeypatch: pytest.MonkeyPatch) -> RunSummary:
    """Half of the cores went to others while the two largest sizes and the products were
    measured."""
    load = HostLoad(wall_seconds=1.0, busy_seconds=1.0, process_seconds=0.5, cores=1, pinned=True)
    quiet, device = collectives, hardware

    def beside_others(rank: int) -> CollectivesRank:
        found = quiet(rank)
        large = [one.model_copy(update={"host_load": load}) for one in found.samples[3:5]]
        return found.model_copy(
            update={"samples": (*found.samples[:3], *large, *found.samples[5:])}
        )

    def device_beside_others(rank: int, world_size: int) -> HardwareRank:
        return device(rank, world_size).model_copy(update={"host_load": load})

    monkeypatch.setattr(sys.modules[__name__], "collectives", beside_others)
    monkeypatch.setattr(sys.modules[__name__], "hardware", device_beside_others)
    return machine_summary()


def test_what_others_disturbed_is_marked_everywhere_and_is_no_headline(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = disturbed(monkeypatch)
    (sweep,) = summary.collectives
    outcome = collectives_outcome(sweep)
    assert (
        "bus bandwidth (all_reduce of 4.00 KiB); 2 of 6 sizes contended, left out of the highest "
        "bandwidth" in outcome
    )
    text = render_markdown(build_document(summary))
    assert "all\\_reduce of 8 KiB to 16 KiB" in text
    assert re.search(r"\| 16.0 KiB \| [\d.]+ MB/s\\\* \|", text)
    assert re.search(r"\| 4.00 KiB \| [\d.]+ MB/s \|", text)
    assert "1 device at once, contended: other processes kept ranks waiting" in text
    console = Console(width=80)
    print_collectives(summary.collectives, console)
    print_document(build_document(summary), console)
    shown = capsys.readouterr().out
    assert "26.4*" in shown and "14.1 " in shown
    assert "(of 3 of 5 sizes without a warning)" in shown
    assert "1 device at once, contended: other processes" in shown
    exported = json.loads(ceilings_json([sweep, *summary.hardware]))
    assert [one["flags"] for one in exported] == [[], ["contended"], ["contended"]]
    points = exported[0]["figures"]["curves"][0]["points"]
    assert [one["flags"] for one in points] == [[], [], [], ["contended"], ["contended"]]
    assert hardware_outcome(summary.hardware[0]).endswith("  warning: contended")


def test_a_dtype_a_warning_and_a_missing_verdict_are_said_once(
    summary: RunSummary, monkeypatch: pytest.MonkeyPatch
) -> None:
    captions = [
        block.caption
        for section in build_document(summary).sections
        if section.anchor == "collectives"
        for block in section.blocks
        if isinstance(block, Table)
    ]
    assert any(caption.startswith("Bus bandwidth by size, 2 ranks") for caption in captions)
    assert all(caption.count("fp32") == 1 for caption in captions), captions
    (link,) = [row for row in statuses(only_machine(summary), ()) if row.question == "Link?"]
    assert (link.answer, link.text.partition(" ")[0]) == ("not judged", "its")
    (sweep,) = summary.collectives
    assert sweep.figures is not None
    flagged = [
        replace(curve, points=tuple(replace(one, flags=("contended",)) for one in curve.points))
        for curve in sweep.figures.curves
    ]
    figures = replace(sweep.figures, curves=tuple(flagged))
    shown = render_markdown(
        build_document(
            replace(summary, in_plan_order=(replace(sweep, figures=figures),), problems=())
        )
    )
    assert shown.count("every size contended") == 1
    assert "contended (other processes took" in shown


def only_machine(summary: RunSummary) -> RunSummary:
    return replace(summary, in_plan_order=summary.machine)


def test_a_flag_names_the_dtype_where_there_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = disturbed(monkeypatch).collectives[0].figures
    assert figures is not None
    one = replace(figures, curves=figures.curves[:1])
    (line,) = point_flag_lines(one)
    assert line.endswith("all_reduce of 8 KiB to 16 KiB")
    two = replace(one, curves=(one.curves[0], replace(one.curves[0], dtype="bf16")))
    (line,) = point_flag_lines(two)
    assert line.endswith(
        "all_reduce fp32 of 8 KiB to 16 KiB and all_reduce bf16 of 8 KiB to 16 KiB"
    )


def test_memory_of_two_precisions_has_two_labels() -> None:
    plain, half = (
        MemoryCell(training=cells(gpu_counts=[1], training={"precision": precision})[0])
        for precision in ("fp32", "bf16")
    )
    assert (plain.settings, half.settings) == ((), ("bf16",))


def test_logarithmic_axes_are_marked_in_plain_numbers() -> None:
    assert log_ticks([3.6, 5.7, 12.0]) == (2.0, 5.0, 10.0, 20.0)
    assert log_ticks([1024.0, 64 * MIB]) == (1e3, 1e4, 1e5, 1e6, 1e7, 1e8)
    assert log_ticks([0.0]) == ()
