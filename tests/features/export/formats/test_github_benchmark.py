"""JSON for github-action-benchmark: what it reads of an entry, and what must not get into its
comparison."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.features.export.formats.runs import BUS, HOSTILE, RUN, cell
from torchscale.errors import UsageError
from torchscale.features.export.formats import github_benchmark, github_benchmark_smaller
from torchscale.report.figures.figure import ExportedRun


def entries(text: str) -> list[dict[str, Any]]:
    """What the action takes: a list of objects with name, unit, value, and text as range and
    extra."""
    found = json.loads(text)
    for entry in found:
        assert (
            {"name", "unit", "value"} <= entry.keys() <= {"name", "unit", "value", "range", "extra"}
        )
        assert isinstance(entry["value"], int | float)
        assert all(isinstance(value, str) for key, value in entry.items() if key != "value")
    names = [entry["name"] for entry in found]
    assert len(set(names)) == len(names)
    return list(found)


def test_each_direction_has_a_file_of_its_own() -> None:
    bigger = entries(github_benchmark.render(RUN).text)
    assert [entry["name"] for entry in bigger] == [
        "gpt2-n2 samples_per_second",
        "comm bus_bandwidth_bytes_per_second operation=all_reduce",
    ]
    assert bigger[0] == {
        "name": "gpt2-n2 samples_per_second",
        "unit": "samples/s",
        "value": 1450.25,
        "range": "1441 to 1459.5 (95 %)",
        "extra": "model: gpt2\ngpus: 2\nprecision: bf16",
    }
    smaller = entries(github_benchmark_smaller.render(RUN).text)
    assert [(entry["name"], entry["value"]) for entry in smaller] == [
        ("gpt2-n2 step_mean_seconds", 0.02)
    ]
    assert "range" not in smaller[0]


def test_cells_with_flags_are_left_out_and_named() -> None:
    exported = github_benchmark.render(RUN)
    assert "flagged" not in exported.text
    assert exported.notes == ("left out for its flags (noisy): flagged",)


def test_nothing_to_say_is_an_error() -> None:
    with pytest.raises(UsageError, match="r: no cell has a figure of which less is better"):
        github_benchmark_smaller.render(ExportedRun("r", (cell(figures=(BUS,)),)))
    with pytest.raises(UsageError, match="left out for their flags: 1"):
        github_benchmark.render(ExportedRun("r", (cell(flags=("noisy",)),)))


def test_any_text_is_json() -> None:
    run = ExportedRun(
        HOSTILE.name,
        tuple(cell(id=each.id, properties=each.properties) for each in HOSTILE.cells[:1]),
    )
    assert entries(github_benchmark.render(run).text)[0]["name"].startswith(HOSTILE.cells[0].id)
