"""What the kernel calls processes that are forks of ours, at most 15 bytes."""

from __future__ import annotations

import re

AGENT_NAME = "torchrun-agent"
"""Kernel's name of a process that runs torchrun's agent as a fork; at most 15 bytes."""
RANK_PROCESS = re.compile(r"rank-(\d+)-of-(\d+)")
"""Kernel's name of a rank's process that is a fork of its agent: its rank, and the number of
processes. A fork has the agent's command line and environment."""


def rank_process_name(rank: int, processes: int) -> str:
    """A name that :data:`RANK_PROCESS` matches: 15 bytes for up to 999 processes on a node."""
    return f"rank-{rank}-of-{processes}"
