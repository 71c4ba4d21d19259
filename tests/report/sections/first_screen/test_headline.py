"""The result in a sentence, for every kind of run: from worked figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.factories import cells, failed_record, launch_record, run
from tests.report.sections.test_lost_time import diagnosed_run
from tests.report.test_machine import machine_summary
from torchscale.analysis.summary.run import RunSummary, summarize
from torchscale.report.sections.first_screen.headline import headline
from torchscale.report.values import Tone
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.state import State

STEADY = (1.0, 1.001, 0.999)
"""Seconds of a batch in three launches: an interval of a few tenths of a percent."""


def launched(seconds: Mapping[int, Sequence[float]], **content: Any) -> RunSummary:
    """A run with a launch for each of these batch times, by world size."""
    launches: dict[str, list[LaunchRecord]] = {
        cell.id: [
            launch_record(cell, number, [value] * 10)
            for number, value in enumerate(seconds.get(cell.world_size, ()))
        ]
        for cell in cells(**content)
    }
    most = max((len(values) for values in seconds.values()), default=1)
    return summarize(run(launches, benchmark={"repeats": most}, **content))


def test_the_interval_is_in_the_sentence_and_its_grade_in_the_tone() -> None:
    found = headline(launched({1: STEADY, 2: [1.05 * value for value in STEADY]}))
    assert found.text == "Scales to 2 CPU ranks at 95.2 % (95.0 to 95.5 %)."
    assert found.tone is Tone.GOOD
    low = headline(launched({1: STEADY, 2: [1.6 * value for value in STEADY]}))
    assert low.text == "Scales to 2 CPU ranks at 62.5 % (62.4 to 62.6 %)."
    assert low.tone is Tone.CAUTION


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ((1.0,), (1.05,), "Scales to 2 CPU ranks at 95.2 %, in single launches."),
        ((0.95, 1.0, 1.05), (1.06, 1.12, 1.18), "Scales to 2 CPU ranks at 89.3 % (79 to 100 %)."),
        (
            (1.0, 0.3, 2.0),
            (1.0, 0.4, 3.0),
            "Scaling to 2 CPU ranks cannot be judged: launches differ by more than the efficiency "
            "itself, 79.4 % (",
        ),
    ],
    ids=["one launch", "the interval reaches over a limit", "the interval is wider than the value"],
)
def test_no_colour_where_the_interval_does_not_carry_it(
    first: Sequence[float], second: Sequence[float], text: str
) -> None:
    found = headline(launched({1: first, 2: second}))
    assert found.text.startswith(text)
    assert found.tone is Tone.PLAIN


def test_models_are_named_up_to_two_and_then_summed_up() -> None:
    two = headline(
        launched({1: [1.0], 2: [1.25]}, models=["tiny-resnet", "tiny-gpt2"], batch_sizes=[8, 16])
    )
    assert two.text == (
        "Scales to 2 CPU ranks at 80.0 % to 80.0 % (tiny ResNet) and 80.0 % to 80.0 % (tiny "
        "GPT-2), in single launches."
    ).replace("80.0 % to 80.0 %", "80.0 %")
    three = headline(
        launched({1: [1.0], 2: [1.25]}, models=["tiny-resnet", "tiny-gpt2", "tiny-decoder"])
    )
    assert (
        three.text
        == "Scales to 2 CPU ranks at 80.0 % (median 80.0 %, 3 models), in single launches."
    )


def test_what_costs_the_rest_is_named() -> None:
    slow_rank = headline(summarize(diagnosed_run(0.0, 0.02)))
    assert slow_rank.text == (
        "Scales to 2 CPU ranks at 77.5 %, in single launches; exposed communication costs the rest."
    )


def test_one_count_gives_throughput_with_its_interval() -> None:
    found = headline(launched({1: [1.0]}, gpu_counts=[1]))
    assert (
        found.text
        == "tiny ResNet trains at 80.0 samples/s (80.0 to 80.0) at batch 8 on 1 CPU rank."
    )
    several = headline(
        launched(
            {1: [1.0]}, gpu_counts=[1], models=["tiny-resnet", "tiny-gpt2"], batch_sizes=[8, 16]
        )
    )
    assert several.text == (
        "tiny ResNet 160 samples/s (160 to 160) at batch 16 on 1 CPU rank and tiny GPT-2 160 "
        "samples/s (160 to 160) at batch 16 on 1 CPU rank."
    )


def test_nothing_measured_says_why() -> None:
    waiting = headline(summarize(run({})))
    assert waiting.text == "Nothing has been measured yet: 2 cells waiting."
    broken = {cell.id: [failed_record(cell, State.CRASHED, "ValueError")] for cell in cells()}
    crashed = headline(summarize(run(broken)))
    assert (crashed.text, crashed.tone) == ("No cell was measured: 2 crashed.", Tone.BAD)
    skipped = headline(summarize(run({}, gpu_counts=[64])))
    assert skipped.text == "Nothing was measured: every planned cell was skipped."


def test_a_run_of_the_machine_alone_begins_with_what_it_reached() -> None:
    summary = machine_summary()
    alone = RunSummary(summary.name, summary.experiment, tuple(summary.machine))
    assert headline(alone).text.startswith("Checkpoint of tiny ResNet: saved at 16.8 MB/s")
