"""Baselines, records and histories with numbers that nobody measured: an error that names the file,
the key and the value, or the verdict that the sound rest gives; never one from what is damaged."""

from __future__ import annotations

import copy
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import torchscale
from tests.features.compare.cli.test_compare import STEADY, measured
from tests.histories import write_night

Edit = Callable[[dict[str, Any]], object]
FIGURE = "baselines/x.json: cells.0.launches.0.values.throughput: Input should be "


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The content of a sound one."""
    root = tmp_path_factory.mktemp("sound")
    measured(root / "a")
    assert torchscale(root, "compare", "a", "--save", "a").returncode == 0
    content: dict[str, Any] = json.loads((root / "baselines" / "a.json").read_text())
    return content


def save(directory: Path, name: str, content: object) -> None:
    """A file of this content, as JSON unless it is text."""
    (directory / "baselines").mkdir(exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content)
    (directory / "baselines" / f"{name}.json").write_text(text)


def against_itself(directory: Path, baseline: dict[str, Any], edit: Edit, *options: str) -> Any:
    """``compare`` of a damaged baseline with the same one under another name."""
    for name in ("x", "y"):
        content = copy.deepcopy(baseline)
        content["name"] = name
        edit(content)
        save(directory, name, content)
    return torchscale(directory, "compare", "x", "y", *options)


def in_launches(value: object) -> Edit:
    def edit(content: dict[str, Any]) -> None:
        for launch in content["cells"][0]["launches"]:
            launch["values"]["throughput"] = value

    return edit


def in_cell(key: str, value: object) -> Edit:
    return lambda content: content["cells"][0]["cell"].update({key: value})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), "a finite number, not nan"),
        (float("inf"), "a finite number, not inf"),
        (float("-inf"), "a finite number, not -inf"),
        (1e308, "less than or equal to 1e+30, not 1e+308"),
        (10**35, f"less than or equal to 1e+30, not {10**35}"),
        (5e-324, "greater than or equal to 1e-30, not 5e-324"),
        (-3.0, "greater than or equal to 1e-30, not -3.0"),
        (0, "greater than or equal to 1e-30, not 0"),
        (True, "a valid number, not true"),
        (False, "a valid number, not false"),
        ("12.5", "a valid number"),
        ("1_000", "a valid number"),
        (" 5 ", "a valid number"),
        ("nan", "a valid number"),
        (None, "a valid number"),
        ([], "a valid number"),
        ({}, "a valid number"),
    ],
)
def test_a_figure_that_is_none_is_named_and_not_compared(
    tmp_path: Path, baseline: dict[str, Any], value: object, expected: str
) -> None:
    """``true`` was taken for 1 sample a second, and a text for the number in it: ``worse``."""
    done = against_itself(tmp_path, baseline, in_launches(value))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {FIGURE}{expected}\n"


@pytest.mark.parametrize("written", ["1" * 400, "1" * 5000, "1e999", "-1e999"])
def test_a_number_beyond_all_bounds_is_an_error(
    tmp_path: Path, baseline: dict[str, Any], written: str
) -> None:
    content = copy.deepcopy(baseline)
    in_launches(12345)(content)
    save(tmp_path, "x", json.dumps(content).replace("12345", written))
    save(tmp_path, "a", baseline)
    done = torchscale(tmp_path, "compare", "a", "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: baselines/x.json: ")
    assert len(done.stderr) < 400


@pytest.mark.parametrize("key", ["world_size", "batch_size", "gradient_accumulation"])
@pytest.mark.parametrize("value", [0, -1, 2**63, True, "1", 1.5, None])
def test_a_cell_that_cannot_be_is_named(
    tmp_path: Path, baseline: dict[str, Any], key: str, value: object
) -> None:
    """0 devices at a price: a traceback, with the exit code of a regression."""
    done = against_itself(tmp_path, baseline, in_cell(key, value), "--cost", "2", "3")
    assert (done.returncode, done.stdout) == (2, "")
    told = f"baselines/x.json: cells.0.cell.training.{key}: Input should be "
    if (key, value) == ("batch_size", None):
        told = "baselines/x.json: cells.0.cell.training: Value error, batch_size is missing"
    assert told in done.stderr


@pytest.mark.parametrize(
    ("key", "value"),
    [("learning_rate", 0), ("learning_rate", True), ("seed", -1), ("gradient_clipping", -1)],
)
def test_a_setting_that_cannot_be_is_named(
    tmp_path: Path, baseline: dict[str, Any], key: str, value: object
) -> None:
    done = against_itself(tmp_path, baseline, in_cell(key, value))
    assert done.returncode == 2
    assert f"cells.0.cell.training.{key}: Input should be " in done.stderr


LAUNCHES: list[tuple[str, object, str]] = [
    ("delay", [0.9, 0.1], "delay: the least, 0.9, exceeds the most, 0.1"),
    ("delay", [-0.1, 0.1], "delay.0: Input should be greater than or equal to 0, not -0.1"),
    ("delay", [0.1], "delay.1: Field required"),
    ("fixed_work", [0, 1], "fixed_work.0: Input should be greater than"),
    ("other_processes", 2, "other_processes: Input should be less than or equal to 1, not 2"),
    ("other_processes", True, "other_processes: Input should be a valid number, not true"),
    ("started_at", 12, "started_at: Input should be a valid string, not 12"),
    ("values", {"speed": 1.0}, "values.speed.[key].metric: Input should be 'throughput'"),
    ("values", {"busbw": 1.0}, "'busbw' does not have the parts that a key of busbw has"),
    ("flags", "contended", "flags: Input should be a valid"),
]


@pytest.mark.parametrize(("key", "value", "expected"), LAUNCHES)
def test_a_launch_that_contradicts_itself_is_named(
    tmp_path: Path, baseline: dict[str, Any], key: str, value: object, expected: str
) -> None:
    done = against_itself(
        tmp_path, baseline, lambda content: content["cells"][0]["launches"][0].update({key: value})
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "baselines/x.json: cells.0.launches.0" in done.stderr
    assert expected in done.stderr


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_a_cell_that_is_there_twice_is_an_error(
    tmp_path: Path, baseline: dict[str, Any], factor: float
) -> None:
    """The last one was compared: half as fast, or equal, as the file's order had it."""

    def repeat(content: dict[str, Any]) -> None:
        cell = copy.deepcopy(content["cells"][0])
        for launch in cell["launches"]:
            launch["values"]["throughput"] *= factor
        content["cells"].append(cell)

    done = against_itself(tmp_path, baseline, repeat)
    assert (done.returncode, done.stdout) == (2, "")
    assert "cells.1 is the cell of cells.0 again (tiny-resnet-" in done.stderr


