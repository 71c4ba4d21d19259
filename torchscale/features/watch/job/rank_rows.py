"""Each rank's mean step, and what its process used."""

from __future__ import annotations

from torchscale.analysis.exchanges.steps import JobSteps, WaitsBy
from torchscale.features.watch.job.attempts import Attempt
from torchscale.schema.watch.report import WatchedRank


def rank_rows(attempt: Attempt, table: JobSteps) -> list[WatchedRank]:
    """A row for each rank of an attempt, of the steps in ``table``."""
    blame = table.blame.sum(axis=1)
    shares = blame / max(float(blame.sum()), 1e-12)
    by_lengths = table.waits_by is WaitsBy.LENGTHS
    own = table.calm - table.data if by_lengths else table.own
    knows_waits = table.waits_by is not WaitsBy.NOTHING
    knows_transfers = knows_waits and not by_lengths
    return [
        WatchedRank(
            rank=rank,
            host=stream.facts.host,
            pid=stream.facts.pid,
            own_seconds=max(0.0, float(own[row].mean())),
            data_seconds=float(table.data[row].mean()),
            wait_seconds=float(table.wait[row].mean()) if knows_waits else None,
            transfer_seconds=float(table.transfer[row].mean()) if knows_transfers else None,
            bubble_seconds=float(table.bubble[row].mean()),
            blame=float(shares[row]) if knows_waits else None,
            cpu_seconds=stream.use.cpu_seconds,
            peak_memory_bytes=stream.use.peak_memory_bytes,
            lost_calls=stream.use.lost_calls,
            recorders=stream.use.recorders,
            problem=stream.facts.problem,
        )
        for row, (rank, stream) in enumerate(attempt.follower.streams.items())
    ]
