"""Launches of collectives: NCCL's variables and log, and whether every result was right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torchscale.features.machine.collectives.nccl_log import read_nccl_log
from torchscale.schema.cells.collectives import CollectivesCell, CollectivesRank, CollectivesResult
from torchscale.util.units import format_bytes


def environment(cell: CollectivesCell) -> Mapping[str, str]:
    """NCCL's choice of algorithm and protocol, and its log. NCCL reads them once in a process."""
    chosen = {"NCCL_ALGO": cell.algorithm, "NCCL_PROTO": cell.protocol}
    # Channels and transports are logged while NCCL connects; TUNING adds a line to every call, and
    # COLL the operation, which TUNING itself does not name before NCCL 2.23.
    subsystems = "INIT,GRAPH,TUNING,COLL" if cell.logs_choices else "INIT,GRAPH"
    return {
        **{name: value for name, value in chosen.items() if value is not None},
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": subsystems,
    }


def collect_payload(directory: Path, ranks: Sequence[CollectivesRank]) -> CollectivesResult:
    """The ranks' records and NCCL's log."""
    log = read_nccl_log(directory, ranks[0].world_size) if ranks else None
    return CollectivesResult(ranks=tuple(ranks), nccl_log=log)


def measured_window(payload: CollectivesResult) -> None:
    """``None``: no telemetry is read."""


def invalid_reason(payload: CollectivesResult) -> str:
    """The first wrong result; empty where all were right."""
    return next(filter(None, map(_wrong_result, payload.ranks)), "")


def _wrong_result(record: CollectivesRank) -> str:
    for sample in record.samples:
        if sample.wrong_elements:
            what = f"{sample.operation} of {format_bytes(sample.payload_bytes)} in {sample.dtype}"
            return f"{what}: {sample.wrong_elements:,} wrong elements on rank {record.rank}"
    for pair in record.pairs:
        if pair.wrong_elements:
            what = f"a message from rank {pair.source} to {pair.target}"
            return f"{what}: {pair.wrong_elements:,} wrong elements"
    return ""


def clean_up(cell: CollectivesCell, directory: Path) -> None:
    """Nothing: these ranks write into the launch's directory alone."""
