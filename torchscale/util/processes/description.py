"""What a running process is: whether it has ended, its command line, the rank that it holds."""

from __future__ import annotations

import psutil

from torchscale.util.processes.names import AGENT_NAME, RANK_PROCESS
from torchscale.util.redaction import redact_arguments

_COMMAND_CHARACTERS = 80
"""Maximum number of characters of a command line in a message: the program and its first
arguments."""


def is_running(process: psutil.Process) -> bool:
    """Whether it has not ended; a zombie has."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def command_line(process: psutil.Process) -> str:
    """Command line of a process without secrets, cut to what fits a line of a message; its name
    where it has none."""
    try:
        arguments = process.cmdline()
    except psutil.Error:
        arguments = []
    text = " ".join(redact_arguments(arguments)) or process_name(process)
    if len(text) <= _COMMAND_CHARACTERS:
        return text
    return f"{text[: _COMMAND_CHARACTERS - 1]}…"


def process_name(process: psutil.Process) -> str:
    """Name of a process; ``?`` of one that has ended."""
    try:
        return process.name()
    except psutil.Error:
        return "?"


def rank_environment(process: psutil.Process) -> dict[str, str]:
    """The environment of a process with what torchrun set for its rank, if it is one. A rank that
    is a fork has the environment of its agent, which may have that of another job's rank; its name
    tells the rest.

    Raises:
        psutil.Error: the process has ended, or belongs to another user.
    """
    environment = process.environ()
    name = process.name()
    if name == AGENT_NAME:
        return {variable: value for variable, value in environment.items() if variable != "RANK"}
    fork = RANK_PROCESS.fullmatch(name)
    if fork is not None:
        rank, processes = fork.groups()
        environment |= {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": processes,
            "LOCAL_WORLD_SIZE": processes,
        }
    return environment
