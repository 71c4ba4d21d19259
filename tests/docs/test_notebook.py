"""The notebook of the docs: what it shows was executed, and its code runs on other results."""

from __future__ import annotations

import importlib
from pathlib import Path

import nbformat
import pytest

from tests.test_run_results import written

ROOT = Path(__file__).resolve().parent.parent.parent
PICTURES = 4


def pictures(notebook: nbformat.NotebookNode) -> int:
    outputs = [
        output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs
    ]
    assert not [
        output
        for output in outputs
        if output.output_type == "error" or output.get("name") == "stderr"
    ]
    return sum("image/png" in output.get("data", {}) for output in outputs)


def test_it_was_executed() -> None:
    text = (ROOT / "docs" / "results.ipynb").read_text()
    notebook = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert pictures(notebook) == PICTURES
    assert "Results(demo: " in text


@pytest.mark.slow
def test_it_runs_on_other_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    written(tmp_path / "results" / "one", launches=1)
    module = importlib.import_module("notebook")
    assert pictures(module.execute(tmp_path / "results")) == PICTURES
