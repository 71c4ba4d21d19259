"""Records of the kernel's log, as /dev/kmsg gives them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchscale.worker.probe.kernel_log import facts_of, kernel_log_facts

# As in public reports, among them those of leptonai/gpud and stas00/ml-engineering.
FALLEN_OFF = (
    "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
)
REMAPPED = (
    "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset "
    "gpu to activate."
)
SWITCH = (
    "nvidia-nvswitch1: SXid (PCI:0000:84:00.0): 12028, Non-fatal, Link 32 egress nonposted PRIV "
    "error (First)"
)
SWITCH_DATA = (
    "nvidia-nvswitch1: SXid (PCI:0000:84:00.0): 12028, Data {0x000001c0, 0x00bd5c8a, 0x00000500}"
)


def record(seconds: float, text: str) -> str:
    return f"3,1234,{round(seconds * 1e6)},-;{text}\n SUBSYSTEM=pci\n"


def test_errors_are_counted_by_gpu_and_number_with_their_age() -> None:
    later = FALLEN_OFF.replace("<unknown>", "python3")
    records = [
        record(0, "Linux version 6.8.0"),
        record(100, FALLEN_OFF),
        record(150, REMAPPED),
        record(160, later),
        record(170, "NVRM: loading NVIDIA UNIX Open Kernel Module"),
    ]
    facts = facts_of(iter(records), now=200)
    assert facts.error is None
    assert facts.covered_seconds == 200
    fallen, remapped = facts.messages
    assert (fallen.kind, fallen.code, fallen.pci_address) == ("xid", 79, "0000:9b:00")
    assert (fallen.times, fallen.first_seconds_ago, fallen.last_seconds_ago) == (2, 100, 40)
    assert fallen.text == "pid='python3', name=python3, GPU has fallen off the bus."
    assert (remapped.code, remapped.pci_address, remapped.times) == (63, "0000:10:1c", 1)


def test_an_error_of_a_switch_is_one_and_its_registers_none() -> None:
    facts = facts_of(iter([record(1, SWITCH), record(1.1, SWITCH_DATA)]), now=2)
    (message,) = facts.messages
    assert (message.kind, message.code, message.pci_address) == ("sxid", 12028, "0000:84:00.0")
    assert message.text.startswith("Non-fatal, Link 32")
    assert message.times == 1


@pytest.mark.parametrize(
    "text",
    [
        "3,1,x,-;" + FALLEN_OFF,
        "no fields;" + FALLEN_OFF,
        FALLEN_OFF,
        "",
        record(1, "python: NVRM: Xid 79 is what I look for"),
        record(1, "NVRM: Xid (PCI:0000:9b:00): many, pid=1"),
        record(1, "NVRM: Xid (PCI:0000:9b:00): 123456, pid=1"),
    ],
)
def test_other_lines_are_no_errors(text: str) -> None:
    assert facts_of(iter([text]), now=2).messages == ()


def test_a_flood_of_errors_is_bounded() -> None:
    records = [
        record(index, FALLEN_OFF.replace("79", str(index)) + "x" * 5000) for index in range(3000)
    ]
    facts = facts_of(iter(records), now=3000)
    assert len(facts.messages) == 200
    assert max(len(message.text) for message in facts.messages) == 300


def test_the_log_of_this_machine_is_read_or_says_why_not() -> None:
    facts = kernel_log_facts()
    if facts.error is None:
        assert facts.covered_seconds is None or facts.covered_seconds >= 0
    else:
        assert "root" in facts.error or "containers" in facts.error or facts.messages == ()


def test_a_log_that_is_missing_or_forbidden_is_said(tmp_path: Path) -> None:
    missing = kernel_log_facts(tmp_path / "kmsg")
    assert missing.error is not None
    assert "containers" in missing.error

    log = tmp_path / "forbidden"
    log.touch(mode=0o000)
    if os.geteuid():
        facts = kernel_log_facts(log)
        assert facts.error is not None
        assert "CAP_SYSLOG" in facts.error


def test_a_log_is_read_to_its_end(tmp_path: Path) -> None:
    """A file gives all records in one read; a pipe, as the kernel does, what there is."""
    log = tmp_path / "kmsg"
    os.mkfifo(log)
    reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(log, os.O_WRONLY)
    os.write(writer, record(0, REMAPPED).encode())
    facts = kernel_log_facts(log)
    os.close(writer)
    os.close(reader)
    assert [message.code for message in facts.messages] == [63]
