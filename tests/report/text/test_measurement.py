"""The method section and the advice of flags speak of the rule that was in force, whatever ends a
measurement."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import cells, launch_record, rank_record, run
from tests.report.sections.test_cells import scripts_run
from torchscale.analysis.summary.run import RunSummary, summarize
from torchscale.analysis.training.flags import Flag
from torchscale.report.build import build_document
from torchscale.report.document import Bullets
from torchscale.report.text.measurement import flag_text
from torchscale.schema.launch.steps import BatchTimes, StopRule, Warmup

UNSTEADY = Warmup(
    steps=20, seconds=3.0, steady=False, batches=BatchTimes(steps=(10, 10), seconds=(1.0, 2.0))
)
NOISY = (1.0, 2.0) * 5


def noisy(ended_by: StopRule, **content: Any) -> RunSummary:
    """One cell whose batches scatter, and whose warm-up did not settle."""
    content = {"gpu_counts": [1], **content}
    (cell,) = cells(**content)
    rank = rank_record(cell, batches=NOISY, stop_rule=ended_by, warmup=UNSTEADY)
    return summarize(run({cell.id: [launch_record(cell, batches=NOISY, ranks=[rank])]}, **content))


def method_of(summary: RunSummary) -> str:
    section = build_document(summary).section("method")
    assert section is not None
    return "\n".join(
        item for block in section.blocks if isinstance(block, Bullets) for item in block.items
    )


MODES: dict[str, tuple[StopRule, dict[str, Any], str, str]] = {
    "seconds": (
        StopRule.MEASURE_SECONDS,
        {"benchmark": {"measure_seconds": 2}},
        "Measurement: for 2 s (benchmark.measure_seconds)",
        "benchmark.measure_seconds",
    ),
    "steps": (
        StopRule.MEASURE_STEPS,
        {"benchmark": {"measure_steps": 1}},
        "Measurement: 1 step (benchmark.measure_steps)",
        "benchmark.measure_steps",
    ),
    "epochs": (
        StopRule.EPOCHS,
        {"training": {"epochs": 2}},
        "Measurement: 2 epochs of the data (training.epochs)",
        "training.epochs",
    ),
    "adaptive": (
        StopRule.MAX_STEPS,
        {},
        "at least 100 steps and 10 s, until the 95 % interval of the mean step reaches to no more "
        "than 1.0 % from it",
        "benchmark.max_steps",
    ),
    "adaptive with a target of its own": (
        StopRule.MAX_SECONDS,
        {"benchmark": {"target_half_width": 0.025, "max_seconds": 30}},
        "reaches to no more than 2.5 % from it (benchmark.target_half_width), but at most 400 "
        "steps or 30 s",
        "benchmark.max_seconds",
    ),
    "a preset": (
        StopRule.MAX_SECONDS,
        {"benchmark": {"preset": "quick"}},
        "at least 20 steps and 2 s, until the 95 % interval of the mean step reaches to no more "
        "than 5.0 % from it",
        "benchmark.max_seconds",
    ),
    "a budget": (
        StopRule.BUDGET,
        {"benchmark": {"measure_seconds": 300, "cell_seconds": 20}},
        "A launch has 20 s with start-up (benchmark.cell_seconds)",
        "benchmark.cell_seconds",
    ),
}
ADAPTIVE = "95 % interval of the mean step reaches"


@pytest.mark.parametrize("mode", MODES)
def test_the_method_names_the_rule_in_force_and_the_advice_its_key(mode: str) -> None:
    ended_by, content, rule, key = MODES[mode]
    summary = noisy(ended_by, **content)
    text = method_of(summary)
    assert rule in text
    assert (ADAPTIVE in text) == (ended_by in (StopRule.MAX_STEPS, StopRule.MAX_SECONDS))
    assert flag_text(Flag.NOISY, summary.cells).endswith(f"measure longer: raise {key}")


def test_what_ended_it_is_said_where_it_was_not_asked() -> None:
    assert "ended by benchmark.max_steps in 1 cell." in method_of(noisy(StopRule.MAX_STEPS))
    assert "ended by the interval in 1 cell." in method_of(noisy(StopRule.CONVERGED))
    short = noisy(StopRule.BUDGET, benchmark={"measure_seconds": 300, "cell_seconds": 20})
    assert "ended by benchmark.cell_seconds in 1 cell." in method_of(short)
    assert "ended by" not in method_of(
        noisy(StopRule.MEASURE_SECONDS, benchmark={"measure_seconds": 2})
    )


def test_warm_up_has_the_key_of_its_rule() -> None:
    by_steps = noisy(StopRule.MAX_STEPS)
    assert "Warm-up: at least 20 steps and 10 s, then until" in method_of(by_steps)
    assert flag_text(Flag.NOT_STEADY, by_steps.cells).endswith(
        "warm up longer: raise benchmark.warmup_max_seconds"
    )
    by_epochs = noisy(StopRule.EPOCHS, training={"epochs": 2, "warmup_epochs": 1})
    assert "Warm-up: 1 epoch of the data (training.warmup_epochs)" in method_of(by_epochs)
    assert flag_text(Flag.NOT_STEADY, by_epochs.cells).endswith(
        "warm up longer: raise training.warmup_epochs"
    )
    none = noisy(StopRule.EPOCHS, training={"epochs": 2, "warmup_epochs": 0})
    assert "Warm-up: the three steps that always run" in method_of(none)


def test_the_interval_is_described_by_what_it_is_from() -> None:
    once = method_of(summarize(run()))
    assert "Of a single launch" in once and "over launches" not in once
    plan = cells()
    several = {cell.id: [launch_record(cell, 0), launch_record(cell, 1)] for cell in plan}
    text = method_of(summarize(run(several, benchmark={"repeats": 2})))
    assert "over launches" in text and "Of a single launch" not in text


def test_a_flag_without_a_key_says_what_it_always_says() -> None:
    assert flag_text(Flag.CONTENDED, ()) == Flag.CONTENDED.explanation


@pytest.mark.parametrize("samples_known", [True, False])
def test_of_scripts_the_method_says_what_was_done_alone(samples_known: bool) -> None:
    text = method_of(scripts_run(samples_known=samples_known))
    assert "noted the ends of optimizer steps" in text
    assert ("Throughput is global samples" in text) is samples_known
    for word in ("bit by bit", "Unsynchronized", "meta device", "separate process", "torchrun"):
        assert word not in text
