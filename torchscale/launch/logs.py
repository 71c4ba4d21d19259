"""What the logs of a launch tell: exit codes, the last error, a signal, and the end of each."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from torchscale.launch.gloo_log import size_error
from torchscale.launch.judge import EndingKind, LaunchEnding
from torchscale.util.processes.subprocesses import tail
from torchscale.util.units import format_bytes

_LOG_TAIL_CHARACTERS = 6000
"""Maximum number of characters of all logs together: with eight ranks about 650 each, which is the
end of a traceback."""
TORCHRUN_LOG_BYTES = 64 * 1024
"""The end of torchrun's log that is read: its summary of failed ranks is there, about 400 bytes a
rank."""
_TORCHRUN_FAILURE = re.compile(
    r"rank\s*:\s*(\d{1,9}) \(local_rank: \d+\)\s+exitcode\s*:\s*(-?\d{1,9})\b"
)
_TORCHRUN_SIGNAL = re.compile(r"SignalException: Process \d+ got signal: (\d{1,9})\b")
_ERROR_LINE = re.compile(
    r"^(?:[EW]\d{4} [^\]\n]*\] |\[rank\d{1,9}\]: )?((?:\w+\.)*\w+Error: \S.*)$", re.MULTILINE
)
"""The last line of a traceback, as Python prints it or as torch logs it. What torchrun says of ranks
that failed has no text on that line."""
_ABORT_LOG_BYTES = 64 * 1024
"""What gloo says, and behind it Python's stacks of all threads and the names of all extension
modules."""


def exit_codes(log: str) -> dict[int, int]:
    """Exit codes of the ranks that torchrun's log tells of, by rank."""
    return {int(rank): int(code) for rank, code in _TORCHRUN_FAILURE.findall(log)}


def size_mismatch(directory: Path, world_size: int) -> str:
    """What gloo said to a rank that it ended for a collective of another size, where no rank lived
    to tell which collective it was."""
    for rank in range(world_size):
        sizes = size_error(tail(directory / f"rank-{rank}.stderr.log", _ABORT_LOG_BYTES))
        if sizes is not None:
            received, expected = map(format_bytes, sizes)
            return (
                f"; rank {rank} received {received} in a collective of {expected}: another rank "
                "called another one"
            )
    return ""


def last_error(log: str) -> str:
    """The last exception that a log tells, in a line; empty for none."""
    return next(iter(_ERROR_LINE.findall(log)[-1:]), "")


def with_signal(ending: LaunchEnding, log: str) -> LaunchEnding:
    """A torchrun that receives a signal (from a batch system, say) exits with 1; only its log names
    the signal."""
    match = _TORCHRUN_SIGNAL.search(log)
    if ending.kind is not EndingKind.FINISHED or match is None:
        return ending
    return replace(ending, exit_code=-int(match[1]))


def log_tails(directory: Path, torchrun_log: str, world_size: int) -> str:
    """The end of each rank's log and of torchrun's, as a record keeps them."""
    share = _LOG_TAIL_CHARACTERS // (world_size + 1)
    parts = []
    for rank in range(world_size):
        text = tail(directory / f"rank-{rank}.stderr.log", share).strip()
        if text:
            parts.append(f"rank {rank}:\n{text}")
    if torchrun_log.strip():
        parts.append(f"torchrun:\n{torchrun_log[-share:].strip()}")
    return "\n\n".join(parts)
