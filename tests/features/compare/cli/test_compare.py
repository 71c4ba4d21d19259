"""``compare`` and baselines through the whole program."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import torchscale
from tests.factories import launch_record, rank_record, run
from tests.histories import write_night
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.signals import SignalDigest
from torchscale.schema.node.environment import DeviceInfo
from torchscale.store.run_folder import RunFolder

STEADY = (1.0, 1.001, 0.999)


def measured(
    path: Path,
    seconds: Sequence[float] = STEADY,
    device: str = "Test Processor",
    *,
    with_signals: bool = False,
    **content: Any,
) -> Path:
    """A results directory; each launch's batches of ten steps took so many seconds."""
    planned = run({}, gpu_counts=[1], **content)
    folder = RunFolder.create(path, planned.experiment)
    for cell_run in planned.cells:
        cell = cell_run.planned.cell
        assert isinstance(cell, TrainingCell)
        for launch, taken in enumerate(seconds):
            batches = [taken] * 10
            rank = rank_record(
                cell, 0, batches, device=DeviceInfo(kind="cpu", index=0, name=device)
            )
            signals = None
            if with_signals:
                signals = SignalDigest(compute=((0.0,) * 10,), data_wait=((0.0,) * 10,))
            folder.begin_launch(cell, launch)
            record = launch_record(cell, launch, batches, [rank], signals=signals)
            folder.finish_launch(cell, record)
    return path


def test_equal_results_pass_and_slower_ones_fail(tmp_path: Path) -> None:
    measured(tmp_path / "before")
    measured(tmp_path / "same")
    measured(tmp_path / "slow", [second * 1.1 for second in STEADY])
    same = torchscale(tmp_path, "compare", "before", "same")
    assert same.returncode == 0, same.stderr
    assert " 0.0 %" in same.stdout
    slow = torchscale(tmp_path, "compare", "before", "slow")
    assert slow.returncode == 1
    assert "-9.1 %" in slow.stdout
    assert "worse" in slow.stdout
    assert (
        slow.stderr
        == "Failed: slow against before: 1 cell worse or lost; worse over all cells: samples/s.\n"
    )
    assert torchscale(tmp_path, "compare", "before", "slow", "--fail-on", "never").returncode == 0
    assert torchscale(tmp_path, "compare", "before", "slow", "--threshold", "15%").returncode == 0


def test_one_launch_decides_nothing_and_fails_unless_that_is_allowed(tmp_path: Path) -> None:
    measured(tmp_path / "before")
    measured(tmp_path / "once", [1.5])
    done = torchscale(tmp_path, "compare", "before", "once")
    assert done.returncode == 1
    assert "unclear (launches)" in done.stdout
    assert "-33.3 %" in done.stdout
    (reason,) = done.stderr.splitlines()
    assert "1 cell not measured, or less than in the reference" in reason
    assert (
        "no verdict: a loss of 25.0 % or more is not ruled out (fewer than 3 launches on a side"
        in reason
    )
    allowed = torchscale(tmp_path, "compare", "before", "once", "--accept", "missing,unclear")
    assert (allowed.returncode, allowed.stderr) == (0, "")
    assert torchscale(tmp_path, "compare", "before", "once", "--fail-on", "never").returncode == 0


def test_other_devices_are_refused_until_asked_for_and_then_named(tmp_path: Path) -> None:
    measured(tmp_path / "here")
    measured(tmp_path / "there", device="Another Processor")
    refused = torchscale(tmp_path, "compare", "here", "there")
    assert refused.returncode == 2
    assert "differ in device (Test Processor | Another Processor)" in refused.stderr
    assert "--accept versions" in refused.stderr
    forced = torchscale(tmp_path, "compare", "here", "there", "--accept", "versions")
    assert forced.returncode == 0
    assert re.search(r"device +Test Processor +Another Processor", forced.stdout)


