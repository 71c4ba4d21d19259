"""The table of experts: tokens, devices, active parameters."""

from __future__ import annotations

from typing import Any

from tests.analysis.training.test_expert_load import USE, digest
from tests.factories import cells, launch_record, rank_record, run
from torchscale.analysis.summary.run import RunSummary, summarize
from torchscale.report.document import Paragraph
from torchscale.report.formats.report_export import report_export
from torchscale.report.sections.experts import experts_section
from torchscale.report.table import Table

TITLES = [
    "parameters",
    "active",
    "experts",
    "hottest",
    "which",
    "mean of layers",
    "busiest device",
    "time in experts",
]


def expert_run(degree: int = 2) -> RunSummary:
    content: dict[str, Any] = {
        "models": "tiny-moe",
        "gpu_counts": [2],
        "parallel": {"strategy": "ep" if degree > 1 else "ddp"},
    }
    (cell,) = cells(**content)
    use = USE.model_copy(update={"degree": degree})
    ranks = [
        rank_record(
            cell,
            rank,
            parameters=1_500_000_000,
            active_parameters=900_000_000,
            experts=use if rank == 0 else None,
        )
        for rank in range(2)
    ]
    return summarize(
        run({cell.id: [launch_record(cell, ranks=ranks, signals=digest(2))]}, **content)
    )


def row(summary: RunSummary) -> dict[str, str]:
    section = experts_section(summary)
    table = next(block for block in section.blocks if isinstance(block, Table))
    (values,) = table.rows
    return {column.title: value.text for column, value in zip(table.columns, values, strict=True)}


def test_a_row_tells_hot_experts_and_busy_devices() -> None:
    found = row(expert_run())
    assert [found[title] for title in TITLES] == [
        "1.5 B",
        "900.0 M",
        "2 of 4 in 4 layers",
        "2.67×",
        "layer 3, expert 3",
        "2.33×",
        "1.09× (rank 1)",
        "11.0 %",
    ]
    assert experts_section(expert_run()).key == "hottest expert 2.67× an even share"


def test_devices_are_shown_where_experts_are_spread() -> None:
    whole = experts_section(expert_run(degree=1))
    (note,) = (block for block in whole.blocks if isinstance(block, Paragraph))
    assert "Busiest device" not in str(note)
    assert "busiest device" not in row(expert_run(degree=1))


def test_no_section_without_experts() -> None:
    assert experts_section(summarize(run())).blocks == ()


def test_other_programs_read_the_same() -> None:
    (cell,) = report_export(expert_run()).cells
    assert cell.figures is not None
    experts = cell.figures.experts
    assert experts is not None
    assert (experts.hottest.layer, experts.hottest.expert) == (3, 3)
    assert experts.active_parameters == 900_000_000
