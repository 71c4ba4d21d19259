"""The probe as a process."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from torchscale.schema.node.probe import NodeFacts
from torchscale.worker.probe.node import software_facts


def test_a_broken_torch_is_a_fact_and_not_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "raise OSError('libcudart.so.12: cannot open shared object file')"
    )
    done = subprocess.run(
        [sys.executable, "-m", "torchscale.worker.probe", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=tmp_path,
    )
    facts = NodeFacts.model_validate(json.loads(done.stdout.splitlines()[-1]))
    assert facts.software is not None
    assert facts.software.torch is None
    assert facts.software.torch_error == "OSError: libcudart.so.12: cannot open shared object file"
    assert facts.host is not None


def test_what_cuda_says_when_it_cannot_be_used_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    said = (
        "CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did you run some cuda "
        "functions before calling NumCudaDevices() that might have already set an error? Error "
        "802: system not yet initialized (Triggered internally at "
        "/pytorch/c10/cuda/CUDAFunctions.cpp:119.)"
    )

    def is_available() -> bool:
        warnings.warn(said, stacklevel=1)
        return False

    def init() -> None:
        raise RuntimeError("No CUDA GPUs are available")

    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", is_available)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr(torch.cuda, "init", init)
    facts = software_facts()
    assert (facts.cuda_available, facts.cuda_devices, facts.torch_error) == (False, 8, None)
    assert (facts.cuda_error or "").endswith("Error 802: system not yet initialized")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert software_facts().cuda_error == "No CUDA GPUs are available"
    monkeypatch.setattr(torch.version, "cuda", None)
    assert software_facts().cuda_error is None
