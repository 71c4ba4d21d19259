"""What the allocator of a rank does with memory that is freed; each case in a process of its own."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest

from torchscale.analysis.diagnosis.rules_device import KEEPING
from torchscale.worker import heap

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left as they are"),
]

PROGRAM = """
import json, resource, sys
from torchscale.worker import heap
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


def outcome(how: str, **variables: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how],
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
    "variables", [{"MALLOC_TOP_PAD_": "65536"}, {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=131072"}]
)
def test_variables_of_the_user_win(variables: dict[str, str]) -> None:
    assert outcome("keep", **variables)["setting"] == "environment"


def test_the_settings_that_the_advice_names_do_the_same() -> None:
    found = outcome("system", **dict(setting.split("=") for setting in KEEPING.split()))
    assert isinstance(found["faults"], float)
    assert found["faults"] < 2


def test_another_allocator_is_named_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "_provider", lambda: "libjemalloc.so.2")
    heap.keep_freed_memory()
    assert heap.host_allocator().model_dump() == {"name": "libjemalloc.so.2", "setting": None}


def test_the_library_of_malloc_is_found() -> None:
    assert "libc" in heap._provider() or os.environ.get("LD_PRELOAD")
