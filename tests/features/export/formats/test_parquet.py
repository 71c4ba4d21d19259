"""Parquet, read back by pyarrow and by pandas: the tables of a run, typed."""

from __future__ import annotations

import csv
import json
import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet as reader

from tests import factories
from torchscale.errors import OutputError
from torchscale.features.export.formats import parquet
from torchscale.features.export.formats.parquet import CELLS, LAUNCHES, STEPS
from torchscale.features.export.formats.store import RunToStore, Stored
from torchscale.report.figures.run import exported_run
from torchscale.report.formats.export import summary_csv
from torchscale.results.reader import read_summary
from torchscale.store.run_folder import RunFolder

DOCS = Path(__file__).parents[4] / "docs" / "export.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two cells of two launches, the first with the steps of one rank."""
    content = factories.run(benchmark={"repeats": 2})
    made = RunFolder.create(tmp_path / "nightly", content.experiment)
    for entry in content.experiment.plan:
        for launch in (0, 1):
            cell = factories.trained(entry)
            directory = made.begin_launch(cell, launch)
            made.finish_launch(cell, factories.launch_record(cell, launch))
            steps = [
                {
                    "step": step,
                    "seconds": 0.1,
                    "data_wait": 0.01,
                    "forward": 0.03,
                    "backward": 0.05,
                    "optimizer": 0.01,
                }
                for step in (20, 21)
            ]
            if cell.world_size == 1:
                lines = "".join(json.dumps(step) + "\n" for step in steps)
                (directory / "steps-rank-0.jsonl").write_text(lines)
    return made.path


def store(folder: Path, place: Path | None) -> Stored:
    summary = read_summary(folder)
    run = RunToStore(folder, summary, exported_run(summary), None)
    return parquet.store(run, None if place is None else str(place))


def rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = reader.read_table(path).to_pylist()
    return found


def test_the_tables_hold_what_the_folder_does(folder: Path, tmp_path: Path) -> None:
    stored = store(folder, tmp_path / "new" / "tables")
    assert stored.written == (
        "cells.parquet: 2 rows",
        "launches.parquet: 4 rows",
        "steps.parquet: 4 rows",
    )
    assert stored.notes == ()
    tables = tmp_path / "new" / "tables"
    expected = list(csv.DictReader(summary_csv(read_summary(folder)).splitlines()))
    for row, line in zip(rows(tables / "cells.parquet"), expected, strict=True):
        assert row.pop("run") == "nightly"
        assert row.keys() == line.keys()
        for name, value in row.items():
            text = (
                "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
            )
            assert text == line[name], name
    launches = rows(tables / "launches.parquet")
    assert [launch["launch"] for launch in launches] == [0, 1, 0, 1]
    assert {launch["started_at"].tzinfo for launch in launches} != {None}
    record = factories.launch_record(factories.trained(RunFolder.open(folder).experiment.plan[0]))
    assert launches[0]["started_at"] == datetime.fromisoformat(record.started_at).astimezone(
        timezone.utc
    )
    summary = read_summary(folder).cells[0]
    assert summary.figures is not None
    rates = [launch["samples_per_second"] for launch in launches[:2]]
    assert rates == pytest.approx(list(summary.figures.launch_samples_per_second))
    steps = rows(tables / "steps.parquet")
    assert {(step["launch"], step["rank"], step["step"]) for step in steps} == {
        (0, 0, 20),
        (0, 0, 21),
        (1, 0, 20),
        (1, 0, 21),
    }
    assert (steps[0]["step_seconds"], steps[0]["backward_seconds"], steps[0]["bubble_seconds"]) == (
        0.1,
        0.05,
        None,
    )


def test_types_do_not_depend_on_the_values(folder: Path, tmp_path: Path) -> None:
    store(folder, tmp_path)
    for name, columns in (("cells", CELLS), ("launches", LAUNCHES), ("steps", STEPS)):
        schema = reader.read_schema(tmp_path / f"{name}.parquet")
        assert {field.name: str(field.type) for field in schema} == dict(columns)
    schema = reader.read_schema(tmp_path / "cells.parquet")
    assert schema.field("mfu").type == pyarrow.float64()  # of a CPU: every value is missing
    assert schema.field("compile").type == pyarrow.string()


def test_what_cannot_be_written_leaves_what_was_there(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(folder, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.parquet")}

    def no_space(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(reader.ParquetWriter, "write_table", no_space)
    with pytest.raises(
        OutputError, match=r"cannot write .*cells\.parquet: No space left on device"
    ):
        store(folder, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.parquet")} == before
    assert list(tmp_path.glob(".*")) == []


def test_every_column_is_documented() -> None:
    documented = set(re.findall(r"`([a-z0-9_]+)`", DOCS.read_text()))
    assert {*LAUNCHES, *STEPS} <= documented
