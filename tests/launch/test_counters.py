"""Error counters of network interfaces."""

from __future__ import annotations

from pathlib import Path

from torchscale.launch.counters import network_counters


def test_errors_of_every_interface_but_the_loopback_are_read(tmp_path: Path) -> None:
    for name in ("lo", "eth0", "ib0"):
        (tmp_path / name / "statistics").mkdir(parents=True)
        (tmp_path / name / "statistics" / "rx_errors").write_text("7\n")
        (tmp_path / name / "statistics" / "rx_dropped").write_text("900\n")
    found = network_counters(tmp_path)
    assert [(each.part, each.counter, each.value) for each in found] == [
        ("eth0", "rx_errors", 7),
        ("ib0", "rx_errors", 7),
    ]


def test_a_kernel_without_interfaces_has_no_counters(tmp_path: Path) -> None:
    assert network_counters(tmp_path / "none") == []
