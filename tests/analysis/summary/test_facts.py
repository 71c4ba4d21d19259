from __future__ import annotations

from tests.factories import cells, launch_record, rank_record, summarize_cell
from torchscale.schema.launch.rank import HostLoad
from torchscale.schema.run.content import CellRun
from torchscale.schema.run.experiment_file import PlannedCell


def test_each_launch_keeps_the_conditions_that_it_was_measured_under() -> None:
    """The second launch had a core of which other processes took two thirds."""
    cell, _ = cells()
    busy = HostLoad(wall_seconds=15.0, busy_seconds=15.0, process_seconds=5.0, cores=1, pinned=True)
    launches = (
        launch_record(cell),
        launch_record(cell, 1, ranks=[rank_record(cell, host_load=busy)]),
    )
    facts = summarize_cell(CellRun(PlannedCell(cell=cell), launches)).facts
    quiet, contended = facts.launches
    assert (quiet.flags, quiet.other_processes) == ((), 0.0)
    assert contended.flags == ("contended",)
    assert contended.other_processes is not None
    assert round(contended.other_processes, 2) == 0.67


def test_a_part_of_the_launches_is_compared_too() -> None:
    cell, _ = cells()
    summary = summarize_cell(
        CellRun(PlannedCell(cell=cell), (launch_record(cell), launch_record(cell, 1))), 3
    )
    assert summary.state.value == "partial"
    assert len(summary.facts.launches) == 2


def test_nodes_of_one_host_name_are_told_apart_by_their_rank() -> None:
    _, cell = cells()
    ranks = [rank_record(cell, rank) for rank in range(2)]
    assert (
        summarize_cell(
            CellRun(PlannedCell(cell=cell), (launch_record(cell, ranks=ranks),))
        ).facts.node_count
        == 1
    )
    apart = [rank.model_copy(update={"node_rank": rank.rank}) for rank in ranks]
    assert (
        summarize_cell(
            CellRun(PlannedCell(cell=cell), (launch_record(cell, ranks=apart),))
        ).facts.node_count
        == 2
    )
