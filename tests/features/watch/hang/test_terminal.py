"""A verdict on a hang as the terminal shows it."""

from __future__ import annotations

import io

from rich.console import Console

from torchscale.features.watch.hang.terminal import indented_evidence, print_autopsy, print_hang
from torchscale.schema.launch.hang import Autopsy, HangCause
from torchscale.schema.profiles.finding import Confidence

VERDICT = Autopsy(
    cause=HangCause.RANK_MISSING,
    ranks=(1,),
    collective=None,
    confidence=Confidence.HIGH,
    summary="all_reduce #4: rank 1 never called it; it is in train.py:12 `step[0]`",
    evidence=("rank 0: in all_reduce #4",),
    positions=(),
)
SHOWN = [
    VERDICT.summary,
    "    cause: rank missing (rank 1), confidence high",
    "    rank 0: in all_reduce #4",
]


def shown(width: int) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, width=width), text


def test_what_a_verdict_rests_on_is_indented_below_it() -> None:
    console, text = shown(100)
    print_autopsy(VERDICT, console)
    assert text.getvalue().splitlines() == SHOWN
    assert indented_evidence(VERDICT) == tuple(SHOWN[1:])


def test_how_long_a_job_has_hung_comes_first_and_lines_stay_whole() -> None:
    """Whoever looks for a line in a log of it finds it on any terminal."""
    console, text = shown(10)
    print_hang(VERDICT, 300.0, console)
    assert text.getvalue().splitlines() == ["No progress for 5 min:", *SHOWN]
