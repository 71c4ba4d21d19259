"""Names of other tools: each answers with the line to type."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from torchscale.door import Slot
from torchscale.errors import UsageError

_COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "gen-config": "init",
        "generate-config": "init",
        "run": "benchmark",
        "suite": "benchmark",
        "bench": "benchmark",
        "sweep": "benchmark",
        "analyze": "profile analyze",
        "serve": "report serve",
        "models": "docs names models",
        "version": "--version",
    }
)
"""Name → the command to type; what follows stays."""
_TRAINING: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"--no-amp": ("--precision", "fp32"), "--single": ("--gpus", "1")}
)
_OPTIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "validate": {"--full": ("--burn-in", "10m")},
        "benchmark": {**_TRAINING, "--full": ("--benchmark.preset=standard",)},
        "profile": _TRAINING,
        "tune": _TRAINING,
        "measure memory": _TRAINING,
    }
)
"""Command → flags of other tools → what to type in the place of each."""
_MACHINES: Mapping[str, str] = MappingProxyType({"m4-metal": "apple-mps"})
"""Machines of other tools' configs → the preset to name."""


_FOREIGN: Slot[Callable[[Sequence[str]], None]] = Slot("foreign options")
"""Command → what refuses flags of another tool behind it."""


def refuse_foreign_command(arguments: Sequence[str], known: Sequence[str]) -> None:
    """Check what was typed behind the program's name.

    Args:
        arguments: The command and all that follows it.
        known: Commands of the program.

    Raises:
        UsageError: the command is of another tool; the hint is the whole line to type.
    """
    name, rest = arguments[0], list(arguments[1:])
    if name in known:
        return
    if name in _COMMANDS:
        hint = _line([*_COMMANDS[name].split(), *rest])
        raise UsageError(f"there is no command {name!r}", hint=hint)


def refuse_foreign_options(command: str, arguments: Sequence[str]) -> None:
    """Check the arguments of a command, as they were typed.

    Args:
        command: The command's name: ``measure memory``.
        arguments: What follows it.

    Raises:
        UsageError: an option is of another tool; the hint is the whole line to type.
    """
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    foreign = [argument for argument in own if argument in _OPTIONS.get(command, {})]
    if foreign:
        raise UsageError(
            f"there is no option {foreign[0]}", hint=_line([*command.split(), *arguments])
        )
    if command in _FOREIGN:
        _FOREIGN[command](own)


def _line(words: Sequence[str]) -> str:
    """The line to type: ``words`` with the options and machines of this program."""
    from torchscale.util.redaction import redact_arguments  # noqa: PLC0415 - compiles many patterns

    ending = list(words[words.index("--") :]) if "--" in words else []
    own = list(words[: len(words) - len(ending)])
    command = next((name for name in _OPTIONS if own[: len(name.split())] == name.split()), "")
    replacements = _OPTIONS.get(command, {})
    typed: list[str] = []
    for word in own:
        typed += replacements.get(word, (_MACHINES.get(word, word),))
    return f"type: {shlex.join(['torchscale', *redact_arguments([*typed, *ending])])}"
