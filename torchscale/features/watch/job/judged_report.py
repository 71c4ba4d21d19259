"""The report of a watched job with what its steps say."""

from __future__ import annotations

from torchscale.analysis.training.cell_diagnosis import with_doubts
from torchscale.analysis.training.flags import doubts
from torchscale.features.watch.analysis.everyday.first_steps import find_slow_first_steps
from torchscale.features.watch.analysis.startup import slow_start
from torchscale.features.watch.analysis.verdict import JobVerdict
from torchscale.features.watch.job.attempts import Attempt
from torchscale.features.watch.job.finding_places import with_places
from torchscale.features.watch.job.rank_rows import rank_rows
from torchscale.features.watch.job.script_records import MeasuredProgram
from torchscale.features.watch.job.settled import LEFT_OUT
from torchscale.schema.watch.report import WatchFinding, WatchReport


def with_verdict(
    report: WatchReport, attempt: Attempt, measured: MeasuredProgram, verdict: JobVerdict
) -> WatchReport:
    """The report with speed, findings and ranks of an attempt. Confidence is low under conditions
    that make ranks slow without a cause in the training, as that of a benchmark."""
    facts, table = measured.streams[0].facts, measured.table
    under = doubts((), measured.records())
    findings = tuple(with_places(item, attempt, table) for item in verdict.findings)
    edges = {edge for item in findings for edge in (item.first_step, item.last_step)}
    seconds = max(1, attempt.follower.steps) * float(table.wall.mean())
    starts = [slow_start(attempt.startup, seconds)]
    if attempt.log is not None:
        starts.append(find_slow_first_steps(attempt.log, attempt.evidence, LEFT_OUT))
    return report.model_copy(
        update={
            "world_size": facts.world_size,
            "torch": facts.torch,
            "backend": attempt.follower.backend,
            "device": facts.device,
            "waits_by": table.waits_by.value,
            "left_out_steps": table.first,
            "step_seconds": measured.step_seconds,
            "findings": (
                *(
                    item.model_copy(update={"finding": with_doubts(item.finding, under)})
                    for item in findings
                ),
                *(WatchFinding(finding=slow) for slow in starts if slow is not None),
            ),
            "abstentions": verdict.abstentions,
            "changes": tuple(step for step in verdict.changes if step in edges),
            "per_rank": tuple(rank_rows(attempt, table)),
            "startup": attempt.startup,
            "collector_share": attempt.collector / max(seconds, 1e-9),
        }
    )
