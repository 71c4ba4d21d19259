"""The host, its disk and its network as the probe sees them."""

from __future__ import annotations

from pathlib import Path

from torchscale.worker.probe_host import disk_facts, has_importer, host_facts, nvidia_devices, rdma_ports


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
    assert (found.device, found.port, found.state, found.rate) == ("mlx5_0", 1, "ACTIVE", "400 Gb/sec (4X NDR)")
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


def test_a_partial_nsys_has_no_importer(tmp_path: Path) -> None:
    nsys = tmp_path / "nsight-systems" / "2026.1" / "target-linux-x64" / "nsys"
    nsys.parent.mkdir(parents=True)
    nsys.write_text("")
    assert has_importer(nsys) is False
    importer = tmp_path / "nsight-systems" / "2026.1" / "host-linux-x64" / "QdstrmImporter"
    importer.parent.mkdir()
    importer.write_text("")
    assert has_importer(nsys) is True
    assert has_importer(nsys.parents[1] / "bin" / "nsys") is True
    assert has_importer(tmp_path / "bin" / "nsys") is None
