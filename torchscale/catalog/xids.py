"""Errors that NVIDIA's driver writes to the kernel's log, and what each asks for.

Xid: of a GPU. Numbers and immediate actions are those of NVIDIA's Xid catalog for Ampere and newer
GPUs (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, as of October 2025). One differs:
after Xid 64, a row of memory that could not be replaced, the catalog asks for a reset first, and
NVIDIA's rules on memory errors (docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt) for a replacement.

SXid: of an NVSwitch. Its message says whether it is fatal (Fabric Manager User Guide, DU-09883);
the guide asks for a reset of GPUs and switches, or a reboot, after every fatal one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class GpuAction(str, Enum):
    """What an error asks for, from the least to the most."""

    NOTHING = "nothing"
    RESTART_PROGRAM = "restart the program"
    WATCH = "watch for more of them"
    UPDATE = "update driver and firmware"
    CHECK_LINK = "check the NVLink"
    SUPPORT = "contact the maker"
    CHECK_POWER = "check the GPU's power and seat"
    RESET = "reset the GPU"
    REBOOT = "reboot the node"
    REPLACE = "replace the GPU"


_ACTIONS: Mapping[GpuAction, tuple[int, ...]] = MappingProxyType(
    {
        GpuAction.NOTHING: (
            *(14, 37, 38, 43, 44, 45, 66, 67, 106, 107, 108, 137, 141, 152, 153, 154, 160, 161),
        ),
        GpuAction.RESTART_PROGRAM: (
            *(8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 68, 69, 70, 71, 75, 76, 77, 80, 82, 83, 84),
            *(85, 86, 88, 89, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, *range(126, 136), 139),
        ),
        GpuAction.WATCH: (63, 92, 93, 94, 121),
        GpuAction.UPDATE: (78,),
        GpuAction.CHECK_LINK: (74, *range(144, 151)),
        GpuAction.SUPPORT: (142, 157, 159),
        GpuAction.CHECK_POWER: (54,),
        GpuAction.RESET: (46, 48, 62, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158),
        GpuAction.REBOOT: (79, 151),
        GpuAction.REPLACE: (64,),
    }
)
"""45 follows another error, and 154 says what another one asks for. What an application causes is
told to restart it; 94 is a memory error that one application has lost its data to."""
XID_ACTIONS: Mapping[int, GpuAction] = MappingProxyType(
    {code: action for action, codes in _ACTIONS.items() for code in codes}
)
XID_NAMES: Mapping[int, str] = MappingProxyType(
    {
        13: "graphics engine exception",
        31: "GPU memory page fault",
        43: "GPU stopped processing",
        45: "cleanup after an earlier error",
        46: "GPU stopped processing",
        48: "double-bit ECC error",
        54: "auxiliary power is not connected",
        62: "microcontroller halted",
        63: "memory row remapped",
        64: "memory row could not be remapped",
        74: "NVLink error",
        79: "GPU has fallen off the bus",
        92: "many single-bit ECC errors",
        94: "contained memory error",
        95: "uncontained memory error",
        109: "context switch timed out",
        110: "security fault",
        119: "GSP did not respond",
        120: "GSP error",
        136: "NVLink training failed",
        140: "ECC error not recovered",
        143: "GPU could not be initialized",
        154: "recovery action changed",
        156: "resource retired",
        157: "resource could not be retired",
        158: "GPU timed out",
        **dict.fromkeys(range(144, 151), "NVLink error"),
    }
)
"""Short names of those that nodes are taken out of service for."""
_RECOVERY: tuple[tuple[str, GpuAction], ...] = (
    ("reboot", GpuAction.REBOOT),
    ("reset", GpuAction.RESET),
    ("drain", GpuAction.RESET),
    ("none", GpuAction.NOTHING),
)
"""Words of the driver's recovery actions (Xid 154: ``… changed from 0x0 (None) to 0x1 (GPU Reset
Required)``)."""
_CHANGED_TO = re.compile(r" to \S+ \(([^)]{1,100})\)")
_FATAL, _NOT_FATAL = (
    re.compile(r"\bfatal\b", re.IGNORECASE),
    re.compile(r"\bnon-?fatal\b", re.IGNORECASE),
)
_RECOVERY_CHANGED = 154


def xid_action(code: int, text: str) -> GpuAction:
    """What the error asks for; ``text`` is its message, which decides where the number does not.

    A number that the catalog does not have, or has without an action, is one for the maker.
    """
    action = XID_ACTIONS.get(code, GpuAction.SUPPORT)
    changed = _CHANGED_TO.search(text)
    if code == _RECOVERY_CHANGED and changed is not None:
        asked = changed[1].lower()
        return next((found for word, found in _RECOVERY if word in asked), GpuAction.SUPPORT)
    if action is GpuAction.CHECK_LINK and _is_fatal(text):
        return GpuAction.RESET
    return action


def sxid_action(text: str) -> GpuAction:
    """What an NVSwitch's error asks for: a reboot where it is fatal, which resets the switches and
    all GPUs behind them."""
    if _is_fatal(text):
        return GpuAction.REBOOT
    return GpuAction.WATCH


def _is_fatal(text: str) -> bool:
    """``Nonfatal`` and ``Non-fatal`` are not."""
    return _FATAL.search(_NOT_FATAL.sub("", text)) is not None
