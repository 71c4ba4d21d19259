"""A torchrun on this machine that waits for those of other nodes: by its stack and its command
line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import psutil

from torchscale.features.watch.hang.joining import Meeting
from torchscale.features.watch.hang.py_spy import py_spy_stack

_WAITING = frozenset({"next_rendezvous", "_rendezvous"})
"""Functions of torch in which it waits."""
_ELASTIC = "/torch/distributed/elastic/"
_PREFIX = "PET_"
"""Of the variables that stand for torchrun's options."""
_MOST_NODES = 1 << 20


def meeting_of(pid: int) -> Meeting | None:
    """What a torchrun waits for; ``None`` for a process that is not in its rendezvous, as far as
    its stack can be read."""
    frames = py_spy_stack(pid)
    functions = {
        frame.function.rpartition(".")[2] for frame in frames if _ELASTIC in frame.file
    }  # py-spy names the class as well
    if not functions & _WAITING:
        return None
    try:
        process = psutil.Process(pid)
        return meeting_from(process.cmdline(), process.environ())
    except psutil.Error:
        return Meeting()


def meeting_from(command: Sequence[str], variables: Mapping[str, str]) -> Meeting:
    """What the options of a torchrun say of its rendezvous."""
    options = _options(command)

    def option(name: str) -> str:
        return options.get(name, variables.get(_PREFIX + name.upper(), ""))

    least, _, most = option("nnodes").partition(":")
    address = option("rdzv_endpoint")
    node = None
    if not address:
        node = _number(option("node_rank") or "0")
        host = option("master_addr") or "127.0.0.1"
        address = f"{host}:{option('master_port') or '29500'}"
    return Meeting(address, _number(least), _number(most or least), None, node)


def _options(command: Sequence[str]) -> dict[str, str]:
    """Those before the script, by their names with underscores."""
    found: dict[str, str] = {}
    for word, following in zip(command, [*command[1:], ""], strict=True):
        if word.endswith(".py") and found:
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            found.setdefault(name.replace("-", "_"), value if equals else following)
    return found


def _number(text: str) -> int | None:
    if text.isascii() and text.isdigit() and len(text) < len(str(_MOST_NODES)):
        return int(text)
    return None