@pytest.mark.parametrize(
    ("written", "key"),
    [('"throughput": 9e5, "throughput":', "throughput"), ('"values": {}, "values":', "values")],
)
def test_a_key_that_is_there_twice_is_an_error(
    tmp_path: Path, baseline: dict[str, Any], written: str, key: str
) -> None:
    """As a merge of two branches leaves it."""
    save(tmp_path, "a", baseline)
    save(tmp_path, "x", json.dumps(baseline).replace(f'"{key}":', written, 1))
    for source in ("x", "baselines/x.json"):
        done = torchscale(tmp_path, "compare", "a", source)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"the key '{key}' is there twice in one object; expected it once" in done.stderr


@pytest.mark.parametrize(
    ("edit", "code", "told"),
    [
        (lambda c: c.update(schema_version=1), 2, "written by torchscale 0.1.0 (format 1)"),
        (lambda c: c.update(schema_version=3), 2, "schema version 3; this torchscale reads up to"),
        (lambda c: c.update(schema_version=None), 2, "schema_version: Input should be"),
        (lambda c: c.update(threads_per_rank=-1), 2, "threads_per_rank: Input should be greater"),
        (lambda c: c.update(threads_per_rank=2**63), 2, "threads_per_rank: Input should be less"),
        (lambda c: c.update(created_at=12), 2, "created_at: Input should be a valid string"),
        (lambda c: c.update(extra=1), 2, "extra: Extra inputs are not permitted"),
        (lambda c: c.update(cells=[]), 1, "nothing was compared"),
        (lambda c: c["cells"][0].update(launches=[]), 1, "nothing was compared"),
        (lambda c: c["cells"][0].update(state="great"), 2, "cells.0.state: Input should be 'ok'"),
        (lambda c: c["cells"][0].update(state="crashed"), 1, "nothing was compared"),
        (in_launches(1e-30), 0, ""),
        (in_launches(1e30), 0, ""),
        (in_launches(2**63), 0, ""),
    ],
)
def test_the_file_as_a_whole(
    tmp_path: Path, baseline: dict[str, Any], edit: Edit, code: int, told: str
) -> None:
    done = against_itself(tmp_path, baseline, edit)
    assert done.returncode == code, done.stderr
    assert told in done.stderr
    assert len(done.stderr.splitlines()) <= 1
    assert "better" not in done.stdout
    assert "worse" not in done.stdout


