"""The run that a worker of Ray Train is of; Ray is not imported for it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from torchscale.util.ray_worker import RayRun, ray_run


def fake_ray_train(
    monkeypatch: pytest.MonkeyPatch, path: object, kind: str = "local", rank: int = 0
) -> None:
    """This process is a worker of a run that is stored at ``path``."""
    storage = SimpleNamespace(
        experiment_fs_path=str(path), storage_filesystem=SimpleNamespace(type_name=kind)
    )
    context = SimpleNamespace(
        get_experiment_name=lambda: "tuesday",
        get_world_rank=lambda: 2 + rank,
        get_local_rank=lambda: rank,
        get_storage=lambda: storage,
    )
    module = ModuleType("ray.train")
    module.__dict__["get_context"] = lambda: context
    monkeypatch.setitem(sys.modules, "ray.train", module)


def test_a_worker_knows_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_ray_train(monkeypatch, "/shared/tuesday", rank=1)
    assert ray_run() == RayRun("tuesday", 3, 1, Path("/shared/tuesday"), "local:/shared/tuesday")
    fake_ray_train(monkeypatch, "bucket/tuesday", kind="s3")
    assert ray_run() == RayRun("tuesday", 2, 0, None, "s3:bucket/tuesday")


def test_without_ray_or_outside_of_a_train_function_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "ray.train", raising=False)
    assert ray_run() is None
    assert "ray.train" not in sys.modules
    fake_ray_train(monkeypatch, "/shared/tuesday")

    def outside() -> None:
        raise RuntimeError("no train context")

    monkeypatch.setattr(sys.modules["ray.train"], "get_context", outside, raising=False)
    assert ray_run() is None
