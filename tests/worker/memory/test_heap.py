"""What the allocator of a rank does with memory that is freed; each case in a process of its
own."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from torchscale.analysis.diagnosis.rules_device import KEEPING
from torchscale.worker.memory import heap

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        platform.libc_ver()[0] != "glibc", reason="other C libraries are left as they are"
    ),
]

PROGRAM = """
import json, resource, sys
from torchscale.worker.memory import heap
if sys.argv[1] == "keep":
    heap.keep_freed_memory()

def step():
    block = bytearray(48 * 2**20)  # above the largest size that glibc keeps by its own rule
    del block

step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(json.dumps({"faults": faults / 5, **heap.host_allocator().model_dump()}))
"""


def outcome(how: str, program: str = PROGRAM, **variables: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", program, how],
        env={**os.environ, **variables},
        check=True,
        capture_output=True,
        timeout=60,
    )
    return dict(json.loads(done.stdout))


def test_freed_memory_is_kept_and_not_fetched_again() -> None:
    system, kept = outcome("system"), outcome("keep")
    assert (system["setting"], kept["setting"]) == ("system", "keep")
    assert str(kept["name"]).startswith("glibc 2.")
    assert isinstance(system["faults"], float) and isinstance(kept["faults"], float)
    assert system["faults"] >= 24, "48 MiB in pages of at most 2 MiB"
    assert kept["faults"] < 2


@pytest.mark.parametrize(
    "variables",
    [{"MALLOC_TOP_PAD_": "65536"}, {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=131072"}],
)
def test_variables_of_the_user_win(variables: dict[str, str]) -> None:
    assert outcome("keep", **variables)["setting"] == "environment"


def test_the_settings_that_the_advice_names_do_the_same() -> None:
    found = outcome("system", **dict(setting.split("=") for setting in KEEPING.split()))
    assert isinstance(found["faults"], float)
    assert found["faults"] < 2


RECORDING = """
import json, resource, sys
from torchscale.worker.memory import heap
heap.keep_freed_memory()
import torch
from torch.profiler import ProfilerActivity, profile

torch.set_num_threads(1)
model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4)))
x = torch.randn(8, 512)

def step():
    model.zero_grad()
    model(x).square().mean().backward()

for _ in range(5):
    step()
heap.prepare_for_profiler(expected_bytes=150 * 5 * 2**20)
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recording:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(150):
        step()
        recording.step()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(json.dumps({"faults": faults / 150}))
"""
"""Steps with 4 MiB of gradients, which are 1,024 pages."""


def test_a_profiler_does_not_make_every_step_fetch_memory() -> None:
    """Without the reserve there are 30 to 400 page faults a step, as the heap happens to lie."""
    assert outcome("recorded", RECORDING)["faults"] < 2


@pytest.mark.parametrize(
    ("expected", "available", "ranks", "reserved"),
    [
        (2**20, 2**34, 1, 2**20),
        (2**40, 2**40, 1, 3 * 2**30),
        (2**40, 2**33, 4, int(0.1 * 2**33)),
        (0, 2**40, 1, None),
    ],
)
def test_no_more_is_reserved_than_there_is(
    monkeypatch: pytest.MonkeyPatch, expected: int, available: int, ranks: int, reserved: int | None
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(heap, "_keeps", True)
    monkeypatch.setattr(heap, "_is_glibc", lambda: True)
    monkeypatch.setattr(heap, "_environment_decides", lambda: False)
    monkeypatch.setattr(heap, "available_memory", lambda: available)
    monkeypatch.setattr(heap, "_reserve", lambda _, size: asked.append(size))
    monkeypatch.setattr("ctypes.CDLL", lambda _: SimpleNamespace(mallopt=lambda *_: 1))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    heap.prepare_for_profiler(expected)
    assert asked == ([] if reserved is None else [reserved])


def test_another_allocator_is_named_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "_provider", lambda: "libjemalloc.so.2")
    monkeypatch.setattr("ctypes.CDLL", lambda _: pytest.fail("mallopt is of glibc"))
    heap.keep_freed_memory()
    heap.prepare_for_profiler()
    assert heap.host_allocator().model_dump() == {"name": "libjemalloc.so.2", "setting": None}


def test_the_library_of_malloc_is_found() -> None:
    assert "libc" in heap._provider() or os.environ.get("LD_PRELOAD")
