"""Says which processes outlive a command."""

from __future__ import annotations

from torchscale.util.processes.subprocesses import left_processes


def left_process_warnings() -> list[str]:
    """A line for each process that something measured has started and left: it uses the machine,
    and every later measurement with it. Called when the command has ended everything of its own."""
    return [
        f"warning: pid {pid} ({command}) still runs: what was measured started it and left it; "
        f"end it: kill {pid}"
        for pid, command in left_processes().items()
    ]
