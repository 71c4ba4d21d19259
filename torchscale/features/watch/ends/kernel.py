"""What the kernel's log says of the time of an attempt: errors of GPUs, and processes that it
killed for lack of memory."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from torchscale.catalog.xids import XID_NAMES
from torchscale.worker.probe.kernel_log import KMSG, facts_of, kernel_records, record_seconds

_KILLED = re.compile(r"[Oo]ut of memory: Killed process (?P<pid>\d{1,10}) \((?P<name>[^)]{0,64})\)")
_MOST_LINES = 20
_SLACK_SECONDS = 2.0
"""By which the kernel's clock of its log may differ from the one of the processes."""


@dataclass(frozen=True)
class KernelNews:
    """Of one host.

    Attributes:
        lines: In words, each once.
        killed: PIDs of processes that were killed for lack of memory, as the host numbers them.
    """

    lines: tuple[str, ...] = ()
    killed: frozenset[int] = frozenset()


def kernel_news(since: float, now: float, log: Path = KMSG) -> KernelNews:
    """What the log has from ``since`` on; nothing where it cannot be read, as in most containers.

    Args:
        since, now: Seconds since the epoch.
        log: Can be replaced for tests.
    """
    clock = time.monotonic()
    oldest = clock - (now - since) - _SLACK_SECONDS
    try:
        records = list(_since(kernel_records(log), oldest))
    except OSError:
        return KernelNews()
    killed = [match for record in records if (match := _KILLED.search(record)) is not None]
    lines = [
        f"the kernel killed process {match['pid']} ({match['name']}): out of memory"
        for match in killed
    ]
    for message in facts_of(iter(records), clock).messages:
        name = XID_NAMES.get(message.code, "") if message.kind == "xid" else message.text
        kind = "Xid" if message.kind == "xid" else "SXid"
        text = f"the kernel's log has {kind} {message.code} of the GPU at {message.pci_address}"
        lines.append(f"{text}: {name}" if name else text)
    return KernelNews(
        tuple(islice(dict.fromkeys(lines), _MOST_LINES)),
        frozenset(int(match["pid"]) for match in killed),
    )


def _since(records: Iterator[str], oldest: float) -> Iterator[str]:
    for record in records:
        seconds = record_seconds(record.partition(";")[0])
        if seconds is not None and seconds >= oldest:
            yield record
