"""Reads NCCL's choices of transport, algorithm and protocol from the logs of a launch (NCCL_DEBUG=INFO).

Known forms, of NCCL 2.18 to 2.28: ``Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM``; ``AllReduce: 4096 Bytes -> Algo Tree
proto LL channel{Lo..Hi}={0..1}``, before 2.22 with numbers and a time, ``AllGather: 4096 Bytes -> Algo 1 proto 2 time
28.2``. Other lines are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from torchscale.launch.process import tail
from torchscale.schema.cells.collectives import NcclLog

_CHANNEL = re.compile(r"Channel \d+(?:/\d+)? : \d+\[\w+\] -> \d+\[\w+\](?: \[\w+\])? via (\S+)")
_CHOICE = re.compile(r"(\w+): (\d+) Bytes -> Algo (\w+) proto (\w+)")
_NVLS = re.compile(r"NVLS.*(?:Creating|Bound|multicast).*|Connected NVLS")
_ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
_PROTOCOLS = ("LL", "LL128", "Simple")
_OPERATIONS = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
}
_MAX_LOG_BYTES = 16 << 20
"""Read from the end of each log: a launch that logs choices makes one call per size, far below this."""


def read_nccl_log(directory: Path) -> NcclLog | None:
    """NCCL's choices from the ranks' logs in a launch directory; ``None`` where NCCL logged nothing."""
    logs = sorted(directory.glob("rank-*.std*.log"))
    return parse_nccl_log(
        line for log in logs for line in tail(log, _MAX_LOG_BYTES).splitlines() if "NCCL INFO" in line
    )


def parse_nccl_log(lines: Iterable[str]) -> NcclLog | None:
    """Transports of channels, and the algorithm and protocol of calls; ``None`` without any line."""
    transports: dict[str, None] = {}
    choices: dict[tuple[str, int], tuple[str, str]] = {}
    nvls = has_lines = False
    for line in lines:
        has_lines = True
        if match := _CHANNEL.search(line):
            transports[match[1]] = None
        elif (match := _CHOICE.search(line)) and match[1] in _OPERATIONS:
            choices[_OPERATIONS[match[1]], int(match[2])] = _named(match[3], _ALGORITHMS), _named(match[4], _PROTOCOLS)
        elif _NVLS.search(line):
            nvls = True
    if not has_lines:
        return None
    choice_rows = tuple((operation, size, *choice) for (operation, size), choice in choices.items())
    return NcclLog(transports=tuple(transports), choices=choice_rows, nvls=nvls)


def _named(text: str, names: tuple[str, ...]) -> str:
    """The name of an algorithm or protocol: a number is an index into NCCL's list, a name gets the list's spelling."""
    if text.isdigit():
        return names[int(text)] if int(text) < len(names) else text
    return next((name for name in names if name.upper() == text.upper()), text)
