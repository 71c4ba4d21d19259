"""The questions at the top and their answers, for runs in every state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.factories import cells, failed_record, launch_record, rank_record, run
from tests.report.sections.first_screen.test_headline import STEADY, launched
from tests.report.sections.test_lost_time import diagnosed_run
from tests.report.test_machine import machine_summary
from torchscale.analysis.summary.run import RunSummary, summarize
from torchscale.report.build import build_document
from torchscale.report.document import QuestionAnswer
from torchscale.report.sections.first_screen.causes import cause_groups
from torchscale.report.sections.first_screen.status import statuses
from torchscale.report.values import Tone
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.signals import SignalDigest
from torchscale.schema.launch.telemetry import GpuUse, Telemetry
from torchscale.schema.node.environment import DeviceInfo
from torchscale.schema.run.content import CellRun, Run
from torchscale.schema.state import State


def answers(summary: RunSummary) -> dict[str, QuestionAnswer]:
    return {row.question: row for row in statuses(summary, cause_groups(summary))}


def measured(launches: Sequence[Sequence[LaunchRecord]], **content: Any) -> QuestionAnswer:
    """The first row of a run of as many batch sizes as there are lists of launches."""
    sizes = [2**number for number in range(3, 3 + len(launches))]
    plan = cells(batch_sizes=sizes, gpu_counts=[1])
    by_cell = {
        cell.id: [of_cell(record, cell) for record in records]
        for cell, records in zip(plan, launches, strict=True)
    }
    return answers(summarize(run(by_cell, batch_sizes=sizes, gpu_counts=[1], **content)))[
        "Measured?"
    ]


def of_cell(record: LaunchRecord, cell: TrainingCell) -> LaunchRecord:
    """A launch of ``cell`` that ended in the same way."""
    if record.state is State.OK:
        return launch_record(cell, record.launch)
    return record.model_copy(update={"cell_id": cell.id})


def record(number: int = 0) -> LaunchRecord:
    return launch_record(cells(gpu_counts=[1])[0], number)


def test_a_finished_run_says_how_often_each_cell_was_launched() -> None:
    status = measured([[record(0), record(1)]] * 3, benchmark={"repeats": 2})
    assert (status.answer, status.text, status.tone) == (
        "all",
        "3 of 3 cells, 2 launches each",
        Tone.GOOD,
    )
    one = measured([[record()]])
    assert one.text == "1 of 1 cell, 1 launch"


def test_a_run_that_goes_on_says_what_is_there_so_far() -> None:
    done, part = [record(0), record(1), record(2)], [record(0), record(1)]
    status = measured([done, done, part, part, []], benchmark={"repeats": 3})
    assert status.text == "2 of 5 cells so far; 2 of 3 launches of 2 cells; 1 waiting"
    assert (status.answer, status.tone) == ("in part", Tone.PLAIN)
    begun = measured([part, part], benchmark={"repeats": 3})
    assert (begun.answer, begun.text) == ("in part", "2 of 3 launches of 2 cells so far")
    nothing = measured([[], []])
    assert (nothing.answer, nothing.text) == ("not yet", "0 of 2 cells so far; 2 waiting")


def test_what_was_interrupted_runs_again_and_has_not_failed() -> None:
    status = measured(
        [[record()], [failed_record(cells(gpu_counts=[1])[0], State.INTERRUPTED, "Ctrl-C")]]
    )
    assert (status.answer, status.tone) == ("in part", Tone.PLAIN)
    assert status.text == "1 of 2 cells so far; 1 interrupted"


def test_failures_and_skips_are_counted_with_their_reasons() -> None:
    plan = cells(batch_sizes=[8, 16])
    launches = {
        plan[0].id: [launch_record(plan[0])],
        plan[1].id: [failed_record(plan[1], State.CRASHED, "ValueError")],
        plan[2].id: [failed_record(plan[2], State.OOM, "out of memory")],
    }
    rows = answers(summarize(run(launches, batch_sizes=[8, 16], gpu_counts=[1, 2, 4])))
    assert rows["Measured?"].answer == "2 failed"
    assert rows["Measured?"].tone is Tone.BAD
    assert rows["Measured?"].text.startswith(
        "1 of 6 cells so far; 1 crashed; 1 oom; 2 skipped (needs 4 devices; "
    )
    assert rows["Fits?"].answer == "not all"
    assert rows["Fits?"].text == "1 cell out of memory, the smallest: tiny ResNet, batch 16"


def test_a_grade_needs_an_interval_that_carries_it() -> None:
    graded = answers(launched({1: STEADY, 2: [1.05 * value for value in STEADY]}))["Scales?"]
    assert (graded.answer, graded.tone) == ("excellent", Tone.GOOD)
    assert graded.text.startswith("95.2 % (95.0 to 95.5 %), weak scaling to 2 CPU ranks, 1 series")
    assert "above 90 % is excellent" in graded.text
    once = answers(launched({1: [1.0], 2: [1.05]}))["Scales?"]
    assert (once.answer, once.tone) == ("no grade", Tone.PLAIN)
    assert once.text == (
        "95.2 % would be excellent, but one launch each gives no interval; weak scaling to 2 CPU "
        "ranks, 1 series"
    )
    apart = answers(launched({1: [0.95, 1.0, 1.05], 2: [1.06, 1.12, 1.18]}))["Scales?"]
    assert apart.text.startswith(
        "89.3 % (79 to 100 %) would be good, but the intervals reach over a limit between grades; "
    )
    alone = answers(launched({1: [1.0]}, gpu_counts=[1]))["Scales?"]
    assert alone.answer == "not measured"


def test_series_of_different_grades_would_have_none_together() -> None:
    plan = cells(batch_sizes=[8, 16])
    seconds = {8: {1: 1.0, 2: 1.05}, 16: {1: 1.0, 2: 1.5}}
    launches = {
        cell.id: [
            launch_record(cell, batches=[seconds[cell.batch_size or 0][cell.world_size]] * 10)
        ]
        for cell in plan
    }
    mixed = answers(summarize(run(launches, batch_sizes=[8, 16])))["Scales?"]
    assert mixed.answer == "no grade"
    assert mixed.text.startswith("66.7 % to 95.2 %; one launch each gives no interval; ")


def test_certainty_names_every_doubt() -> None:
    sure = answers(launched({1: STEADY, 2: STEADY}))["Certain?"]
    assert (sure.answer, sure.tone) == ("yes", Tone.GOOD)
    assert sure.text == "no warnings; widest 95 % interval of throughput: 99.8 to 100.2 % of it"
    once = answers(launched({1: [1.0]}))["Certain?"]
    assert once.text == (
        "every cell launched once: set benchmark.repeats: 3, as variation between launches is "
        "unknown"
    )
    vague = answers(launched({1: [1.0, 0.3, 2.0], 2: [1.0, 0.4, 3.0]}))["Certain?"]
    assert "1 efficiency is uncertain by more than the value" in vague.text


def test_the_costliest_cause_is_the_limit() -> None:
    rows = answers(summarize(diagnosed_run()))
    assert rows["Limited by?"].answer == "straggler: rank 1"
    assert rows["Limited by?"].anchor == "diagnosis"
    clean = answers(summarize(diagnosed_run(0.0, 0.001)))
    assert (clean["Limited by?"].answer, clean["Limited by?"].tone) == ("nothing found", Tone.PLAIN)


def test_gpus_that_idle_are_the_limit_however_small_the_other_causes() -> None:
    rows = answers(summarize(_idle_run(0.11, 0.13, 0.97)))
    assert (rows["Limited by?"].answer, rows["Limited by?"].anchor) == ("idle GPUs", "diagnosis")
    assert rows["Limited by?"].text.startswith("87.0 % to 89.0 % of the step, in 2 cells")
    busy = answers(summarize(_idle_run(0.97)))
    assert busy["Limited by?"].answer == "nothing found"


def test_devices_of_other_jobs_or_of_few_readings_are_no_limit() -> None:
    """Of three readings in two seconds each may be of what was before the steps."""
    few = answers(summarize(_idle_run(0.11, readings=4)))
    assert few["Limited by?"].answer == "nothing found"
    other = answers(summarize(_idle_run(0.11, uuid="GPU-b")))
    assert other["Limited by?"].answer == "nothing found"


def _idle_run(*busy: float, readings: int = 10, uuid: str = "GPU-a") -> Run:
    """A cell for each share of the time in which its GPU was busy."""
    sizes = [4 << number for number in range(len(busy))]
    device = DeviceInfo(kind="cuda", index=0, name="a GPU", uuid="a")
    digest = SignalDigest(compute=((0.1,) * 10,), data_wait=((0.0,) * 10,))
    launches = {}
    for cell, share in zip(cells(batch_sizes=sizes, gpu_counts=[1]), busy, strict=True):
        use = Telemetry(seconds=10.0, readings=readings, gpus=(GpuUse(uuid=uuid, busy=share),))
        ranks = [rank_record(cell, device=device)]
        launches[cell.id] = [launch_record(cell, ranks=ranks, telemetry=use, signals=digest)]
    return run(launches, batch_sizes=sizes, gpu_counts=[1])


def test_a_folder_of_profiles_alone_answers_the_same_questions() -> None:
    found = diagnosed_run()
    profiled = found.cells[1]
    planned = profiled.planned.model_copy(update={"skip_reason": "profiled, not measured"})
    alone = replace(found, cells=(CellRun(planned, (), profiled.profile),))
    rows = answers(summarize(alone))
    assert list(rows) == ["Measured?", "Fits?", "Scales?", "Limited by?", "Certain?"]
    assert rows["Measured?"].answer == "recorded"
    assert rows["Scales?"].answer == "not measured"
    assert build_document(summarize(alone)).section("cells") is None


def test_the_machine_is_asked_for_its_rates() -> None:
    summary = machine_summary()
    rows = answers(RunSummary(summary.name, summary.experiment, tuple(summary.machine)))
    assert {"Measured?", "Peak rates?", "Memory?"} <= set(rows)
    assert "200 GFLOP/s" in rows["Peak rates?"].text
