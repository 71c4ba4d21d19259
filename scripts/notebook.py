"""Execute ``docs/results.ipynb`` on a run and keep what it shows.

    python scripts/notebook.py results/demo

Needs the development dependencies. What differs from one execution to the next without saying anything (times of
execution, the kernel's version) is left out, so that a change of the file is a change of what it says.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parent.parent / "docs" / "results.ipynb"
LIMIT_SECONDS = 300


def execute(results: Path) -> nbformat.NotebookNode:
    """The notebook with what it shows of these results.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell of it raised.
    """
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    env = {**os.environ, "TORCHSCALE_RESULTS": str(results.resolve())}
    client = NotebookClient(notebook, timeout=LIMIT_SECONDS, record_timing=False)
    client.execute(cwd=str(NOTEBOOK.parent), env=env)
    for cell in notebook.cells:
        cell.metadata.clear()
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return notebook


if __name__ == "__main__":
    nbformat.write(execute(Path(sys.argv[1])), NOTEBOOK)
