"""Names of earlier versions and of other tools: each answers with the line to type."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from torchscale.door import Slot
from torchscale.errors import UsageError

_COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "comm": "measure collectives",
        "hardware": "measure hardware",
        "memory": "measure memory",
        "list": "docs names",
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
        "compare": {
            "--allow-missing": ("--accept", "missing"),
            "--allow-undecided": ("--accept", "unclear"),
            "--accept-flags": ("--accept", "flags"),
            "--force": ("--accept", "versions"),
        },
        "history": {"--accept-flags": ("--accept", "flags")},
        "validate": {"--full": ("--burn-in", "10m")},
        "benchmark": {**_TRAINING, "--full": ("--benchmark.preset=standard",)},
        "profile": _TRAINING,
        "tune": _TRAINING,
        "measure memory": _TRAINING,
    }
)
"""Command → its flags of earlier versions and other tools → what to type in the place of each."""
_MACHINES: Mapping[str, str] = MappingProxyType({"m4-metal": "apple-mps"})
"""Machines of other tools' configs → the preset to name."""


_OF_OTHER_TOOLS: Slot[Callable[[Sequence[str]], None]] = Slot("foreign options")
"""Command → what refuses flags of another tool behind it."""


def refuse_earlier_command(arguments: Sequence[str], known: Sequence[str]) -> None:
    """Check what was typed behind the program's name.

    Args:
        arguments: The command and all that follows it.
        known: Commands of the program.

    Raises:
        UsageError: the command has another name now, or is of another tool; the hint is the whole
            line to type.
    """
    name, rest = arguments[0], list(arguments[1:])
    if name == "report" and rest[:1] == ["schema"] and not Path("schema").is_dir():
        raise _replaced("report schema", ["docs", "schema", *rest[1:]])
    if name in known:
        return
    if name in _GROUPS:
        raise _replaced(name, _GROUPS[name](rest))
    if name in _COMMANDS:
        raise _replaced(name, [*_COMMANDS[name].split(), *rest])


def refuse_earlier_options(command: str, arguments: Sequence[str]) -> None:
    """Check the arguments of a command, as they were typed.

    Args:
        command: The command's name: ``measure memory``.
        arguments: What follows it.

    Raises:
        UsageError: an option has another name now, or is of another tool; the hint is the whole
            line to type.
    """
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    earlier = [argument for argument in own if argument in _OPTIONS.get(command, {})]
    if earlier:
        raise UsageError(
            f"there is no option {earlier[0]}", hint=_line([*command.split(), *arguments])
        )
    if command in _OF_OTHER_TOOLS:
        _OF_OTHER_TOOLS[command](own)
    if command == "validate" and "--disk" in own:
        value = own[own.index("--disk") + 1 :][:1]
        directory = value[0] if value and not value[0].startswith("-") else "."
        raise UsageError(
            "there is no option --disk: the disk of --output-dir is always checked",
            hint="to measure a disk, type: "
            f"{shlex.join(['torchscale', 'measure', 'hardware', '--disk', directory])}",
        )


def _replaced(name: str, words: Sequence[str]) -> UsageError:
    return UsageError(f"there is no command {name!r}", hint=_line(words))


def _line(words: Sequence[str]) -> str:
    """The line to type: ``words`` with the options and machines of today."""
    from torchscale.util.redaction import redact_arguments  # noqa: PLC0415 - compiles many patterns

    ending = list(words[words.index("--") :]) if "--" in words else []
    own = list(words[: len(words) - len(ending)])
    command = next((name for name in _OPTIONS if own[: len(name.split())] == name.split()), "")
    replacements = _OPTIONS.get(command, {})
    typed: list[str] = []
    for word in own:
        typed += replacements.get(word, (_MACHINES.get(word, word),))
    return f"type: {shlex.join(['torchscale', *redact_arguments([*_joined(typed), *ending])])}"


def _joined(words: Sequence[str]) -> list[str]:
    """Join all values of ``--accept`` behind the first."""
    places = [place for place, word in enumerate(words) if word == "--accept"]
    if len(places) < 2:
        return list(words)
    values = ",".join(words[place + 1] for place in places)
    dropped = {position for place in places[1:] for position in (place, place + 1)} | {
        places[0] + 1
    }
    kept = [word for position, word in enumerate(words) if position not in dropped]
    return [*kept[: places[0] + 1], values, *kept[places[0] + 1 :]]


def _baseline(arguments: Sequence[str]) -> list[str]:
    """``baseline save NAME --source DIR`` keeps what is now an argument in an option, and the
    reverse."""
    action, rest = arguments[:1], list(arguments[1:])
    if action in (["list"], ["show"]):
        return ["runs", "baselines", *rest]
    if action != ["save"]:
        return ["runs", "baselines", *arguments]
    source, rest = _taken(rest, ("--source", "-s"))
    directory, rest = _taken(rest, ("--baselines",))
    names = [word for word in rest if not word.startswith("-")] or ["NAME"]
    flags = [word for word in rest if word.startswith("-")]
    place = [] if directory is None else ["--baselines", directory]
    return ["compare", source or "RUN", "--save", names[0], *flags, *place, *names[1:]]


def _config(arguments: Sequence[str]) -> list[str]:
    """``config show`` was a command for what is now an option of ``benchmark``."""
    if arguments[:1] == ["schema"]:
        return ["docs", "schema", "config", *arguments[1:]]
    style, rest = _taken(list(arguments[1:]), ("--format", "-f"))
    typed = ["benchmark", *rest, "--show-config"]
    if style == "json":
        typed.append("--json")
    return typed


def _taken(arguments: list[str], options: Sequence[str]) -> tuple[str | None, list[str]]:
    """The value of an option, and the other arguments."""
    for place, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name in options and equals:
            return value, [*arguments[:place], *arguments[place + 1 :]]
        if name in options and place + 1 < len(arguments):
            return arguments[place + 1], [*arguments[:place], *arguments[place + 2 :]]
    return None, arguments


_GROUPS: Mapping[str, Callable[[Sequence[str]], list[str]]] = MappingProxyType(
    {"baseline": _baseline, "config": _config}
)
"""Groups of commands whose arguments lie otherwise now."""
