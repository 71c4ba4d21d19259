"""The commands of the program. Each is imported when it is asked for: the others' options would
take longer to build than the help takes to print."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import typer

from torchscale.cli.command import PlainGroup
from torchscale.cli.other_tools import refuse_foreign_command
from torchscale.cli.shared_options import finish_commands
from torchscale.door import Slot

COMMANDS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "Start": {
            "validate": "Check whether this node is fit: software, GPUs, interconnect, host, disk, "
            "and a real all-reduce over its GPUs.",
            "init": "Write a commented config to start from, fitted to this machine or to a known "
            "kind, or a ready-made experiment; or translate a config of another tool.",
            "benchmark": "Measure how training scales: models × batch sizes × GPU counts.",
            "report": "Show a run: HTML for people, PDF for paper, Markdown for pull requests, CSV "
            "and JSON for machines.",
        },
        "Explain": {
            "watch": "Run a training program, unchanged, and say what limits it: which rank the "
            "others wait for, at which collective and line, since which step, and what it costs.",
            "profile": "Record some training steps and report what limits them: which ranks wait "
            "for which, where, and what it costs.",
            "autopsy": "Say why a distributed job makes no progress: which collective ranks wait "
            "in, and which rank did not call it.",
        },
        "Compare": {
            "runs": "List the runs of a directory (default: results), newest first: state, cells "
            "measured of those planned, and one figure of each.",
            "compare": "Compare results cell by cell and overall, with 95 % intervals.",
            "history": "Follow results over many runs: the newest figure of each cell, where its "
            "level changed, since which run, and what else changed then (driver, commit, host, "
            "versions, settings).",
            "bisect": "Find which change made a command slower, or changed its loss: versions of "
            "packages, commits of your code, or environment variables.",
        },
        "Machine": {
            "measure": "Measure the machine: collectives over message sizes, peak rates, or the "
            "memory of a step.",
        },
        "Decide": {
            "predict": "Predict throughput, efficiency, time and cost at counts of GPUs that were "
            "not measured, with a 90 % interval.",
            "tune": "Find the fastest setting of one config on this machine, and verify it.",
        },
        "Elsewhere": {
            "submit": "Submit a benchmark to Slurm or Kubernetes: the config becomes one job that "
            "runs it over all its nodes.",
            "export": "Write a run for another program: a CI server, Prometheus, Grafana, GitHub, "
            "MLflow, W&B, a warehouse.",
            "docs": "Print a page of the documentation as Markdown, or the list of pages. All of "
            "it comes with the installation.",
        },
    }
)
"""Title in the list of commands → name → summary, in the order of the list. At most 17: more is not
read. A summary is the first paragraph of the command's help; it is repeated here so that the list
needs none of them."""
_TITLES: Mapping[str, str] = MappingProxyType(
    {name: title for title, commands in COMMANDS.items() for name in commands}
)
_OF_FEATURES: Slot[object] = Slot("commands")
_TAKE_CONFIG_KEYS = frozenset({"benchmark", "submit", "tune"})


class Commands(Mapping[str, Any]):
    """Name → command of click, which is built at first use."""

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - its type moved within typer
        if name not in _TITLES:
            raise KeyError(name)
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_TITLES)

    def __len__(self) -> int:
        return len(_TITLES)


class Program(PlainGroup):
    """The program: names that it does not know as commands may be those of another tool."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401
        super().__init__(**settings)
        self.commands = Commands()  # type: ignore[assignment]

    def list_commands(self, ctx: object) -> list[str]:
        """In the order of :data:`COMMANDS`."""
        del ctx
        return list(self.commands)

    def listed(self, ctx: object) -> list[tuple[str, str, str]]:
        """Title, name and summary of each, without importing it."""
        del ctx
        return [
            (title, name, summary)
            for title, commands in COMMANDS.items()
            for name, summary in commands.items()
        ]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        """Finds the command as any group does.

        Raises:
            UsageError: the command has another name; the hint is the line to type.
        """
        refuse_foreign_command(args, list(self.commands))
        return super().resolve_command(ctx, args)


@functools.cache
def _command(name: str) -> Any:  # noqa: ANN401
    """The command of a module: its function of that name, or its group ``app``. The module is a
    feature's, or ``cli/NAME.py``."""
    if name in _OF_FEATURES:
        module: object = _OF_FEATURES[name]
    else:
        module = importlib.import_module(f"torchscale.cli.{name}")
    holder, title = typer.Typer(rich_markup_mode=None), _TITLES[name]
    group = getattr(module, "app", None)
    if group is not None:
        holder.add_typer(group, name=name, rich_help_panel=title)
    else:
        from torchscale.cli.options import CONTEXT_SETTINGS  # noqa: PLC0415 - the list of commands needs no options

        settings = CONTEXT_SETTINGS if name in _TAKE_CONFIG_KEYS else None
        function = getattr(module, name)
        holder.command(name, rich_help_panel=title, context_settings=settings)(function)
    finish_commands(holder, root=False)
    return typer.main.get_group(holder).commands[name]