@pytest.mark.parametrize(
    "content",
    ["", "null", "[]", '"x"', '{"cells": [', "[" * 100_000, '{"cells":' * 5_000, '{"cells": []} x'],
)
@pytest.mark.parametrize("source", ["x", "baselines/x.json"])
def test_a_file_that_is_no_baseline_is_named(
    tmp_path: Path, baseline: dict[str, Any], content: str, source: str
) -> None:
    save(tmp_path, "a", baseline)
    save(tmp_path, "x", content)
    done = torchscale(tmp_path, "compare", "a", source)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: baselines/x.json")
    assert len(done.stderr) < 400


@pytest.mark.parametrize("launches", [1, 2, 3, 30_000])
def test_many_and_few_launches(tmp_path: Path, baseline: dict[str, Any], launches: int) -> None:
    def repeat(content: dict[str, Any]) -> None:
        cell = content["cells"][0]
        speeds = (80.0, 80.1, 79.9)
        cell["launches"] = [
            {**cell["launches"][0], "values": {"throughput": speeds[place % 3]}}
            for place in range(launches)
        ]

    done = against_itself(tmp_path, baseline, repeat)
    assert " same\n" in done.stdout
    assert done.returncode == 0


PRICES = ["0", "-0.0", "-1", "nan", "inf", "1e308", "1e-320", "true", "0x1", "1_0", "", "5,5"]


@pytest.mark.parametrize("price", [*PRICES, "€5", "$5", "5EUR", "1e400"])
def test_a_price_that_is_none_is_named(
    tmp_path: Path, baseline: dict[str, Any], price: str
) -> None:
    save(tmp_path, "a", baseline)
    done = torchscale(tmp_path, "compare", "a", "a", "--cost", price)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--cost {price}: expected a price above 0 of a device and hour" in done.stderr


@pytest.mark.parametrize("threshold", ["nan", "-1%", "100%", "inf", "", "2", "1_0%", "0x1"])
def test_a_threshold_that_is_none_is_named(
    tmp_path: Path, baseline: dict[str, Any], threshold: str
) -> None:
    save(tmp_path, "a", baseline)
    done = torchscale(tmp_path, "compare", "a", "a", "--threshold", threshold)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--threshold {threshold}: expected a share such as 2% or 0.02" in done.stderr


RECORDS: list[tuple[tuple[str | int, ...], object]] = [
    (("payload", "ranks", 0, "batches", "seconds", 0), True),
    (("payload", "ranks", 0, "batches", "seconds", 0), "7"),
    (("payload", "ranks", 0, "batches", "seconds", 0), -1),
    (("payload", "ranks", 0, "batches", "seconds", 0), float("nan")),
    (("payload", "ranks", 0, "batches", "steps", 0), 0),
    (("payload", "ranks", 0, "batches", "steps", 0), 2**63),
    (("payload", "ranks", 0, "samples_per_step"), True),
    (("payload", "ranks", 0, "samples_per_step"), 0),
    (("payload", "ranks", 0, "tokens_per_step"), -1),
    (("payload", "ranks", 0, "first_loss"), "2.0"),
    (("payload", "steps", "seconds", "values", 0), -1.0),
    (("payload", "steps", "mean_forward"), True),
    (("payload", "steps", "seconds", "count"), 0),
    (("seconds",), float("inf")),
]


@pytest.mark.parametrize(("path", "value"), RECORDS)
def test_a_record_with_such_a_number_is_left_out_and_named(
    tmp_path: Path, path: tuple[str | int, ...], value: object
) -> None:
    """Without it two launches of three are left, which are fewer than the reference has."""
    measured(tmp_path / "a")
    measured(tmp_path / "b", [second * 0.5 for second in STEADY])
    (file,) = (tmp_path / "b").glob("cells/*/launch-0/record.json")
    content = json.loads(file.read_text())
    parent = content
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    file.write_text(json.dumps(content))
    done = torchscale(tmp_path, "compare", "a", "b", "--format", "json", "--output", "-")
    assert done.returncode == 1
    assert "1 cell not measured, or less than in the reference" in done.stderr
    (cell,) = json.loads(done.stdout)["pairs"][0]["cells"]
    assert {change["verdict"] for change in cell["changes"]} <= {"unclear"}
    shown = torchscale(tmp_path, "compare", "a", "b", "--fail-on", "never")
    key = ".".join(map(str, path)).replace("payload.", "payload.training.")
    assert f"Skipped: {file.relative_to(tmp_path)}: {key}: Input should be " in shown.stdout