def test_a_killed_job_and_a_run_of_another_kind_do_not_pass(tmp_path: Path) -> None:
    measured(tmp_path / "before")
    measured(tmp_path / "killed", STEADY[:2], benchmark={"repeats": 3})
    measured(tmp_path / "other", models="tiny-gpt2")
    killed = torchscale(tmp_path, "compare", "before", "killed")
    assert killed.returncode == 1
    assert "1 cell not measured, or less than in the reference" in killed.stderr
    assert "(2 of 3 launches)" in killed.stdout
    other = torchscale(tmp_path, "compare", "before", "other")
    assert other.returncode == 1
    assert (
        "before holds 1 training cell, 1 measured, other holds 1 training cell, 1 measured"
        in other.stdout
    )


def test_other_counts_are_compared_by_name_with_what_differs_on_top_and_the_cost(
    tmp_path: Path,
) -> None:
    measured(tmp_path / "small", batch_sizes=[8])
    measured(tmp_path / "large", batch_sizes=[16], device="Another Processor")
    arguments = ("--match", "model,gpus", "--cost", "1", "4", "--fail-on", "never")
    done = torchscale(tmp_path, "compare", "small", "large", *arguments)
    assert done.returncode == 0, done.stderr
    assert re.search(r"Differences.*\nbatch of cells +8 +16\n.*Cells\n", done.stdout, re.DOTALL)
    assert re.search(r"batch 8 \| *.*batch 16.*samples/\$", done.stdout, re.DOTALL)
    assert (
        torchscale(tmp_path, "compare", "small", "large", "--match", "model,batch").returncode == 1
    ), "no match"


def test_a_directory_of_runs_is_compared_with_a_named_one(tmp_path: Path) -> None:
    for name, factor in (("a", 1.0), ("b", 0.8)):
        measured(tmp_path / "runs" / name, [second * factor for second in STEADY])
    done = torchscale(tmp_path, "compare", "runs", "--reference", "b", "--fail-on", "never")
    assert done.returncode == 0, done.stderr
    assert "a is slower than b: samples/s -20.0 %" in done.stdout


def test_an_older_baseline_without_flags_of_launches_is_read(tmp_path: Path) -> None:
    measured(tmp_path / "a")
    torchscale(tmp_path, "compare", "a", "--save", "main")
    path = tmp_path / "baselines" / "main.json"
    content = json.loads(path.read_text())
    for launch in content["cells"][0]["launches"]:
        for later in ("flags", "delay", "fixed_work"):
            launch.pop(later, None)
    path.write_text(json.dumps(content))
    assert torchscale(tmp_path, "compare", "main", "a").returncode == 0
    content["cells"][0]["flags"] = ["contended"]
    path.write_text(json.dumps(content))
    done = torchscale(tmp_path, "compare", "main", "a")
    assert done.returncode == 1
    assert "unclear (contended)" in done.stdout
    assert torchscale(tmp_path, "compare", "main", "a", "--accept", "flags").returncode == 0


