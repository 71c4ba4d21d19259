"""Machines by files: one that holds several, a directory, several files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.compare.cli.test_compare import measured
from torchscale.config.choices import CompareFormat
from torchscale.errors import UsageError
from torchscale.features.compare.baselines import baseline_rows, read_kept, save
from torchscale.features.compare.peers import (
    compare_with_machines,
    names_files,
    render_peers,
    save_machines,
)
from torchscale.schema.run.result_set import MachineResults


def machines(tmp_path: Path, count: int = 3) -> list[str]:
    """Run folders, of runs whose steps differ."""
    return [
        str(
            measured(
                tmp_path / "runs" / f"m{place}", [1 + 0.1 * place] * 2, experiment_name=f"m{place}"
            )
        )
        for place in range(count)
    ]


def test_one_file_a_directory_and_several_files_hold_the_same_machines(tmp_path: Path) -> None:
    sources, kept = machines(tmp_path), tmp_path / "kept"
    path, content = save_machines("fleet", sources, baselines=kept)
    assert [one.name for one in content.machines] == ["m0", "m1", "m2"]
    single = tmp_path / "single"
    for number, source in enumerate(sources):
        save(f"m{number}", source, baselines=single)
    new = measured(tmp_path / "new", [1.05] * 2)
    texts = [
        str(path),
        "fleet",
        str(single),
        str(tmp_path / "runs"),
        ",".join(str(single / f"m{number}.json") for number in range(3)),
    ]
    for text in texts:
        assert names_files(text, kept)
        report = compare_with_machines(str(new), text, (), baselines=kept)
        (place,) = report.places.places
        assert (place.worse, len(place.others)) == (2, 3), text


def test_a_machine_is_not_one_of_the_others(tmp_path: Path) -> None:
    sources = machines(tmp_path)
    report = compare_with_machines(sources[0], str(tmp_path / "runs"), ())
    assert len(report.places.machines) == 2
    with pytest.raises(UsageError, match="no results of another machine"):
        compare_with_machines(sources[0], sources[0], ())


def test_a_file_that_cannot_be_read_is_left_out_of_a_directory_and_named(tmp_path: Path) -> None:
    machines(tmp_path)
    (tmp_path / "runs" / "torn.json").write_text('{"cells": [')
    new = measured(tmp_path / "new", [1.05] * 2)
    report = compare_with_machines(str(new), str(tmp_path / "runs"), ())
    assert len(report.places.machines) == 3
    assert ["torn.json" in text for text in report.left_out] == [True]
    assert "torn.json" in render_peers(report, CompareFormat.MARKDOWN).decode()


def test_the_list_of_baselines_counts_machines(tmp_path: Path) -> None:
    save_machines("fleet", machines(tmp_path), baselines=tmp_path / "kept")
    (row,) = baseline_rows(tmp_path / "kept")
    assert (row.machines, row.cells, row.launches, row.problem) == (3, 1, 2, "")


@pytest.mark.parametrize("word", ["last", "main", "median-of-10"])
def test_words_for_earlier_runs_win_over_files(
    tmp_path: Path, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / word).mkdir()
    assert not names_files(word)
    assert names_files(f"./{word}")


def test_a_fleet_grows_by_its_name_and_holds_each_machine_once(tmp_path: Path) -> None:
    sources, kept = machines(tmp_path, 4), tmp_path / "kept"
    save_machines("fleet", sources[:3], baselines=kept)
    _, content = save_machines("more", ["fleet", sources[3], sources[0]], baselines=kept)
    assert [one.name for one in content.machines] == ["m0", "m1", "m2", "m3"]
    kept_again = read_kept("more", kept)
    assert isinstance(kept_again, MachineResults)
    assert len(kept_again.machines) == 4