def test_a_plan_that_has_a_cell_twice_is_named(tmp_path: Path) -> None:
    measured(tmp_path / "a")
    measured(tmp_path / "b")
    file = tmp_path / "b" / "experiment.json"
    content = json.loads(file.read_text())
    content["plan"].append(content["plan"][0])
    file.write_text(json.dumps(content))
    done = torchscale(tmp_path, "compare", "a", "b")
    assert (done.returncode, done.stdout) == (2, "")
    assert "experiment.json: Value error, plan.1 is the cell of plan.0 again" in done.stderr


@pytest.mark.parametrize(
    ("created_at", "reference"),
    [
        ("2026-01-04T12:00:00+00:00", "night-2"),
        ("2026-01-04T12:00:00+14:00", "night-1"),
        ("2026-01-03T12:00:00-20:00", "night-2"),
        ("2026-01-04T12:00:00Z", "night-2"),
        ("2026-01-04T12:00:00", "night-2"),
        ("", ""),
        ("1970-01-01T00:00:00+00:00", ""),
    ],
)
def test_the_run_before_is_by_the_time_and_not_by_its_text(
    tmp_path: Path, created_at: str, reference: str
) -> None:
    """Nights began at 3:00 UTC. Any text was before ``zzz``, and 12:00 of +14:00 after 3:00."""
    for number in (1, 2, 3, 4):
        write_night(tmp_path / "nights", number)
    file = tmp_path / "nights" / "night-4" / "experiment.json"
    for number in (2, 3):
        other = tmp_path / "nights" / f"night-{number}"
        other.rename(other.with_name(f"night-{number - 1}b"))
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "created_at": created_at}))
    done = torchscale(tmp_path, "compare", "nights/night-4", "--against", "last")
    assert "Traceback" not in done.stderr
    if not reference:
        assert done.returncode == 2
        assert "--against: " in done.stderr
        return
    names = {"night-1": "night-1b", "night-2": "night-2b"}
    assert names[reference] in done.stdout


@pytest.mark.parametrize(
    "created_at", ["zzz", "9999-12-31T23:59:59-14:00", "1900-01-01T00:00:00+00:00"]
)
def test_a_run_that_began_at_no_time_is_refused_with_the_place(
    tmp_path: Path, created_at: str
) -> None:
    write_night(tmp_path / "nights", 1)
    write_night(tmp_path / "nights", 2)
    file = tmp_path / "nights" / "night-2" / "experiment.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "created_at": created_at}))
    done = torchscale(tmp_path, "compare", "nights/night-2", "--against", "last")
    assert (done.returncode, done.stdout) == (2, "")
    assert "experiment.json: created_at: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("created_at", ["", "1970-01-01T00:00:00+00:00", "2999-12-31"])
def test_a_history_shows_runs_of_odd_times(tmp_path: Path, created_at: str) -> None:
    for number in (1, 2):
        write_night(tmp_path / "nights", number)
    file = tmp_path / "nights" / "night-2" / "experiment.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "created_at": created_at}))
    done = torchscale(tmp_path, "history", "nights", "--html", "history.html")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "history.html").stat().st_size > 1000


@pytest.mark.parametrize("value", ["'12.5'", "'abc'", "-1", "0", "1e999", "x'00'", "1e31"])
def test_a_history_with_such_a_level_is_damaged(tmp_path: Path, value: str) -> None:
    write_night(tmp_path / "nights", 1)
    assert torchscale(tmp_path, "history", "nights", "--db", "h.sqlite").returncode == 0
    with sqlite3.connect(tmp_path / "h.sqlite") as connection:
        connection.execute("DROP TRIGGER figure_update")
        connection.execute(f"UPDATE figure SET level = {value}")
    connection.close()
    done = torchscale(tmp_path, "history", "--db", "h.sqlite")
    if value == "'12.5'":  # which the column makes a number
        assert done.returncode == 0
        return
    assert done.returncode == 2
    assert "error: h.sqlite is damaged: 0.level: Input should be" in done.stderr
