"""Reads NCCL's choices of algorithm and protocol from the logs of a launch (NCCL_DEBUG=INFO);
``launch/nccl_log.py`` knows the lines on transports.

Forms of the line on a choice, as ``src/enqueue.cc`` of each release prints them (rank 0 alone):

- 2.21 and 2.22: ``37756928 Bytes -> Algo 1 proto 2 time 2860.208008``. The operation is that of the
  call before, which is logged with ``NCCL_DEBUG_SUBSYS=COLL``: ``AllGather: opCount 1606 sendbuff
  0x… [nranks=4] stream 0x…``.
- 2.23: ``AllGather: 37756928 Bytes -> Algo 1 proto 2 time 2860.208008``.
- from 2.24: ``AllGather: 9439232 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}``, with
  the bytes of one rank: 1/n of the payload of an all-gather or reduce-scatter over n ranks. The
  forms above print the whole payload.
- from 2.27: ``AllReduce [Symmetric]: 4096 Bytes -> Kernel AllReduce_AGxLL_R nchannels 1 nthreads
  512``, and from 2.29 ``AllGather [Copy Engine]: 4096 Bytes -> cudaMemcpy``, where buffers are
  registered; also the bytes of one rank.

Other lines are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from torchscale.launch.nccl_log import NVLS_READY, channel_transport, log_lines
from torchscale.schema.cells.collectives import NcclLog

_CALL = re.compile(r"NCCL INFO (\w+): opCount ")
_CHOICE = re.compile(
    r"NCCL INFO (?:(?P<operation>\w+)(?: \[[\w ]+\])?: )?(?P<bytes>\d+) Bytes -> "
    r"(?:Algo (?P<algorithm>\w+) proto (?P<protocol>\w+)(?P<by_rank> channel)?"
    r"|Kernel (?P<kernel>\w+)|(?P<copy>cudaMemcpy))"
)
_ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
_PROTOCOLS = ("LL", "LL128", "Simple")
_OPERATIONS = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
}
_GATHERED = ("all_gather", "reduce_scatter")
"""Their payload is n times the bytes of one rank."""


def read_nccl_log(directory: Path, world_size: int) -> NcclLog | None:
    """NCCL's choices from the logs of the ``world_size`` ranks in a launch directory; ``None``
    where NCCL logged nothing."""
    return parse_nccl_log(log_lines(directory), world_size)


def parse_nccl_log(lines: Iterable[str], world_size: int) -> NcclLog | None:
    """Transports of channels, and the algorithm and protocol of calls, by payload as torchscale
    counts it; ``None`` without any line."""
    transports: dict[str, None] = {}
    choices: dict[tuple[str, int], tuple[str, str]] = {}
    nvls = has_lines = False
    called = ""
    for line in lines:
        has_lines = True
        if (transport := channel_transport(line)) is not None:
            transports[transport] = None
        elif match := _CALL.search(line):
            called = match[1]
        elif match := _CHOICE.search(line):
            operation = _OPERATIONS.get(match["operation"] or called)
            if operation is not None:
                by_rank = match["algorithm"] is None or match["by_rank"] is not None
                ranks = world_size if by_rank and operation in _GATHERED else 1
                choices[operation, int(match["bytes"]) * ranks] = _choice(match)
        elif NVLS_READY.search(line):
            nvls = True
    if not has_lines:
        return None
    choice_rows = tuple((operation, size, *choice) for (operation, size), choice in choices.items())
    return NcclLog(transports=tuple(transports), choices=choice_rows, nvls=nvls)


def _choice(match: re.Match[str]) -> tuple[str, str]:
    """Algorithm and protocol. Symmetric kernels are an algorithm of their own, the kernel their
    protocol."""
    if match["kernel"] is not None:
        return "Symmetric", match["kernel"]
    if match["copy"] is not None:
        return "CopyEngine", match["copy"]
    return _named(match["algorithm"], _ALGORITHMS), _named(match["protocol"], _PROTOCOLS)


def _named(text: str, names: tuple[str, ...]) -> str:
    """The name of an algorithm or protocol: a number is an index into NCCL's list, a name gets the
    list's spelling (NCCL prints ``NVLS_TREE`` and takes ``NVLSTree``)."""
    if text.isdigit():
        if int(text) < len(names):
            return names[int(text)]
        return text
    plain = text.replace("_", "").upper()
    return next((name for name in names if name.upper() == plain), text)
