"""What NVIDIA's driver has written to the kernel's log since the node was started."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

from torchscale.schema.node.probe import DriverMessage, KernelLogFacts

KMSG = Path("/dev/kmsg")
_LONGEST_RECORD = 8192
"""Of /dev/kmsg: a smaller buffer is refused with EINVAL."""
_MOST_RECORDS = 500_000
_MOST_SECONDS = 5.0
"""The kernel's buffer has 0.2 to 4 MB, which take milliseconds; a log that grows faster than it is
read must not keep the probe."""
_MOST_KINDS = 200
"""Of messages by error and GPU: a node has a handful."""
_TEXT_CHARACTERS = 300
_MICROSECONDS = 1e6
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]{4,20})\): (\d{1,5})(?:, (.*))?$")
_SXID = re.compile(r"nvidia-nvswitch\d+: SXid \(PCI:([0-9a-fA-F:.]{4,20})\): (\d{1,6})(?:, (.*))?$")
_DATA = "Data {"
"""Begins the lines of registers that follow the message of an SXid."""


def kernel_log_facts(log: Path = KMSG) -> KernelLogFacts:
    """Errors of GPUs and NVSwitches in the kernel's log; ``error`` says why it cannot be read."""
    if not log.exists():
        return KernelLogFacts(error=f"{log} does not exist here, as in most containers")
    try:
        return facts_of(kernel_records(log), monotonic())
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in (errno.EPERM, errno.EACCES):
            reason += ": it needs root or CAP_SYSLOG (kernel.dmesg_restrict)"
        return KernelLogFacts(error=reason)


def facts_of(records: Iterator[str], now: float) -> KernelLogFacts:
    """Facts from records of /dev/kmsg (``priority,number,microseconds,flags;text``).

    Args:
        records: In the order of the log.
        now: Seconds of the clock of the records, which begins when the node starts.
    """
    found: dict[tuple[str, int, str], DriverMessage] = {}
    oldest: float | None = None
    for record in records:
        head, _, text = record.partition(";")
        seconds = record_seconds(head)
        if seconds is None:
            continue
        oldest = seconds if oldest is None else oldest
        message = _message(text.partition("\n")[0], max(0.0, now - seconds))
        if message is None:
            continue
        key = (message.kind, message.code, message.pci_address)
        if key in found:
            found[key] = _merged(found[key], message)
        elif len(found) < _MOST_KINDS:
            found[key] = message
    covered = None if oldest is None else max(0.0, now - oldest)
    return KernelLogFacts(covered_seconds=covered, messages=tuple(found.values()))


def kernel_records(log: Path) -> Iterator[str]:
    """All records that the kernel still has. Each read gives one.

    Raises:
        OSError: the log may not be read.
    """
    deadline = monotonic() + _MOST_SECONDS
    descriptor = os.open(log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        for _ in range(_MOST_RECORDS):
            if monotonic() > deadline:
                return
            try:
                record = os.read(descriptor, _LONGEST_RECORD)
            except BlockingIOError:
                return  # no more
            except BrokenPipeError:
                continue  # the kernel has overwritten what was next
            if not record:
                return
            yield record.decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def record_seconds(head: str) -> float | None:
    """When a record was written, on the clock of the log, from what stands before its text."""
    fields = head.split(",")
    if len(fields) > 2 and fields[2].isdigit():
        return int(fields[2]) / _MICROSECONDS
    return None


def _message(text: str, age: float) -> DriverMessage | None:
    """A line as a message; ``None`` for other lines."""
    xid, sxid = _XID.search(text), _SXID.search(text)
    match = xid or sxid
    if match is None:
        return None
    said = (match[3] or "").strip()
    if sxid is not None and said.startswith(_DATA):
        return None
    return DriverMessage(
        kind="xid" if xid is not None else "sxid",
        code=int(match[2]),
        pci_address=match[1].lower(),
        text=said[:_TEXT_CHARACTERS],
        times=1,
        first_seconds_ago=age,
        last_seconds_ago=age,
    )


def _merged(earlier: DriverMessage, later: DriverMessage) -> DriverMessage:
    """The newest text, with when the first came."""
    return later.model_copy(
        update={"times": earlier.times + 1, "first_seconds_ago": earlier.first_seconds_ago}
    )
