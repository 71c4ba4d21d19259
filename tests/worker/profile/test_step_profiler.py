"""Recording steps in this process."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
import torch
from torch.profiler import profile

from torchscale.config.choices import ProfileTarget, Tool
from torchscale.features.trace.readers.recordings import find_recordings, read_recordings
from torchscale.features.trace.span import CpuUse
from torchscale.schema.profiles.request import RecordRequest
from torchscale.worker.profile import step_profiler
from torchscale.worker.profile.step_profiler import StepProfiler


def test_it_listens_for_collections_only_while_the_profiler_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starting imports much, and a collection in the middle of an import must not import more."""
    before = len(gc.callbacks)
    listening = []

    class Watched(profile):
        def start(self) -> None:
            listening.append(len(gc.callbacks) - before)
            super().start()
            listening.append(len(gc.callbacks) - before)

        def stop(self) -> None:
            listening.append(len(gc.callbacks) - before)
            super().stop()

    monkeypatch.setattr(step_profiler, "profile", Watched)
    request = RecordRequest(
        tool=Tool.KINETO,
        target=ProfileTarget.KERNELS,
        directory=str(tmp_path),
        seconds=60,
        max_steps=2,
        skip_steps=1,
    )
    profiler = StepProfiler(request, 0, 1)
    profiler.step()
    assert len(gc.callbacks) == before + 1
    gc.collect()
    for _ in range(6):
        profiler.step()
    assert profiler.done
    assert listening == [0, 0, 0]
    assert len(gc.callbacks) == before
    assert (tmp_path / "recorded-rank-0.json").exists()


def test_a_trace_says_what_its_process_may_compute_on(tmp_path: Path) -> None:
    request = RecordRequest(
        tool=Tool.KINETO,
        target=ProfileTarget.KERNELS,
        directory=str(tmp_path),
        seconds=60,
        max_steps=2,
        skip_steps=1,
    )
    profiler = StepProfiler(request, 0, 1)
    for _ in range(7):
        torch.ones(3).sum()
        profiler.step()
    (rank,) = read_recordings(find_recordings([tmp_path])).ranks
    assert rank.cpu_use == CpuUse(torch.get_num_threads(), frozenset(os.sched_getaffinity(0)))


def test_a_profiler_that_cannot_start_leaves_nothing_listening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(profile):
        def start(self) -> None:
            raise RuntimeError("no profiler here")

        def stop(self) -> None:
            """Never started."""

    before = len(gc.callbacks)
    monkeypatch.setattr(step_profiler, "profile", Broken)
    request = RecordRequest(
        tool=Tool.KINETO,
        target=ProfileTarget.KERNELS,
        directory=str(tmp_path),
        seconds=60,
        max_steps=2,
        skip_steps=1,
    )
    profiler = StepProfiler(request, 0, 1)
    with pytest.raises(RuntimeError, match="no profiler here"):
        profiler.step()
    profiler.close()
    assert len(gc.callbacks) == before
