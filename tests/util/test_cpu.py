"""What the kernel tells of processors."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from torchscale.util import cpu

_X86 = """processor\t: 0
model name\t: AMD EPYC
flags\t\t: fpu vme de{more}

processor\t: 1
model name\t: AMD EPYC
"""


@pytest.mark.parametrize(
    ("text", "name", "virtual"),
    [
        (_X86.format(more=" hypervisor lahf_lm"), "AMD EPYC", True),
        (_X86.format(more=""), "AMD EPYC", False),
        ("processor\t: 0\nFeatures\t: fp asimd\n", "", False),
        (None, "", False),
    ],
    ids=["virtual", "real", "ARM", "no file"],
)
def test_name_and_hypervisor_are_read(
    text: str | None, name: str, virtual: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    description = tmp_path / "cpuinfo"
    monkeypatch.setattr(cpu, "_DESCRIPTION", description)
    if text is not None:
        description.write_text(text)
    assert cpu.is_virtual() is virtual
    assert cpu.cpu_name() == (name or platform.processor() or platform.machine())
