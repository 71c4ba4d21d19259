"""Stores after ``kill -9`` of an export: no half a run is taken for a whole one, and the next
export completes it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.features.export.formats.stores import run_folder
from torchscale.config.choices import ExportTarget
from torchscale.features.export.export import export_to_store

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
_LIMIT_SECONDS = 60.0
_ATTEMPTS = 5


def killed_when(
    directory: Path, target: str, begun: Callable[[], bool], *, env: dict[str, str]
) -> None:
    """Start an export and kill it once it has ``begun`` to write; what it started ends too. An
    export that ended before this process had its turn is begun again."""
    for _ in range(_ATTEMPTS):
        if _killed(directory, target, begun, env=env):
            return
        shutil.rmtree(directory / "store")
    raise AssertionError(f"{_ATTEMPTS} exports ended before they were seen to begin")


def _killed(
    directory: Path, target: str, begun: Callable[[], bool], *, env: dict[str, str]
) -> bool:
    argv = [sys.executable, "-m", "torchscale", "export", "--to", target, "nightly", "-o", "store"]
    (directory / "tmp").mkdir(exist_ok=True)  # what a killed library leaves there
    env = {**os.environ, "TMPDIR": str(directory / "tmp"), **env}
    env.pop("WANDB_SERVICE", None)  # of wandb in this process, which would keep the killed run
    with subprocess.Popen(
        argv, cwd=directory, env=env, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + _LIMIT_SECONDS
        while not _seen(begun):
            if process.poll() is not None:
                assert process.returncode == 0, process.stderr and process.stderr.read()
                return False
            assert time.monotonic() < deadline
            time.sleep(0.001)
        try:
            children = psutil.Process(process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            children = []
        process.kill()
        process.wait(timeout=_LIMIT_SECONDS)
    _, left = psutil.wait_procs(children, timeout=_LIMIT_SECONDS)
    assert left == []
    return process.returncode == -signal.SIGKILL


def _seen(begun: Callable[[], bool]) -> bool:
    try:
        return begun()
    except OSError:  # a directory that was renamed while it was listed
        return False


def test_a_killed_export_to_wandb_leaves_no_half_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_folder(tmp_path / "nightly")
    store = tmp_path / "store"
    home = {f"WANDB_{name}_DIR": str(tmp_path / "home") for name in ("CONFIG", "CACHE", "DATA")}
    killed_when(
        tmp_path, "wandb", lambda: any(store.glob(".torchscale-*/wandb/*/*.wandb")), env=home
    )
    assert all((path / "torchscale.json").is_file() for path in store.glob("wandb/*"))
    for name, value in home.items():
        monkeypatch.setenv(name, value)
    stored = export_to_store(ExportTarget.WANDB, tmp_path / "nightly", str(store), report=False)
    assert list(store.glob(".torchscale-*")) == []
    digests = [
        json.loads((path / "torchscale.json").read_text())
        for path in store.glob("wandb/offline-run-*")
    ]
    assert len(digests) >= 2
    assert stored.place == str(store / "wandb")


def test_a_killed_export_to_mlflow_is_completed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    run_folder(tmp_path / "nightly")
    store = tmp_path / "store"
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    killed_when(tmp_path, "mlflow", lambda: any(store.glob("*/*/params/cell.*")), env={})
    export_to_store(ExportTarget.MLFLOW, tmp_path / "nightly", str(store))
    again = export_to_store(ExportTarget.MLFLOW, tmp_path / "nightly", str(store))
    assert again.written == ("0 runs", "2 were there already")
    client = mlflow.MlflowClient(tracking_uri=str(store))
    wanted = "tags.`torchscale.run` != ''"  # one that was killed before its first tag holds nothing
    runs = client.search_runs([each.experiment_id for each in client.search_experiments()], wanted)
    assert sorted(run.info.status for run in runs) == ["FINISHED"] * 3
    assert len({run.data.tags["torchscale.cell"] for run in runs}) == 3
    cells = [run for run in runs if run.data.tags["torchscale.cell"] != "(sweep)"]
    assert all(
        run.data.tags["torchscale.digest"] and run.data.metrics and run.data.params for run in cells
    )
