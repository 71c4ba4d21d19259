"""What is in this directory and on this machine, for who types the program's name alone. Quick: it
reads no record, and imports neither torch nor pandas."""

from __future__ import annotations

import csv
import io
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchscale.read.folders import FOLDERS, RUN, SUMMARY, newest_first, other_than_run
from torchscale.read.run_state import run_state
from torchscale.schema.state import State
from torchscale.store.locations import RESULTS, WATCH_REPORT
from torchscale.store.lock import is_locked
from torchscale.util.files import read_bounded
from torchscale.util.nvml import Driver

_DRIVER_SECONDS = 0.25
"""Longest wait for the driver: it takes seconds to wake GPUs that nobody uses."""
_SILENT_SECONDS = 120.0
"""``watch`` writes its report every 15 seconds while it judges."""
_MAX_CONFIGS = 50
"""YAML files that are looked into."""
_MAX_CONFIG_BYTES = 1 << 16
_MAX_BYTES = 64 << 20
_CONFIG = re.compile(rb"^models\s*:", re.MULTILINE)
_AMD = Path("/dev/kfd")


@dataclass(frozen=True)
class Here:
    """What there is to go on with.

    Attributes:
        gpus: The GPUs in words: ``8 × NVIDIA H200``.
        has_gpus: Whether ranks would run on GPUs; ``None`` where the driver did not answer in time.
        runs: The run folders in ``./results``, newest first.
        state: State of the newest one, as ``torchscale runs`` has it; empty without runs.
        config: The config of an experiment that was changed last.
    """

    gpus: str
    has_gpus: bool | None
    runs: Sequence[Path] = ()
    state: str = ""
    config: Path | None = None


def look_around(nvml: Any = None) -> Here:  # noqa: ANN401 - a module without types
    """What is here. ``nvml`` is a substitute for the module ``pynvml``."""
    answers: list[list[str]] = []
    asked = threading.Thread(target=lambda: answers.append(_gpu_names(nvml)), daemon=True)
    asked.start()
    runs = newest_first(RESULTS, (RUN, *FOLDERS))
    state = ""
    if runs:
        state = _state(runs[0])
    config = _newest_config()
    asked.join(_DRIVER_SECONDS)
    if not answers:
        return Here("the driver has not answered yet", None, runs, state, config)
    names = answers[0]
    if names:
        counts = Counter(names)
        said = ", ".join(f"{count} × {name}" for name, count in counts.items())
    elif _AMD.exists():
        return Here("of AMD", None, runs, state, config)
    else:
        said = "none: ranks run on CPU cores, over gloo"
    return Here(said, bool(names), runs, state, config)


def _gpu_names(nvml: Any) -> list[str]:  # noqa: ANN401 - as above
    """The names of the driver's GPUs, without those that have stopped to answer."""
    if nvml is None:
        import pynvml  # noqa: PLC0415 - in the thread that has the time for it

        nvml = pynvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return []
    driver = Driver(nvml)
    try:
        handles = [
            driver.ask("nvmlDeviceGetHandleByIndex", index)
            for index in range(driver.whole("nvmlDeviceGetCount") or 0)
        ]
        names = [driver.text("nvmlDeviceGetName", handle) for handle in handles if handle]
        return [name for name in names if name]
    finally:
        driver.ask("nvmlShutdown")


def _state(folder: Path) -> str:
    """The state of a run, by the files that are written last."""
    try:
        other = other_than_run(folder)
        if other == WATCH_REPORT:
            return _job_state(folder / WATCH_REPORT)
        if other is not None:
            return "recording"
        return _sweep_state(folder)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, csv.Error):
        return "unreadable"


def _job_state(path: Path) -> str:
    state = str(json.loads(read_bounded(path, _MAX_BYTES))["state"])
    if state == "running" and time.time() - path.stat().st_mtime > _SILENT_SECONDS:
        return "without a result"
    return state


def _sweep_state(folder: Path) -> str:
    try:
        table = read_bounded(folder / SUMMARY, _MAX_BYTES).decode()
    except FileNotFoundError:  # nothing has ended yet
        return run_state({State.WAITING}, running=is_locked(folder))
    states = {State(row["state"]) for row in csv.DictReader(io.StringIO(table))} - {State.SKIPPED}
    if not states and any(folder.glob("cells/*/profile-*")):
        return "recording"
    return run_state(states, running=is_locked(folder))


def _newest_config() -> Path | None:
    """The YAML file here that names models and was changed last."""
    try:
        files = sorted(path for path in Path().iterdir() if path.suffix in {".yaml", ".yml"})
        configs = [path for path in files[:_MAX_CONFIGS] if _names_models(path)]
        return max(configs, key=lambda path: path.stat().st_mtime, default=None)
    except OSError:
        return None


def _names_models(path: Path) -> bool:
    try:
        return _CONFIG.search(read_bounded(path, _MAX_CONFIG_BYTES)) is not None
    except (OSError, ValueError):
        return False
