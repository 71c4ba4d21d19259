"""What ``tune`` prints."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from torchscale.features.decide.tune.export_schema import (
    ChangeExport,
    ContributionExport,
    RatioExport,
    TuningExport,
    TuningTrialExport,
)
from torchscale.features.decide.tune.tables import print_tuning

FUSED = ChangeExport(axis="fused", setting="training.fused", value="true", note="")
BF16 = ChangeExport(
    axis="precision", setting="training.precision", value="bf16", note="changes numerics"
)
GAIN = RatioExport(ratio=1.1, low=1.08, high=1.12, launches=5)


def trial(*changes: ChangeExport, **values: Any) -> TuningTrialExport:
    defaults: dict[str, Any] = {
        "changes": changes,
        "cell_id": "a-cell",
        "state": "ok",
        "reason": "",
        "throughput": 1234.5,
        "launches": 5,
        "seconds": 15.0,
        "gain": None,
        "verdict": "open",
    }
    return TuningTrialExport(**{**defaults, **values})


def tuning_export(**values: Any) -> TuningExport:
    """A search that found two changes; one setting ran out of memory."""
    defaults: dict[str, Any] = {
        "ending": "complete",
        "better": True,
        "winner": (FUSED, BF16),
        "verified": GAIN,
        "contributions": (
            ContributionExport(change=FUSED, gain=GAIN),
            ContributionExport(change=BF16, gain=GAIN),
        ),
        "interaction": -0.02,
        "exposed_communication": RatioExport(ratio=1.01, low=0.99, high=1.03, launches=4),
        "predicted_exposed_seconds": {"1 MiB": 0.004, "25 MiB": 0.0062},
        "smallest_visible_gain": 0.012,
        "skipped": {"bucket": "exposed communication cannot be told from noise"},
        "trials": (
            trial(),
            trial(FUSED, gain=GAIN, verdict="faster"),
            trial(BF16, state="oom", reason="rank 0 ran out of memory", throughput=None),
        ),
        "untried": (),
        "budget_seconds": 60.0,
        "launch_seconds": 3.0,
        "launches_needed": 8,
        "seconds_needed": 24.0,
        "seconds": 45.0,
        "config": "tuned.yaml",
    }
    return TuningExport(**{**defaults, **values})


def printed(result: TuningExport) -> str:
    output = io.StringIO()
    print_tuning(result, "ResNet-18, batch 32", Console(file=output, width=200))
    return output.getvalue()


def test_a_verified_winner_is_shown_with_its_parts() -> None:
    text = printed(tuning_export())
    lines = text.splitlines()
    assert lines[0] == "ResNet-18, batch 32"
    assert lines[2].split()[:2] == ["setting", "samples/s"]
    assert "+10.0 % (+8.0 to +12.0 %)" in lines[4]
    assert lines[5].endswith("oom: rank 0 ran out of memory")
    assert "* precision: changes numerics" in lines
    assert "bucket: nothing tried: exposed communication cannot be told from noise" in lines
    assert (
        "Predicted exposed gradient sync of a step, by bucket size: 1 MiB 4.00 ms, 25 MiB 6.20 ms"
        in text
    )
    assert (
        "Fastest: fused=true precision=bf16*: +10.0 % (+8.0 to +12.0 %), verified in 5 "
        "alternating launches" in text
    )
    assert "-2.0 % against the product of their gains" in text
    assert lines[-1] == "Config: tuned.yaml"


def test_nothing_better_says_what_would_have_been_seen() -> None:
    text = printed(
        tuning_export(better=False, winner=(), verified=None, contributions=(), interaction=None)
    )
    assert (
        text.splitlines()[-1]
        == "Nothing better found; a gain of 1.2 % would have been seen (4 times in 5)."
    )
    lost = printed(
        tuning_export(
            better=False, verified=RatioExport(ratio=1.01, low=0.99, high=1.03, launches=6)
        )
    )
    assert "was ahead, but alternating launches give +1.0 % (-1.0 to +3.0 %)." in lost


def test_what_the_budget_left_out_is_named_with_a_budget_that_would_do() -> None:
    early = tuning_export(
        ending="budget", better=False, verified=None, winner=(), untried=(FUSED, BF16)
    )
    lines = printed(early).splitlines()
    assert lines[-2] == "Not tried for lack of time: fused=true, precision=bf16*."
    assert lines[-1] == (
        "The same command continues: an answer takes at least 8 more launches (24.0 s); "
        "--budget 1m would allow about 20 more."
    )
    longer = tuning_export(ending="budget", seconds_needed=500.0, budget_seconds=60.0)
    assert printed(longer).splitlines()[-2:] == [
        "The same command continues: --budget 15m would allow about 300 more.",
        "Config: tuned.yaml",
    ]
    assert "The same command continues" not in printed(tuning_export(untried=(FUSED,)))


def test_a_budget_without_room_for_the_verification_that_is_left_is_said_to_be_too_small() -> None:
    left = tuning_export(ending="budget", better=False, verified=None, budget_seconds=20.0)
    assert (
        printed(left)
        .splitlines()[-1]
        .startswith("A larger budget continues: an answer takes at least 8 more")
    )


def test_an_early_end_claims_nothing() -> None:
    for ending, words in (
        ("budget", "No answer: the time budget ended the search after 45.0 s"),
        ("interrupted", "Interrupted after"),
    ):
        text = printed(tuning_export(ending=ending, better=False, verified=None))
        assert words in text
        assert "was ahead, and is not verified" in text
    failed = printed(tuning_export(ending="start failed", better=False, verified=None, winner=()))
    assert "nothing to compare with" in failed
    assert "The same command measures them again." in failed