def test_several_sides_with_a_price_each(tmp_path: Path) -> None:
    for name, factor in (("a", 1.0), ("b", 0.8), ("c", 0.5)):
        measured(tmp_path / name, [second * factor for second in STEADY])
    arguments = (
        "--cost",
        "3.00",
        "5.50",
        "8.00",
        "--format",
        "json",
        "--output",
        "-",
        "--fail-on",
        "never",
    )
    done = torchscale(tmp_path, "compare", "a", "b", "c", *arguments)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["prices"] == [3.0, 5.5, 8.0]
    assert [pair["other"] for pair in content["pairs"]] == ["b", "c"]
    changes = {
        change["metric"]: change["ratio"] for change in content["pairs"][1]["cells"][0]["changes"]
    }
    assert changes["throughput"] == pytest.approx(2.0)
    assert changes["cost"] == pytest.approx(2.0 * 3 / 8)
    assert content["pairs"][1]["score"]["value"] == pytest.approx(200)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a",), "one run to compare (a); expected two or more runs, or a directory of runs"),
        (("a", "nowhere"), "there is no run 'nowhere'"),
        (("a", "./b/a"), "there is no run 'b/a'"),
        (("a", "aa"), "there is no run 'aa'; did you mean 'a'?"),
        (("a", "a", "--threshold", "banana"), "expected a share"),
        (("a", "a", "--cost", "-1"), "expected a price above 0"),
        (("a", "a", "--cost", "1", "2", "3"), "3 prices for 2 sides"),
        (("a", "a", "--match", "modle"), "--match modle: expected some of model, batch"),
        (
            ("a", "a", "--reference", "b"),
            "--reference b: no such side; expected one of a, a (2)",
        ),
        (("a", "a", "--fail-on", "unclear", "--accept", "unclear"), "contradicts"),
        (("a", "a", "--accept", "undecided"), "write --accept unclear"),
        (
            ("a", "a", "--accept", "noise"),
            "--accept noise: expected one of missing, unclear, flags, versions",
        ),
        (
            ("a", "--save", "kept", "--threshold", "3%"),
            "--threshold is for a comparison, and --save kept makes none",
        ),
        (("a", "a", "--replace"), "--replace is for --save"),
        (("1.5", "--cost", "2"), "only prices of --cost were given"),
        (("a", "a", "--format", "md", "--format", "html", "--output", "x"), "takes one --format"),
    ],
)
def test_bad_input_is_told_in_a_line(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    measured(tmp_path / "a")
    done = torchscale(tmp_path, "compare", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_every_form_is_written(tmp_path: Path) -> None:
    measured(tmp_path / "a")
    measured(tmp_path / "b", [second * 1.1 for second in STEADY])
    forms = ["--format", "html,pdf,md", "--format", "json", "--metric", "throughput,memory"]
    assert torchscale(tmp_path, "compare", "a", "b", *forms).returncode == 1
    assert (tmp_path / "comparison.pdf").read_bytes().startswith(b"%PDF")
    for kind in ("html", "md"):
        text = (tmp_path / f"comparison.{kind}").read_text()
        assert "-9.1 %" in text.replace("\u00a0", " ")
        assert "worse" in text
    assert json.loads((tmp_path / "comparison.json").read_text())["pairs"][0]["regressions"]


def test_a_baseline_is_kept_listed_shown_and_compared_with(tmp_path: Path) -> None:
    measured(tmp_path / "a")
    measured(tmp_path / "b", [second * 1.1 for second in STEADY])
    saved = torchscale(tmp_path, "compare", "a", "--save", "main")
    assert saved.returncode == 0, saved.stderr
    assert "baselines/main.json (1 of 1 cells measured)" in saved.stderr
    assert torchscale(tmp_path, "compare", "b", "--save", "main").returncode == 2
    listed = json.loads(torchscale(tmp_path, "runs", "baselines", "--json").stdout)
    assert [(row["name"], row["cells"], row["launches"]) for row in listed] == [("main", 1, 3)]
    assert "main" in torchscale(tmp_path, "runs", "baselines").stdout
    assert "samples/s" in torchscale(tmp_path, "runs", "baselines", "main").stdout
    assert torchscale(tmp_path, "compare", "main", "a").returncode == 0
    assert torchscale(tmp_path, "compare", "baselines/main.json", "b").returncode == 1
    for name in ("../main", "", ".hidden", "a/b"):
        assert torchscale(tmp_path, "compare", "a", "--save", name).returncode == 2
    (tmp_path / "baselines" / "torn.json").write_text('{"cells": [')
    assert "Invalid JSON" in torchscale(tmp_path, "runs", "baselines").stdout


def test_a_record_is_a_side_too(tmp_path: Path) -> None:
    measured(tmp_path / "a")
    (record,) = (tmp_path / "a").glob("cells/*/launch-1/record.json")
    done = torchscale(tmp_path, "compare", "a", str(record))
    assert done.returncode == 1, "a launch alone decides nothing"
    assert "unclear (launches)" in done.stdout
    copied = tmp_path / "alone" / "record.json"
    copied.parent.mkdir()
    copied.write_bytes(record.read_bytes())
    assert "cell.json: not there" in torchscale(tmp_path, "compare", "a", str(copied)).stderr


def test_a_kept_result_is_replaced_only_when_asked(tmp_path: Path) -> None:
    measured(tmp_path / "a")
    measured(tmp_path / "b", [second * 1.1 for second in STEADY])
    assert torchscale(tmp_path, "compare", "a", "--save", "main").returncode == 0
    kept = (tmp_path / "baselines" / "main.json").read_bytes()
    refused = torchscale(tmp_path, "compare", "b", "--save", "main")
    assert (refused.returncode, "pass --replace" in refused.stderr) == (2, True)
    assert (tmp_path / "baselines" / "main.json").read_bytes() == kept
    assert torchscale(tmp_path, "compare", "b", "--save", "main", "--replace").returncode == 0
    assert (tmp_path / "baselines" / "main.json").read_bytes() != kept


@pytest.mark.parametrize(
    "content", ["[" * 200_000, '{"cells":' * 100_000, "\0", "", "[1, 2]", "null"]
)
def test_a_file_that_is_nothing_of_ours_is_told_in_a_line(tmp_path: Path, content: str) -> None:
    measured(tmp_path / "before")
    (tmp_path / "strange.json").write_text(content)
    done = torchscale(tmp_path, "compare", "before", "strange.json")
    assert done.returncode == 2
    assert "error: strange.json" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("throughput", 0.0, "greater than or equal to"),
        ("throughput", 1e308, "less than or equal to"),
        ("throughput", 5e-324, "greater than or equal to"),
        ("banana/fp32", 1.0, "'banana/fp32' is not the key of a metric"),
    ],
)
def test_a_baseline_with_figures_that_cannot_be_is_refused(
    tmp_path: Path, key: str, value: float, told: str
) -> None:
    measured(tmp_path / "a")
    torchscale(tmp_path, "compare", "a", "--save", "main")
    path = tmp_path / "baselines" / "main.json"
    content = json.loads(path.read_text())
    content["cells"][0]["launches"][0]["values"][key] = value
    path.write_text(json.dumps(content))
    done = torchscale(tmp_path, "compare", "main", "main")
    assert done.returncode == 2
    assert "baselines/main.json" in done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_newer_baseline_is_refused_by_its_version(tmp_path: Path) -> None:
    measured(tmp_path / "a")
    torchscale(tmp_path, "compare", "a", "--save", "main")
    path = tmp_path / "baselines" / "main.json"
    path.write_text(path.read_text().replace('"schema_version": 2', '"schema_version": 9', 1))
    done = torchscale(tmp_path, "compare", "main", "a")
    assert done.returncode == 2
    assert "schema version 9; this torchscale reads up to 2" in done.stderr


