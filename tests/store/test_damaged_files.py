"""A record of which only a part is left, or a byte is another: it is named and left out, or still
says the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.campaign import WHOLE
from tests.factories import cells, experiment, experiment_file, launch_record, trained
from torchscale.analysis.summary.run import summarize
from torchscale.errors import StoreError
from torchscale.schema.run.experiment_file import PlannedCell
from torchscale.schema.state import State
from torchscale.store.run_folder import RunFolder, load_run

CELL = cells(gpu_counts=[1])[0]
RECORD = launch_record(CELL, batches=(0.5,)).model_dump_json().encode()


def folder(path: Path) -> RunFolder:
    config = experiment(gpu_counts=[1])
    made = RunFolder.create(path, experiment_file(config, [PlannedCell(cell=CELL)]))
    made.begin_launch(CELL, 0)
    made.finish_launch(CELL, launch_record(CELL))
    return made


def test_a_record_cut_at_every_byte(tmp_path: Path) -> None:
    path = folder(tmp_path / "run").launch_directory(CELL, 0) / "record.json"
    for length in range(0, len(RECORD), 1 if WHOLE else 7):
        path.write_bytes(RECORD[:length])
        run = load_run(tmp_path / "run")
        assert run.cells[0].launches == ()
        (problem,) = run.problems
        assert "record.json" in problem
    path.write_bytes(RECORD)
    assert load_run(tmp_path / "run").problems == ()


def test_a_plan_cut_at_every_byte(tmp_path: Path) -> None:
    folder(tmp_path / "run")
    path = tmp_path / "run" / "experiment.json"
    whole = path.read_bytes()
    for length in range(0, len(whole.rstrip()), 1 if WHOLE else 13):
        path.write_bytes(whole[:length])
        with pytest.raises(StoreError, match=r"experiment\.json"):
            load_run(tmp_path / "run")


@settings(max_examples=3000 if WHOLE else 150)
@given(
    st.lists(
        st.tuples(st.integers(0, len(RECORD) - 1), st.integers(0, 255)), min_size=1, max_size=3
    )
)
def test_other_bytes_in_a_record(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    if not (tmp_path / "run").exists():
        folder(tmp_path / "run")
    opened = RunFolder.open(tmp_path / "run")
    content = bytearray(RECORD)
    for place, value in changes:
        content[place] = value
    (opened.launch_directory(CELL, 0) / "record.json").write_bytes(content)
    run = opened.load()
    assert len(run.problems) + len(run.cells[0].launches) == 1
    summary = summarize(run)
    assert all(
        cell.figures is None or cell.state in (State.OK, State.PARTIAL) for cell in summary.cells
    )
    assert trained(run.cells[0].planned) == CELL
