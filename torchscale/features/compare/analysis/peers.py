"""Where a machine lies among others: for each figure the share of machines that are worse, among
those that measured it under the same conditions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchscale.analysis.stats.series import geometric_mean
from torchscale.analysis.stats.shares import share_interval
from torchscale.analysis.summary.conditions import over_sessions, session_facts
from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.headlines import decides
from torchscale.features.compare.analysis.matching import workload_key
from torchscale.features.compare.analysis.transports import are_other_ways
from torchscale.features.compare.peers_schema import LeftOutMachine, MachinePlace, PeersExport
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import ResultCell, ResultSet
from torchscale.schema.state import State

WIDEST = 0.5
"""A wider interval tells nothing: "between the 20th and the 80th of a hundred" is no place."""
TRANSPORT = "transport"
_SOFTWARE = ("CUDA", "ROCm", "NCCL", "driver")
"""Facts of a session that, beside torch, can change a figure from machine to machine."""


@dataclass(frozen=True)
class PeerMachine:
    """A machine's results. ``name`` tells it from the others."""

    name: str
    results: ResultSet

    @property
    def host(self) -> str:
        """Its name; empty where it is not recorded."""
        if self.results.environment is None:
            return ""
        return self.results.environment.hostname


def machine_places(
    here: PeerMachine, others: Sequence[PeerMachine], metrics: Sequence[Metric]
) -> PeersExport:
    """The place of every figure that decides.

    Args:
        here: The machine whose place is asked for.
        others: The other machines.
        metrics: What decides; empty for the headline of each cell.
    """
    cells = [cell for cell in here.results.cells if cell.state is State.OK and cell.launches]
    conditions: dict[str, dict[str, None]] = {}
    for cell in cells:
        known = _conditions(cell, here.results)
        if cell.moved_by is not None:
            known[TRANSPORT] = cell.moved_by
        for name, value in known.items():
            conditions.setdefault(name, {})[value] = None
    return PeersExport(
        name=here.name,
        host=here.host,
        machines=tuple(other.name for other in others),
        hosts=len({other.host or other.name for other in others}),
        conditions={name: ", ".join(values) for name, values in conditions.items()},
        places=tuple(
            _place(here, cell, key, others)
            for cell in cells
            for key in cell.launches[0].values
            if decides(cell, key.metric, metrics)
        ),
    )


def _place(
    here: PeerMachine, cell: ResultCell, key: MetricKey, others: Sequence[PeerMachine]
) -> MachinePlace:
    values = _values(cell, key)
    level, conditions = geometric_mean(values), _conditions(cell, here.results)
    levels, left_out = [], []
    for other, theirs in _same_cell(cell, key, others):
        differing = _differing(conditions, _conditions(theirs, other.results))
        differing = differing or _other_transport(cell, theirs)
        if differing is None:
            levels.append(geometric_mean(_values(theirs, key)))
        else:
            name, ours, value = differing
            left_out.append(LeftOutMachine(name=other.name, condition=name, here=ours, there=value))
    levels.sort(reverse=not key.metric.higher_is_better)
    worse = sum(_is_worse(other, level, key.metric) for other in levels)
    equal = sum(other == level for other in levels)
    interval = share_interval(worse, worse + equal, len(levels)) if levels else None
    tells = interval is not None and interval[1] - interval[0] <= WIDEST
    return MachinePlace(
        cell_id=cell.cell.id,
        metric=key.metric,
        detail=key.detail,
        message_bytes=cell.launches[0].message_bytes.get(key),
        value=level,
        launches=len(values),
        spread=statistics.stdev(map(math.log, values)) if len(values) > 1 else None,
        others=tuple(levels),
        worse=worse,
        equal=equal,
        percentile=(worse + equal / 2) / len(levels) if tells else None,
        interval=interval,
        left_out=tuple(left_out),
    )


def _same_cell(
    cell: ResultCell, key: MetricKey, others: Sequence[PeerMachine]
) -> Iterator[tuple[PeerMachine, ResultCell]]:
    """The same workload on each machine that measured this figure of it."""
    wanted = workload_key(cell.cell)
    for other in others:
        for theirs in other.results.cells:
            if workload_key(theirs.cell) == wanted and _values(theirs, key):
                yield other, theirs


def _values(cell: ResultCell, key: MetricKey) -> list[float]:
    """A figure of each launch that has it, of a cell that did not fail."""
    if cell.state is not State.OK:
        return []
    return [launch.values[key] for launch in cell.launches if key in launch.values]


def _is_worse(other: float, level: float, metric: Metric) -> bool:
    return other < level if metric.higher_is_better else other > level


def _conditions(cell: ResultCell, results: ResultSet) -> dict[str, str]:
    """What must be the same for figures of two machines to be comparable, by name; what is not
    recorded is left out."""
    known = {
        "device": cell.device,
        "nodes": "" if cell.nodes is None else str(cell.nodes),
        "backend": cell.backend or "",
        "torch": cell.torch,
    }
    sessions = [session_facts(session) for session in results.sessions]
    software = over_sessions(
        [{name: facts[name] for name in _SOFTWARE if name in facts} for facts in sessions]
    )
    known |= software
    if results.threads_per_rank is not None and _on_cpu(results):
        known["threads per rank"] = str(results.threads_per_rank)
    return {name: value for name, value in known.items() if value}


def _other_transport(here: ResultCell, there: ResultCell) -> tuple[str, str, str] | None:
    """The transport with both values, where data moved another way or one machine does not say."""
    ours, theirs = here.moved_by or "", there.moved_by or ""
    differ = ours != theirs
    if here.transport is not None and there.transport is not None and ours and theirs:
        differ = are_other_ways(here.transport, there.transport)
    return (TRANSPORT, ours, theirs) if differ else None


def _on_cpu(results: ResultSet) -> bool:
    """Whether ranks computed on the CPU, where their threads decide the speed."""
    return results.environment is None or not results.environment.cuda_available


def _differing(here: Mapping[str, str], there: Mapping[str, str]) -> tuple[str, str, str] | None:
    """The first condition that differs, with both values; ``None`` where all are the same."""
    for name in dict.fromkeys((*here, *there)):
        ours, theirs = here.get(name, ""), there.get(name, "")
        if ours != theirs:
            return name, ours, theirs
    return None