def test_the_reference_can_be_an_earlier_run(tmp_path: Path) -> None:
    for number in range(6):
        write_night(tmp_path / "results", number, git_branch="main" if number < 5 else "topic")
    write_night(tmp_path / "results", 6, 1.2, git_branch="topic")
    for text, name in (
        ("last", "night-5"),
        ("main", "night-4"),
        ("median-of-5", "median of 5 runs"),
    ):
        done = torchscale(tmp_path, "compare", "results/night-6", "--against", text)
        assert done.returncode == 1, done.stderr
        assert name in done.stdout
        assert f"Failed: night-6 against {name}: 1 cell worse or lost" in done.stderr
    assert (
        torchscale(tmp_path, "compare", "results/night-5", "--against", "median-of-5").returncode
        == 0
    )
    kept = torchscale(tmp_path, "history", "results", "--db", "kept.sqlite")
    assert kept.returncode == 0, kept.stderr
    of_file = torchscale(
        tmp_path, "compare", "results/night-6", "--against", "main", "--history", "kept.sqlite"
    )
    assert "night-4" in of_file.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("results/night-0", "--against", "last"), "was measured before night-0"),
        (
            ("results/night-0", "--against", "newest"),
            "--against newest: expected last, main or median-of-N",
        ),
        (("results/night-0", "results/night-0", "--against", "last"), "takes one run, not 2"),
        (
            ("results/night-0", "--against", "last", "--history", "none.sqlite"),
            "no history none.sqlite",
        ),
        (
            ("results/night-0", "results/night-0", "--history", "results"),
            "--history results is for --against",
        ),
    ],
)
def test_a_reference_that_is_not_there(
    arguments: Sequence[str], expected: str, tmp_path: Path
) -> None:
    write_night(tmp_path / "results", 0)
    done = torchscale(tmp_path, "compare", *arguments)
    assert done.returncode == 2
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


