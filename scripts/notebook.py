"""Execute ``docs/results.ipynb`` on a run and store its outputs.

    python scripts/notebook.py results/demo

Needs the development dependencies. Metadata that changes with every execution (execution times, the
kernel's version) is removed, so that the file changes only if its contents do.
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
    """The notebook with its outputs for these results.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised an exception.
    """
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    env = {**os.environ, "TORCHSCALE_RESULTS": str(results.resolve())}
    client = NotebookClient(notebook, timeout=LIMIT_SECONDS, record_timing=False)
    client.execute(cwd=str(NOTEBOOK.parent), env=env)
    for cell in notebook.cells:
        cell.metadata.clear()
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}
    }
    return notebook


if __name__ == "__main__":
    nbformat.write(execute(Path(sys.argv[1])), NOTEBOOK)
