"""The first screen of a report, made from figures only."""

from __future__ import annotations

import shlex

from torchscale.analysis.summary.run import RunSummary
from torchscale.report.document import Overview
from torchscale.report.sections.first_screen.causes import cause_groups, causes, top_groups
from torchscale.report.sections.first_screen.failures import failures
from torchscale.report.sections.first_screen.first_chart import first_chart
from torchscale.report.sections.first_screen.headline import headline
from torchscale.report.sections.first_screen.job import job_screen
from torchscale.report.sections.first_screen.status import statuses
from torchscale.report.values import only_if, shortened


def overview(summary: RunSummary) -> Overview:
    """The result in a sentence, the questions with their answers, a chart, what costs most and what
    failed."""
    if summary.job is not None:
        return job_screen().job_overview(summary.job, first_chart(summary))
    groups = cause_groups(summary)
    failed = failures(summary)
    return Overview(
        headline=headline(summary),
        statuses=statuses(summary, groups),
        chart=first_chart(summary),
        causes=causes(summary, top_groups(groups)),
        failures=failed,
        rerun=_rerun(summary) if failed else "",
    )


def _rerun(summary: RunSummary) -> str:
    """The last command, asking for what failed."""
    command = summary.sessions[-1].session.environment.command
    return shortened(
        shlex.join([*command, *only_if("--rerun" not in command, "--rerun", "failed")])
    )
