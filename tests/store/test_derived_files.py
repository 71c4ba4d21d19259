"""Files that follow from the records of a run folder."""

from __future__ import annotations

import csv
from pathlib import Path

from tests.factories import run
from torchscale.store.derived_files import write_derived_files
from torchscale.store.run_folder import RunFolder


def test_the_table_of_a_folder_has_its_cells(tmp_path: Path) -> None:
    content = run({})
    folder = RunFolder.create(tmp_path, content.experiment)

    write_derived_files(folder)

    with (tmp_path / "summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["cell_id"] for row in rows] == [entry.cell.id for entry in content.experiment.plan]
