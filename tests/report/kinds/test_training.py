"""What is said of a training launch as soon as it has ended."""

from __future__ import annotations

from tests.factories import cells, launch_record, rank_record, run
from torchscale.analysis.summary.run import summarize
from torchscale.report.kinds.training import outcome
from torchscale.schema.launch.rank import HostLoad


def test_a_launch_that_cannot_be_is_told_when_it_ends() -> None:
    """As in every report that follows: its batches took longer than their measurement."""
    cell = cells()[0]
    load = HostLoad(wall_seconds=1.0, busy_seconds=0.0, process_seconds=0.0, cores=1, pinned=False)
    record = launch_record(cell, ranks=[rank_record(cell, 0, host_load=load)])
    (summary, _) = summarize(run({cell.id: [launch_record(cell)]})).cells
    assert outcome(summary).startswith("80.0 samples/s"), "of the launches before it"
    assert outcome(summary, record).startswith("invalid: the record contradicts itself")
    assert "of the measurement" in outcome(summary, record)
