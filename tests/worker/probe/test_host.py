"""The host, its disk and its network as the probe sees them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from torchscale.worker.probe.host import (
    disk_facts,
    host_facts,
    nsys_facts,
    nvidia_devices,
    rdma_ports,
)
from torchscale.worker.probe.system import system_facts


def test_nvidia_controllers_on_the_bus_are_counted(tmp_path: Path) -> None:
    for name, vendor, kind in (
        ("0000:01:00.0", "0x10de", "0x030200"),  # a GPU
        ("0000:01:00.1", "0x10de", "0x040300"),  # its audio
        ("0000:02:00.0", "0x1a03", "0x030000"),  # a board's own graphics
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "class").write_text(f"{kind}\n")
    assert nvidia_devices(tmp_path) == 1
    assert nvidia_devices(tmp_path / "none") is None


def test_infiniband_ports_from_the_kernels_tree(tmp_path: Path) -> None:
    port = tmp_path / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
    (port / "link_layer").write_text("InfiniBand\n")
    (found,) = rdma_ports(tmp_path)
    assert (found.device, found.port, found.state, found.rate) == (
        "mlx5_0",
        1,
        "ACTIVE",
        "400 Gb/sec (4X NDR)",
    )
    assert rdma_ports(tmp_path / "none") == []


def test_the_host(tmp_path: Path) -> None:
    facts = host_facts(infiniband=tmp_path, nodes=tmp_path, shm=tmp_path)
    assert facts.numa_nodes is None
    assert facts.shm_bytes
    assert facts.cores >= 1
    assert facts.open_files_limit


def test_the_disk_is_written_to_and_left_clean(tmp_path: Path) -> None:
    facts = disk_facts(tmp_path / "not" / "yet" / "there")
    assert facts.path == str(tmp_path)
    assert facts.error is None
    assert facts.write_bytes_per_second is not None
    assert facts.write_bytes_per_second > 1e5
    assert list(tmp_path.iterdir()) == []


def test_an_output_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("")
    assert disk_facts(tmp_path / "results").error == "not a directory"
    assert disk_facts(tmp_path / "results" / "run").error == "not a directory"


def test_an_nsys_whose_importer_cannot_run_is_told_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "2026.1" / "target-linux-x64" / "nsys"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho NVIDIA Nsight Systems version 2026.1.2.3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    facts = nsys_facts()
    assert (facts.path, facts.version, facts.can_export) == (str(program), "2026.1.2.3", False)
    assert facts.problem == "its importer is not installed"
    importer = tmp_path / "2026.1" / "host-linux-x64" / "QdstrmImporter"
    importer.parent.mkdir()
    importer.write_text("#!/bin/sh\n")
    importer.chmod(0o755)
    assert (nsys_facts().can_export, nsys_facts().problem) == (True, "")


def test_a_file_system_without_limits_has_the_largest_numbers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Some network file systems report 2**64 bytes and files."""
    whole = (1 << 64) - 1
    usage = SimpleNamespace(total=whole, free=whole)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_files=whole, f_favail=whole))
    facts = disk_facts(tmp_path)
    assert facts.free_bytes == facts.files_free == (1 << 63) - 1
    assert host_facts(shm=tmp_path).shm_bytes == (1 << 63) - 1
    assert system_facts().temporary_free_bytes == (1 << 63) - 1