def test_why_explains_the_difference_and_a_baseline_keeps_what_it_takes(tmp_path: Path) -> None:
    measured(tmp_path / "before", with_signals=True)
    measured(tmp_path / "slow", [second * 1.1 for second in STEADY], with_signals=True)
    found = torchscale(tmp_path, "compare", "--why", "before", "slow", "--fail-on", "never")
    assert found.returncode == 0, found.stderr
    assert "the mean step takes 10.00 ms longer (+10.0 %" in found.stdout
    assert re.search(r"backward +40.00 +44.00 +\+4.00 .* clear", found.stdout)
    assert "Backward +4.00 ms: clear, but no recorded difference explains this" in found.stdout
    plain = torchscale(tmp_path, "compare", "before", "slow", "--fail-on", "never")
    assert "Why" not in plain.stdout
    assert torchscale(tmp_path, "compare", "before", "--save", "main").returncode == 0
    of_file = torchscale(tmp_path, "compare", "--why", "main", "slow", "--json", "--fail-on=never")
    (cell,) = json.loads(of_file.stdout)["pairs"][0]["why"]["cells"]
    assert {part["part"] for part in cell["parts"] if part["clarity"] == "clear"} == {
        "forward",
        "backward",
        "optimizer",
    }
    assert sum(part["difference"] for part in cell["parts"]) == pytest.approx(
        cell["step"]["difference"]
    )


def test_why_names_what_is_missing(tmp_path: Path) -> None:
    measured(tmp_path / "before")
    measured(tmp_path / "after")
    found = torchscale(tmp_path, "compare", "--why", "before", "after")
    assert found.returncode == 0, found.stderr
    assert "before: 3 of 3 launches have no parts of their step" in found.stdout


def test_why_is_asked_across_versions_and_options(tmp_path: Path) -> None:
    """Which are what may be the cause."""
    measured(tmp_path / "old", with_signals=True, training={"optimizer": "sgd"})
    measured(tmp_path / "new", with_signals=True, device="Other Processor")
    assert torchscale(tmp_path, "compare", "old", "new").returncode == 2
    done = torchscale(tmp_path, "compare", "--why", "old", "new", "--fail-on", "never")
    assert done.returncode == 0, done.stderr
    assert re.search(r"optimizer of cells +sgd +adamw", done.stdout)
    assert "the mean step takes equally long" in done.stdout
    several = measured(tmp_path / "several", with_signals=True, batch_sizes=[8, 16, 32])
    other = torchscale(tmp_path, "compare", "--why", "old", several.name, "--fail-on", "never")
    assert "nothing to explain (--match model,global_batch,devices" in other.stdout


@pytest.mark.parametrize(
    ("key", "value"),
    [("step", 1e300), ("step", 0.0), ("parts", {"forward": 1e300}), ("waiting", "x")],
)
def test_a_baseline_with_parts_that_cannot_be_is_refused(
    tmp_path: Path, key: str, value: object
) -> None:
    measured(tmp_path / "a", with_signals=True)
    torchscale(tmp_path, "compare", "a", "--save", "main")
    path = tmp_path / "baselines" / "main.json"
    content = json.loads(path.read_text())
    content["cells"][0]["launches"][0]["parts"][key] = value
    path.write_text(json.dumps(content))
    done = torchscale(tmp_path, "compare", "--why", "main", "a")
    assert done.returncode == 2
    assert f"parts.{key}" in done.stderr
