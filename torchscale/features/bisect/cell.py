"""A cell of torchscale as the command of a bisection: ``torchscale benchmark …``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torchscale.analysis.stats.series import geometric_mean
from torchscale.analysis.training.throughput import mean_step_seconds
from torchscale.errors import StoreError, UsageError
from torchscale.schema.cells.kinds import as_kind
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.state import State
from torchscale.store.run_folder import load_run

_OWN_OPTIONS = ("--output-dir", "-o", "--output", "--json", "--dry-run", "--resume")


def is_benchmark(command: Sequence[str]) -> bool:
    """Whether a command is ``torchscale benchmark``."""
    return Path(command[0]).name == "torchscale" and "benchmark" in command[1:2]


def check_benchmark(command: Sequence[str]) -> None:
    """
    Raises:
        UsageError: it is another command of torchscale, or has an option that is set for it.
    """
    if Path(command[0]).name != "torchscale":
        return
    if not is_benchmark(command):
        raise UsageError(
            f"torchscale {' '.join(command[1:2])} is no cell",
            hint="-- torchscale benchmark config.yaml, or the command of your own program",
        )
    for word in command[2:]:
        if word.partition("=")[0] in _OWN_OPTIONS:
            raise UsageError(f"{word}: bisect gives each launch a folder of its own")


def one_launch(command: Sequence[str], folder: Path) -> tuple[str, ...]:
    """The command for one launch of its cells, into a folder."""
    return (*command, f"--output-dir={folder.absolute()}", "--benchmark.repeats=1")


def cell_seconds(folder: Path) -> tuple[float | None, str]:
    """The mean step of the launch in a folder, of several cells their geometric mean; or ``None``
    and why there is none."""
    seconds = []
    try:
        cells = load_run(folder).cells
    except StoreError as error:
        return None, error.message
    for cell in cells:
        for record in cell.launches:
            if record.state is not State.OK:
                return None, f"{record.state.value}: {record.reason}"
            trained = as_kind(record.payload, TrainingResult)
            if trained is not None:
                seconds.append(mean_step_seconds(trained))
    if not seconds:
        return None, "no training cell was launched"
    return geometric_mean(seconds), ""
