"""What a comparison means for a build, and which runs of a directory are compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.factories import cells, experiment, experiment_file, launch_record, machine, rank_record
from tests.features.compare.analysis.test_compare import BUSY, STEADY, result, scaled, side
from torchscale.config.choices import FailOn, MatchKey, Metric
from torchscale.errors import ExitCode, UsageError
from torchscale.features.compare.analysis.compare import compare
from torchscale.features.compare.compare import Rules, compare_sources
from torchscale.features.compare.gate import Gate, gate
from torchscale.features.compare.inputs import told_apart
from torchscale.features.compare.sections.document import ComparisonReport
from torchscale.features.compare.text.comparison import comparison_label
from torchscale.plan.expand import make_plan
from torchscale.schema.cells.hardware import HardwareCell
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.transport import Transport, Way, WayKind
from torchscale.schema.node.environment import DeviceInfo
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import LaunchFigures, ResultCell
from torchscale.schema.state import State
from torchscale.store.run_folder import RunFolder

FIRST, SECOND = cells()
CEILINGS = HardwareCell(
    matmul_sizes=(64,),
    matmul_dtypes=("fp32",),
    seconds=0.1,
    copy_bytes=1,
    disk_bytes=1,
    world_size=1,
    device="cpu",
)
MISSING = "1 cell not measured, or less than in the reference (--accept missing lets it pass)"
UNCLEAR = "--accept unclear lets it pass"


def judged(
    *after: ResultCell,
    before: Sequence[ResultCell] = (result(FIRST), result(SECOND)),
    metrics: tuple[Metric, ...] = (),
    fail_on: FailOn = FailOn.REGRESSION,
    accept_flags: bool = False,
    **allowed: bool,
) -> Gate:
    pair = compare(
        side(*before, name="before"), side(*after, name="after"), accept_flags=accept_flags
    )
    return gate(ComparisonReport((pair,), (), ("before", "after"), metrics), fail_on, **allowed)


def test_scripts_of_one_name_are_told_apart_over_both_sides() -> None:
    plain, other = cells(
        models=[{"script": "train.py"}, {"script": "train.py --lr 0.1"}], gpu_counts=[1]
    )
    before, after = told_apart([side(result(plain)), side(result(plain), result(other))])
    pair = compare(before, after)
    assert [comparison_label(cell).partition(",")[0] for cell in pair.cells] == [
        "train.py",
        "train.py --lr 0.1",
    ]
    assert before.model_dump() == side(result(plain)).model_dump(), "files are as they were"


def failed(found: Gate) -> str:
    """The one line of a failing gate."""
    assert found.exit_code is ExitCode.FAILED
    (line,) = found.messages
    assert line.startswith("Failed: after against before: ")
    assert "\n" not in line
    return line


def test_equal_sides_and_more_cells_pass() -> None:
    assert judged(result(FIRST), result(SECOND)) == Gate(ExitCode.OK)
    assert judged(result(FIRST), result(SECOND), before=[result(FIRST)]) == Gate(ExitCode.OK)
    assert judged(result(FIRST, scaled(STEADY, 1.2)), result(SECOND)) == Gate(ExitCode.OK)


@pytest.mark.parametrize(
    "less",
    [
        [],
        [result(SECOND, state=State.WAITING)],
        [result(SECOND, state=State.SKIPPED)],
        [result(SECOND, state=State.INTERRUPTED)],
        [result(SECOND, STEADY[:2], state=State.PARTIAL)],
        [result(SECOND, STEADY[:2])],
    ],
)
def test_a_side_that_measured_less_fails_unless_that_is_allowed(less: list[ResultCell]) -> None:
    assert MISSING in failed(judged(result(FIRST), *less))
    assert judged(result(FIRST), *less, allow_missing=True) == Gate(ExitCode.OK)
    assert judged(result(FIRST), *less, fail_on=FailOn.NEVER) == Gate(ExitCode.OK)


@pytest.mark.parametrize("state", [state for state in State if state.has_failed])
def test_a_cell_that_failed_is_a_regression_whatever_is_allowed(state: State) -> None:
    line = failed(
        judged(result(FIRST), result(SECOND, state=state), allow_missing=True, allow_unclear=True)
    )
    assert "1 cell worse or lost" in line


def test_sides_without_a_common_cell_fail_with_what_each_holds() -> None:
    ceilings = ResultCell(
        cell=CEILINGS,
        state=State.OK,
        launches=(LaunchFigures(values={MetricKey(metric=Metric.COPY, copy_kind="device"): 1e9}),),
    )
    line = failed(
        judged(
            result(FIRST), result(SECOND), before=[ceilings], allow_missing=True, allow_unclear=True
        )
    )
    assert (
        "before holds 1 hardware cell, 1 measured, after holds 2 training cells, 2 measured" in line
    )
    nothing = judged(result(FIRST), before=[result(FIRST, state=State.CRASHED)])
    assert "No cell was measured on both sides" in failed(nothing)


def test_a_metric_that_nobody_measured_decides_nothing() -> None:
    line = failed(judged(result(FIRST), result(SECOND), metrics=(Metric.ENERGY,)))
    assert "no cell has samples/joule on both sides" in line


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (result(FIRST, STEADY[:1]), "fewer than 3 launches on a side"),
        (
            result(FIRST, scaled(STEADY, 0.6), flags=BUSY),
            "contended, which --accept flags ignores",
        ),
        (result(FIRST, (40.0, 100.0, 250.0)), "noise"),
    ],
)
def test_a_comparison_that_could_show_nothing_fails_unless_that_is_allowed(
    after: ResultCell, reason: str
) -> None:
    before = [result(FIRST, STEADY[: len(after.launches)])]
    line = failed(judged(after, before=before))
    assert f"no verdict: a loss of 25.0 % or more is not ruled out ({reason}; {UNCLEAR})" in line
    assert judged(after, before=before, allow_unclear=True) == Gate(ExitCode.OK)


def test_accepted_flags_decide() -> None:
    slow = result(FIRST, scaled(STEADY, 0.6), flags=BUSY)
    assert "1 cell worse or lost" in failed(judged(slow, before=[result(FIRST)], accept_flags=True))
    assert judged(result(FIRST, flags=BUSY), before=[result(FIRST)], accept_flags=True) == Gate(
        ExitCode.OK
    )


def test_ordinary_noise_fails_only_where_that_is_asked_for() -> None:
    noisy = result(FIRST, (95.0, 100.0, 105.0))
    assert judged(noisy, before=[noisy]) == Gate(ExitCode.OK)
    assert "1 cell unclear" in failed(judged(noisy, before=[noisy], fail_on=FailOn.UNCLEAR))


def test_each_failing_side_has_its_line() -> None:
    reference = side(result(FIRST), name="before")
    pairs = [
        compare(reference, side(result(FIRST, scaled(STEADY, by)), name=f"by {by}"))
        for by in (0.8, 1.0, 0.9)
    ]
    found = gate(ComparisonReport(tuple(pairs), (), ("before",)), FailOn.REGRESSION)
    assert [line.split(" against")[0] for line in found.messages] == [
        "Failed: by 0.8",
        "Failed: by 0.9",
    ]


def folder(
    path: Path, day: int, seconds: float = 1.0, device: str = "Test Processor", **content: Any
) -> None:
    """A run of a day in January; its batches of ten steps took so long."""
    config = experiment(gpu_counts=[1], **content)
    plan = make_plan(config, machine()).cells
    created = f"2026-01-{day:02}T00:00:00+00:00"
    kept = RunFolder.create(path, experiment_file(config, plan, created_at=created))
    for planned in plan:
        cell = planned.cell
        if not isinstance(cell, TrainingCell):
            continue
        for launch, factor in enumerate((1.0, 1.001, 0.999)):
            batches = [seconds * factor] * 10
            rank = rank_record(
                cell, 0, batches, device=DeviceInfo(kind="cpu", index=0, name=device)
            )
            kept.begin_launch(cell, launch)
            kept.finish_launch(
                cell, launch_record(cell, launch, batches, [rank], started_at=created)
            )


def test_a_directory_of_runs_is_compared_with_its_oldest_or_the_named_one(tmp_path: Path) -> None:
    for name, day in (("a", 3), ("b", 1), ("c", 2)):
        folder(tmp_path / name, day)
    found = compare_sources([str(tmp_path)], Rules())
    assert found.names == ("b", "c", "a")
    assert compare_sources([str(tmp_path)], Rules(), reference="c").names == ("c", "b", "a")
    first = compare_sources([str(tmp_path / "a"), str(tmp_path)], Rules())
    assert first.names == ("a", "b", "c"), "a run that is named and in the directory is there once"
    with pytest.raises(UsageError, match="--reference d: no such side; expected one of b, c, a"):
        compare_sources([str(tmp_path)], Rules(), reference="d")


def test_runs_of_a_directory_that_hold_other_cells_or_cannot_be_read_are_left_out(
    tmp_path: Path,
) -> None:
    folder(tmp_path / "machine", 1, measure=["hardware"])
    folder(tmp_path / "old", 2)
    folder(tmp_path / "new", 3)
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "experiment.json").write_text("{")
    found = compare_sources([str(tmp_path)], Rules())
    assert found.names == ("old", "new")
    torn, other = found.left_out
    assert "torn" in torn
    assert other == "Left out: machine, which holds 1 hardware cell, 0 measured."


def test_a_run_alone_is_an_error(tmp_path: Path) -> None:
    folder(tmp_path / "runs" / "a", 1)
    for source in (tmp_path / "runs", tmp_path / "runs" / "a"):
        with pytest.raises(
            UsageError, match=r"one run to compare \(a\); expected two or more runs"
        ):
            compare_sources([str(source)], Rules())


def test_other_devices_and_counts_are_compared_by_name_with_a_price_each(tmp_path: Path) -> None:
    folder(tmp_path / "a", 1, batch_sizes=[8])
    folder(tmp_path / "b", 1, batch_sizes=[16], device="Another Processor")
    sources = [str(tmp_path / name) for name in ("a", "b")]
    with pytest.raises(UsageError, match="the sides differ in device") as caught:
        compare_sources(sources, Rules())
    assert "--match" in str(caught.value.hint)
    found = compare_sources(
        sources, Rules(match=(MatchKey.MODEL, MatchKey.DEVICES)), prices=[1.0, 4.0]
    )
    assert found.matched_by_name
    assert [(one.what, one.values) for one in found.differences[:3]] == [
        ("batch of cells", ("8", "16")),
        ("global batch of cells", ("8", "16")),
        ("device", ("Test Processor", "Another Processor")),
    ]
    (cell,) = found.pairs[0].cells
    changes = {change.metric: change.ratio.value for change in cell.changes}
    assert changes[Metric.THROUGHPUT] == pytest.approx(2.0)
    assert changes[Metric.COST] == pytest.approx(0.5)


def test_data_that_moved_another_way_fails_a_build_unless_accepted() -> None:
    verbs = Transport(ways=(Way(kind=WayKind.IB, name="NET/IB", gdr=True, devices=("mlx5_0",)),))
    sockets = Transport(ways=(Way(kind=WayKind.SOCKET, name="NET/Socket", devices=("eth0",)),))
    before, after = (result(FIRST, transport=moved) for moved in (verbs, sockets))
    found = judged(after, before=[before])
    assert found.exit_code is ExitCode.FAILED
    assert found.messages == (
        "Failed: after against before: 1 cell moved data another way: tiny ResNet, fp32, "
        "batch 8, 1 device by NET/Socket (eth0), the reference by NET/IB with GDR (mlx5_0) "
        "(--accept transport lets it pass).",
    )
    assert judged(after, before=[before], allow_transport=True) == Gate(ExitCode.OK)
    assert judged(before, before=[before]) == Gate(ExitCode.OK)
