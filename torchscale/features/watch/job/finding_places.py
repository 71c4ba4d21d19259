"""Where to look for a finding: lines at which a rank is longer, and the collective at which it is
waited for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.exchanges.steps import JobSteps, WaitsBy
from torchscale.features.watch.analysis.everyday.cause import LineSeconds
from torchscale.features.watch.analysis.everyday.lines import lines_beside, lines_in, place_of
from torchscale.features.watch.analysis.evidence import ShownByRank
from torchscale.features.watch.analysis.step_parts import OWN
from torchscale.features.watch.analysis.verdict import JobFinding
from torchscale.features.watch.job.attempts import Attempt
from torchscale.schema.profiles.finding import Finding, FindingKind
from torchscale.schema.watch.report import WatchFinding
from torchscale.util.units import format_bytes, format_seconds

_LINE_FLOOR = 0.02
"""Share of a step that a rank is longer at a line, for the line to be named."""
_MAX_LINES = 3
_MOST = 0.5
"""Share of what a rank is longer that a line takes, to be looked at first."""
_FIRST = "look at"
_SLOW_RANK = (FindingKind.STRAGGLER, FindingKind.INTERMITTENT_STRAGGLER, FindingKind.UNEVEN_STAGES)
_WITH_LINES = (*_SLOW_RANK, FindingKind.PERIODIC_WORK, FindingKind.INPUT_PIPELINE)


def with_places(item: JobFinding, attempt: Attempt, table: JobSteps) -> WatchFinding:
    """With the lines at which that time goes, and the collective at which the rank is waited
    for."""
    finding, lines, collective = item.finding, item.lines, ""
    step_seconds = _step_seconds(item, attempt, table)
    if not lines and finding.kind in _WITH_LINES:
        lines = _lines(item, attempt, table)
        finding = _with_line(finding, lines)
    if finding.rank is not None and finding.kind in _SLOW_RANK:
        finding = _with_part(finding, item, attempt, table)
        collective = _awaited_at(attempt, attempt.follower.ranks.index(finding.rank))
    shown = [pair for pair in lines if pair[1] > _LINE_FLOOR * step_seconds]
    return WatchFinding(
        finding=finding,
        first_step=item.first,
        last_step=item.last,
        lines=tuple(shown[:_MAX_LINES]),
        collective=collective,
    )


def _with_line(finding: Finding, lines: LineSeconds) -> Finding:
    """With the line to look at first, where a line takes most of what the rank is longer."""
    if not lines or lines[0][1] < _MOST * finding.cost_seconds:
        return finding
    advice = f"{_FIRST} {place_of(lines[0][0])} first; {finding.advice}"
    return finding.model_copy(update={"advice": advice})


def _with_part(finding: Finding, item: JobFinding, attempt: Attempt, table: JobSteps) -> Finding:
    """With the part of its steps that has most of what the rank is longer, where one has."""
    evidence = attempt.evidence
    if table.waits_by is not WaitsBy.CALLS or item.slow is not None or len(evidence) < 2:
        return finding
    chosen = _steps_of(item, attempt.follower.steps)
    row = attempt.follower.ranks.index(item.finding.rank or 0)
    seconds = np.array([one.lines.part_shares(chosen) for one in evidence])
    seconds *= _step_seconds(item, attempt, table)
    more = np.where(OWN, seconds[row] - np.median(np.delete(seconds, row, axis=0), axis=0), 0.0)
    part = int(more.argmax())
    if more[part] < _MOST * finding.cost_seconds:
        return finding
    told = f"{format_seconds(more[part], 3)} of that {OWN[part]}"
    update: dict[str, object] = {"evidence": (*finding.evidence[:1], told, *finding.evidence[1:])}
    if not finding.advice.startswith(_FIRST):
        update["advice"] = f"{_FIRST} what it does {OWN[part]}; {finding.advice}"
    return finding.model_copy(update=update)


def _lines(item: JobFinding, attempt: Attempt, table: JobSteps) -> LineSeconds:
    """Lines with the seconds a step that the slow steps are longer there than the others; where no
    steps are slow, that the rank is longer there than the other ranks."""
    evidence, rank = attempt.evidence, item.finding.rank
    row = 0 if rank is None else attempt.follower.ranks.index(rank)
    if item.slow is not None:
        return _in_slow_steps(evidence[row], item.slow, table, row)
    if rank is None or len(evidence) < 2:
        return ()
    others = [one for place, one in enumerate(evidence) if place != row]
    chosen = _steps_of(item, attempt.follower.steps)
    step_seconds = _step_seconds(item, attempt, table)
    return tuple(lines_beside(evidence[row], others, chosen, step_seconds))


def _in_slow_steps(
    evidence: ShownByRank, slow: NDArray[np.bool_], table: JobSteps, row: int
) -> LineSeconds:
    """As a mean over all steps."""
    seconds = np.concatenate([np.zeros(table.first), table.wall[row]])[: len(slow)]
    if len(seconds) < len(slow):  # columns of several steps
        seconds = np.full(len(slow), float(table.wall[row].mean()))
    typical = ~slow
    typical[: table.first] = False
    share = float(slow.sum()) / max(1, int(slow.sum() + typical.sum()))
    found = lines_in(evidence, slow, typical, seconds)
    return tuple((line, more * share) for line, more in found)


def _step_seconds(item: JobFinding, attempt: Attempt, table: JobSteps) -> float:
    """The mean step of those that a finding is about."""
    part = None
    if attempt.log is not None and item.first is not None:
        part = attempt.log.between(item.first, item.last or attempt.log.steps)
    return float((part or table).wall.mean())


def _steps_of(item: JobFinding, steps: int) -> NDArray[np.bool_]:
    """The steps that a finding is about, from step 0 on."""
    chosen = np.zeros(steps + 1, np.bool_)
    chosen[item.first or 0 : item.last if item.last is not None else steps + 1] = True
    return chosen


def _awaited_at(attempt: Attempt, row: int) -> str:
    """``all_reduce of 1.2 MB``: where the others wait for the rank most."""
    mine = {what: seconds for (last, what), seconds in attempt.waits.items() if last == row}
    if not mine:
        return ""
    most = max(mine, key=lambda what: mine[what])
    names = {number: name for name, number in attempt.follower.names.calls.items()}
    operation, size = names.get(most, ("", 0))
    return f"{operation} of {format_bytes(size)}" if size else operation
