"""Where to look for a finding: lines at which a rank is longer, and the collective at which it is
waited for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from torchscale.analysis.exchanges.steps import JobSteps
from torchscale.features.watch.analysis.verdict import JobFinding
from torchscale.features.watch.job.attempts import Attempt
from torchscale.schema.profiles.finding import Finding, FindingKind
from torchscale.schema.watch.rank import ProgramLine
from torchscale.schema.watch.report import WatchFinding
from torchscale.util.units import format_bytes

_LINE_FLOOR = 0.02
"""Share of a step that a rank is longer at a line than the others, for the line to be named."""
_MAX_LINES = 3
_MOST = 0.5
"""Share of what a rank is longer that a line takes, to be looked at first."""
_ON_HOST = (FindingKind.STRAGGLER, FindingKind.INTERMITTENT_STRAGGLER, FindingKind.UNEVEN_STAGES)


def with_places(item: JobFinding, attempt: Attempt, table: JobSteps) -> WatchFinding:
    """With the lines at which the rank is longer, and the collective at which it is waited for."""
    finding = item.finding
    lines: tuple[tuple[ProgramLine, float], ...] = ()
    collective = ""
    if finding.rank is not None and finding.kind in _ON_HOST:
        row = attempt.follower.ranks.index(finding.rank)
        lines = _longer_lines(attempt, row, float(table.wall.mean()))
        collective = _awaited_at(attempt, row)
    return WatchFinding(
        finding=_with_line(finding, lines),
        first_step=item.first,
        last_step=item.last,
        lines=lines,
        collective=collective,
    )


def _with_line(finding: Finding, lines: Sequence[tuple[ProgramLine, float]]) -> Finding:
    """With the line to look at first, where a line takes most of what the rank is longer."""
    if not lines or lines[0][1] < _MOST * finding.cost_seconds:
        return finding
    line = lines[0][0]
    place = f"{Path(line.file).name}:{line.line} ({line.function})"
    return finding.model_copy(update={"advice": f"look at {place} first; {finding.advice}"})


def _longer_lines(
    attempt: Attempt, row: int, step_seconds: float
) -> tuple[tuple[ProgramLine, float], ...]:
    """Lines at which the rank's samples say that it spends more of a step than the others."""
    uses = [stream.use for stream in attempt.follower.streams.values()]
    if min(use.samples for use in uses) == 0:
        return ()
    shares: list[Counter[tuple[str, int, str]]] = []
    shown: dict[tuple[str, int, str], ProgramLine] = {}
    for use in uses:
        counts: Counter[tuple[str, int, str]] = Counter()
        for line in use.program_lines:
            place = (line.file, line.line, line.function)
            counts[place] += line.samples
            shown.setdefault(place, line)
        shares.append(counts)
    found = []
    for place, samples in shares[row].items():
        mine = samples / uses[row].samples
        others = [
            counts[place] / use.samples
            for index, (counts, use) in enumerate(zip(shares, uses, strict=True))
            if index != row
        ]
        longer = mine - float(np.median(others))
        if longer > _LINE_FLOOR:
            found.append((shown[place], longer * step_seconds))
    found.sort(key=lambda pair: -pair[1])
    return tuple(found[:_MAX_LINES])


def _awaited_at(attempt: Attempt, row: int) -> str:
    """``all_reduce of 1.2 MB``: where the others wait for the rank most."""
    mine = {what: seconds for (last, what), seconds in attempt.waits.items() if last == row}
    if not mine:
        return ""
    most = max(mine, key=lambda what: mine[what])
    names = {number: name for name, number in attempt.follower.names.calls.items()}
    operation, size = names.get(most, ("", 0))
    return f"{operation} of {format_bytes(size)}" if size else operation
