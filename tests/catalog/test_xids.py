"""What errors of NVIDIA's driver ask for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import torchscale
from torchscale.catalog.xids import XID_ACTIONS, XID_NAMES, GpuAction, sxid_action, xid_action


@pytest.mark.parametrize(
    ("code", "text", "action"),
    [
        (79, "GPU has fallen off the bus.", GpuAction.REBOOT),
        (48, "DBE (double bit error) ECC Error", GpuAction.RESET),
        (64, "Row Remapper: failed to remap row", GpuAction.REPLACE),
        (63, "Row Remapper: New row marked for remapping", GpuAction.WATCH),
        (31, "pid=1, name=python, MMU Fault: ENGINE GRAPHICS", GpuAction.RESTART_PROGRAM),
        (45, "Ch 00000001 caused by previous Xid 149", GpuAction.NOTHING),
        (74, "NVLink: fatal error detected on link 6", GpuAction.RESET),
        (149, "NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226)", GpuAction.CHECK_LINK),
        (145, "pid=876767, name=ray::WorkerDict, RLW_RXPIPE Nonfatal", GpuAction.CHECK_LINK),
        (149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6)", GpuAction.RESET),
        (999, "of a driver to come", GpuAction.SUPPORT),
    ],
)
def test_the_action_is_that_of_the_catalog(code: int, text: str, action: GpuAction) -> None:
    assert xid_action(code, text) is action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("changed from 0x0 (None) to 0x1 (GPU Reset Required)", GpuAction.RESET),
        ("changed from 0x1 (GPU Reset Required) to 0x2 (Node Reboot Required)", GpuAction.REBOOT),
        ("changed from 0x0 (None) to 0x4 (Drain and Reset)", GpuAction.RESET),
        ("changed from 0x1 (GPU Reset Required) to 0x0 (None)", GpuAction.NOTHING),
        ("changed from 0x0 (None) to 0x9 (Something New)", GpuAction.SUPPORT),
        ("cut off", GpuAction.NOTHING),
    ],
)
def test_the_driver_says_itself_what_it_needs(text: str, action: GpuAction) -> None:
    assert xid_action(154, f"pid=1, GPU recovery action {text}") is action


def test_only_a_fatal_error_of_a_switch_needs_a_reboot() -> None:
    """`Non-fatal` holds the word."""
    assert sxid_action("Fatal, Link 30 LTSSM Fault Up") is GpuAction.REBOOT
    assert sxid_action("Non-fatal, Link 32 egress nonposted PRIV error") is GpuAction.WATCH


def test_a_number_has_one_action_and_names_are_of_known_numbers() -> None:
    listed = [
        code for action in GpuAction for code, found in XID_ACTIONS.items() if found is action
    ]
    assert len(listed) == len(set(listed)) == len(XID_ACTIONS)
    assert set(XID_NAMES) <= set(XID_ACTIONS)


def test_the_documentation_lists_them_as_they_are() -> None:
    """Each code of a row of the table, ranges and all."""
    page = (Path(torchscale.__file__).parent.parent / "docs" / "validate.md").read_text()
    table = page.split("## Errors in the kernel's log")[1].split("## Several nodes")[0]
    for action in set(XID_ACTIONS.values()) - {GpuAction.NOTHING, GpuAction.RESTART_PROGRAM}:
        row = next(line for line in table.splitlines() if line.startswith(f"| {action.value}"))
        text = re.sub(r"\([^)]*\)", "", row.split("|")[2].split(";")[0])
        codes = [int(code) for code in re.findall(r"\d+", text)]
        if " to " in text:
            codes = [*codes[:-2], *range(codes[-2], codes[-1] + 1)]
        assert sorted(codes) == sorted(
            code for code, found in XID_ACTIONS.items() if found is action
        ), action
