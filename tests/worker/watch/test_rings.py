"""The flight recorders of one process: all that this torch has."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.worker.watch.recorders import (
    Dump,
    dumps,
    dumps_by_name,
    entry,
    fails,
    has_recorders,
)
from torchscale.worker.watch import rings as module
from torchscale.worker.watch.dump import flight_recorders
from torchscale.worker.watch.rings import backends, queries_allowed, rings

GLOO, NCCL = entry(1, "broadcast", backend="gloo"), entry(1, "all_reduce", backend="nccl")


def names_of(content: dict[str, Any]) -> list[str]:
    return [one["profiling_name"] for one in content.get("entries", [])]


@pytest.mark.parametrize(
    ("gloo", "nccl"), [([], [NCCL]), ([GLOO], []), ([GLOO], [NCCL])], ids=["nccl", "gloo", "both"]
)
@pytest.mark.parametrize("gloo_first", [True, False])
def test_every_recorder_is_read_whatever_the_order_of_their_names(
    monkeypatch: pytest.MonkeyPatch,
    gloo: list[dict[str, Any]],
    nccl: list[dict[str, Any]],
    gloo_first: bool,
) -> None:
    """A wheel for CUDA has both functions, and one of the rings is empty."""
    functions: list[tuple[str, Dump]] = [
        ("_dump_fr_trace", dumps(*gloo)),
        ("_dump_nccl_trace", dumps(*nccl)),
    ]
    has_recorders(monkeypatch, **dict(functions if gloo_first else functions[::-1]))
    found, problem = flight_recorders()
    assert {name: names_of(content) for name, content in found.items()} == {
        "gloo": [one["profiling_name"] for one in gloo],
        "nccl": [one["profiling_name"] for one in nccl],
    }
    assert problem == ""


def test_a_recorder_that_fails_leaves_the_others_and_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    has_recorders(monkeypatch, _dump_fr_trace=dumps(GLOO), _dump_nccl_trace=fails)
    found, problem = flight_recorders()
    assert names_of(found["gloo"]) == ["gloo:broadcast"]
    assert problem == "torch's flight recorder of nccl failed: RuntimeError"


def test_recorders_that_are_all_empty_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    has_recorders(monkeypatch, _dump_fr_trace=dumps(), _dump_nccl_trace=dumps())
    assert flight_recorders()[1] == "torch's flight recorders are empty (gloo, nccl)"


def test_functions_that_dump_something_else_are_no_recorders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    has_recorders(
        monkeypatch,
        _dump_nccl_trace=dumps(NCCL),
        _dump_nccl_trace_json=fails,
        _dump_fr_trace_file=fails,
        _dump_xccl_trace=dumps(),
    )
    assert [ring.name for ring in rings()] == ["nccl", "xccl"]


def test_a_recorder_for_each_backend_that_hooks_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """From torch 2.15 on: by the names of the backends in use."""
    nccl2 = dumps(entry(1, "all_reduce", backend="nccl2"))
    has_recorders(
        monkeypatch,
        _dump_fr_trace=dumps_by_name({"nccl2": nccl2}, dumps(GLOO)),
        _dump_nccl_trace=dumps(),
    )
    monkeypatch.setattr(module, "backends", lambda: {"gloo", "nccl2", "nccl"})
    found, _ = flight_recorders()
    assert {name: names_of(content) for name, content in found.items()} == {
        "gloo": ["gloo:broadcast"],
        "nccl2": ["nccl2:all_reduce"],
        "nccl": [],
    }


def test_backends_name_themselves(tmp_path: Path) -> None:
    assert backends() == set()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        assert backends() == {"gloo"}
    finally:
        dist.destroy_process_group()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that uses a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    module._exchange.cache_clear()


@pytest.mark.parametrize("library", ["libcuda.so.1", "libamdhip64.so"])
def test_a_dump_lets_captures_of_graphs_pass(
    monkeypatch: pytest.MonkeyPatch, device: None, library: str
) -> None:
    """The thread's mode is relaxed while it dumps, and then as before: on a GPU a dump beside a
    capture made the capture fail."""
    mode, seen = [1], []

    def exchange(passed: Any) -> int:
        mode[0], passed._obj.value = passed._obj.value, mode[0]
        return 0

    def load(name: str) -> SimpleNamespace:
        if name != library:
            raise OSError(name)
        function = next(function for known, function in module._EXCHANGES if known == library)
        return SimpleNamespace(**{function: exchange})

    monkeypatch.setattr(ctypes, "CDLL", load)

    def dump(*_: object) -> bytes:
        seen.append(mode[0])
        return dumps(NCCL)()

    has_recorders(monkeypatch, _dump_nccl_trace=dump)
    (ring,) = rings()
    ring.content()
    assert seen == [2]
    assert mode == [1]
    module._exchange.cache_clear()


def test_without_such_a_function_nothing_is_dumped(
    monkeypatch: pytest.MonkeyPatch, device: None
) -> None:
    def load(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", load)
    with pytest.raises(RuntimeError, match="no driver"), queries_allowed():
        pass
    has_recorders(monkeypatch, _dump_nccl_trace=dumps(NCCL))
    assert flight_recorders() == ({}, "torch's flight recorder of nccl failed: RuntimeError")
    module._exchange.cache_clear()
