"""How the report says that its figures were measured."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import cells, launch_record, run
from torchscale.analysis.summary.run import summarize
from torchscale.report.document import Bullets
from torchscale.report.sections.method import method_section


@pytest.mark.parametrize(
    ("started", "said"),
    [
        ({}, "Every launch was a torchrun command."),
        ({"grouped": True}, "in the same processes of one torchrun"),
        (
            {"forked": True},
            "under torchrun's agent, in forks of a process that had imported PyTorch",
        ),
    ],
)
def test_the_first_line_says_how_ranks_were_started(started: dict[str, Any], said: str) -> None:
    (cell,) = cells(gpu_counts=[1])
    summary = summarize(run({cell.id: [launch_record(cell, **started)]}, gpu_counts=[1]))
    (bullets,) = method_section(summary).blocks
    assert isinstance(bullets, Bullets)
    assert said in bullets.items[0]
