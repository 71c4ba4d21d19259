"""Which NVTX a rank marks with."""

from __future__ import annotations

import sys

import pytest
import torch

from torchscale.errors import MachineError
from torchscale.schema.profiles.nvtx_names import NVTX_PACKAGE
from torchscale.worker.profile.nvtx import CudaNvtx, HostNvtx, nvtx_for, ranged
from torchscale.worker.profile.nvtx_check import main


def test_torchs_own_on_cuda_and_the_package_on_cpus() -> None:
    assert isinstance(nvtx_for(torch.device("cuda", 1)), CudaNvtx)
    nvtx = nvtx_for(torch.device("cpu"))
    assert isinstance(nvtx, HostNvtx)
    with ranged(nvtx, "a range"):  # without nsys nothing comes of it
        nvtx.mark("a mark")
    nvtx.end(nvtx.start("a range of the process"))
    main()


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    with pytest.raises(MachineError, match="the package nvtx, which cannot be imported") as caught:
        HostNvtx()
    assert NVTX_PACKAGE in (caught.value.hint or "")
