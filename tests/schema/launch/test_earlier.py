"""Records with an object for each batch and each rank's digest are read as those with columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.factories import cells, launch_record
from torchscale.schema.launch.record import LaunchRecord
from torchscale.store.json_files import DamagedFileError, read_model

RECORD = launch_record(cells(gpu_counts=[2])[0])
OF_SECONDS = ("count", "mean", "minimum", "p50", "p95", "p99", "maximum")


def rows(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def earlier() -> Any:
    content = json.loads(RECORD.model_dump_json())
    payload = content["payload"]
    assert payload["rank_steps"].pop("mean_compute") == []  # later versions have it
    for rank in payload["ranks"]:
        rank["batches"] = rows(rank["batches"])
        rank["warmup"]["batches"] = rows(rank["warmup"]["batches"])
    payload["rank_steps"] = [
        {
            "seconds": {**{key: row[key] for key in OF_SECONDS}, "values": []},
            **{key: value for key, value in row.items() if key not in OF_SECONDS},
        }
        for row in rows(payload["rank_steps"])
    ]
    return content


def read(directory: Path, content: object) -> LaunchRecord:
    path = directory / "record.json"
    path.write_text(json.dumps(content))
    return read_model(directory, path, LaunchRecord)


def test_a_record_of_objects_is_that_of_columns(tmp_path: Path) -> None:
    content = earlier()
    assert content["payload"]["ranks"][0]["batches"][0] == {"steps": 10, "seconds": 1.0}
    assert content["payload"]["rank_steps"][0]["seconds"]["count"] == 100
    assert read(tmp_path, content) == RECORD


@pytest.mark.parametrize(
    "batch",
    [
        {"steps": 10},
        {"steps": 10, "seconds": -1.0},
        {"steps": 10, "seconds": None},
        3,
        {"seconds": 1, "x": 1},
    ],
)
def test_what_is_damaged_is_refused(batch: object, tmp_path: Path) -> None:
    content = earlier()
    content["payload"]["ranks"][1]["batches"][3] = batch
    with pytest.raises(DamagedFileError, match=r"payload\.training\.ranks\.0\.\w*\.?batches"):
        read(tmp_path, content)


@pytest.mark.parametrize(
    "digests", [[{}], [{"seconds": 3}], [{"seconds": {"values": []}}, {}], [3], "x"]
)
def test_damaged_digests_are_refused(digests: object, tmp_path: Path) -> None:
    content = earlier()
    content["payload"]["rank_steps"] = digests
    with pytest.raises(DamagedFileError):
        read(tmp_path, content)
