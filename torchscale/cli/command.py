"""Commands and groups of them: other spellings of options, words and overrides beside them, and the
command as it was typed."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from torchscale.cli.addresses import naming, readable_text
from torchscale.cli.help import argument_usage, panel_of, summary_of, write_help
from torchscale.cli.mistakes import TYPED, command_names, plain_errors
from torchscale.cli.other_tools import refuse_foreign_options
from torchscale.errors import UsageError

ALIASES: Mapping[str, str] = {
    "--models": "--model",
    "--batch-sizes": "--batch-size",
    "--batch_size": "--batch-size",
    "--gpu-counts": "--gpus",
    "--precisions": "--precision",
    "--strategies": "--strategy",
    "--optimizers": "--optimizer",
    "--output": "--output-dir",
    "-g": "-n",
}
"""Other spellings of options, accepted by every command that has the option; help shows the first
spelling alone."""

_WORDS, _OVERRIDES = (f"torchscale.{name}" for name in ("words", "overrides"))


class Command(TyperCommand):
    """A command that accepts the :data:`ALIASES` of its options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - its type moved within typer
        ctx.meta[TYPED] = list(args)
        refuse_foreign_options(" ".join(command_names(ctx)), args)
        with naming(), plain_errors():
            return super().parse_args(ctx, _canonical(args, self.get_params(ctx)))

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        write_help(self, ctx, formatter)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401
        """``[OPTIONS]`` and the arguments."""
        parameters = self.get_params(ctx)
        arguments = [one for one in parameters if one.param_type_name == "argument"]
        return ["[OPTIONS]", *map(argument_usage, arguments)]


class PlainGroup(TyperGroup):
    """A group of commands, and nothing more."""

    def listed(self, ctx: Any) -> list[tuple[str, str, str]]:  # noqa: ANN401
        """Title, name and summary of each command that help shows."""
        children = [self.get_command(ctx, name) for name in self.list_commands(ctx)]
        return [
            (panel_of(child), child.name or "", summary_of(child.help))
            for child in children
            if child is not None and not child.hidden
        ]

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        write_help(self, ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        with plain_errors():
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        """Finds the command as any group does; the error for an unknown one is ours."""
        with plain_errors():
            return super().resolve_command(ctx, args)


class DefaultCommandGroup(PlainGroup):
    """A group that is a command itself: words that name no subcommand are its arguments.

    Attributes:
        takes_overrides: Whether ``--key.sub=value`` are overrides of config keys, or unknown
            options.
        reads_words: Whether its words are paths to read, which may be addresses.
        reads_figures: Whether they are runs of which figures alone are shown.
    """

    takes_overrides = False
    reads_words = True
    reads_figures = True

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        refuse_foreign_options(" ".join(command_names(ctx)), args)
        params = self.get_params(ctx)
        canonical = _canonical(args, params, self.commands)
        own, words, unknown = split_words(canonical, _value_options(params), self.commands)
        ctx.meta[TYPED], ctx.meta[_OVERRIDES] = list(args), []
        if self.takes_overrides:
            ctx.meta[_OVERRIDES] = unknown
        else:
            own = [*unknown, *own]
        with naming():
            rest: list[str] = super().parse_args(ctx, own)
            if self.reads_words:
                words = [readable_text(word, self.reads_figures) for word in words]
            ctx.meta[_WORDS] = words
        return rest


class OverridableGroup(DefaultCommandGroup):
    """A group whose unknown options are overrides of config keys."""

    takes_overrides = True
    reads_figures = False


COMMAND_KEY = "torchscale.command"


class WithProgram(OverridableGroup):
    """What follows ``--`` is the user's program, not a subcommand."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - its type moved within typer
        if "--" in args:
            place = args.index("--")
            ctx.meta[COMMAND_KEY] = args[place + 1 :]
            args = args[:place]
        return super().parse_args(ctx, args)


def words_after_dashes(context: typer.Context) -> list[str] | None:
    """What follows ``--`` in the line of a plain command; ``None`` without ``--``."""
    arguments: list[str] = context.meta.get(TYPED, [])
    if "--" not in arguments:
        return None
    return arguments[arguments.index("--") + 1 :]


def given_options(context: typer.Context) -> dict[str, str]:
    """Parameters that the command line has: name → spelling."""
    return {
        name: parameter.opts[0]
        for parameter in context.command.params
        if (name := parameter.name or "")
        and getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    }


def words_of(context: typer.Context) -> list[str]:
    """The arguments of a :class:`DefaultCommandGroup` that are neither options nor a subcommand."""
    return list(context.meta.get(_WORDS, ()))


def overrides_of(context: typer.Context) -> list[str]:
    """The unknown options of an :class:`OverridableGroup`, with their values."""
    return list(context.meta.get(_OVERRIDES, ()))


def as_typed(context: typer.Context, option: str) -> str:
    """The spelling of ``option`` that the user typed: ``--batch-sizes`` or ``-b`` for
    ``--batch-size``."""
    same = [names for parameter in context.command.params if option in (names := parameter.opts)]
    spellings = {option, *(name for names in same for name in names)}
    spellings |= {alias for alias, name in ALIASES.items() if name in spellings}
    typed = (argument.partition("=")[0] for argument in context.meta.get(TYPED, ()))
    return next((argument for argument in typed if argument in spellings), option)


def same_command(context: typer.Context, *, without: Collection[str] = ()) -> str:
    """The command line as it was typed, to be typed again, without its secrets; options in
    ``without`` are left out with their values."""
    flags = {
        name
        for parameter in context.command.params
        for name in parameter.opts
        if getattr(parameter, "is_flag", 0)
    }
    kept = []
    remaining = list(context.meta.get(TYPED, ()))
    while remaining:
        argument = remaining.pop(0)
        name, equals, _ = argument.partition("=")
        if name not in without:
            kept.append(argument)
        elif name not in flags and not equals:
            remaining = remaining[1:]
    from torchscale.util.redaction import redact_arguments  # noqa: PLC0415 - as below

    return shlex.join(["torchscale", *command_names(context), *redact_arguments(kept)])


def split_words(
    arguments: Iterable[str], options: Mapping[str, bool], commands: Collection[str]
) -> tuple[list[str], list[str], list[str]]:
    """Splits the arguments of a group into its own options (with all that follows a subcommand),
    its words, and options that it does not know.

    Args:
        arguments: Arguments as typed.
        options: Option → whether it takes a value.
        commands: Names of subcommands.

    Raises:
        UsageError: words stand before a subcommand.
    """
    own: list[str] = []
    words: list[str] = []
    unknown: list[str] = []
    remaining = list(arguments)
    while remaining:
        argument = remaining.pop(0)
        name, equals, _ = argument.partition("=")
        if argument in commands:
            if words:
                raise UsageError(
                    f"unexpected argument {words[0]!r} before {argument}",
                    hint=f"write it after {argument}",
                )
            return [*own, argument, *remaining], words, unknown
        if not argument.startswith("-"):
            words.append(argument)
        elif name in options or not argument.startswith("--"):
            own.append(argument)
            if options.get(name) and not equals and remaining:
                own.append(remaining.pop(0))
        else:
            unknown.append(argument)
            if not equals and remaining and not remaining[0].startswith("-"):
                unknown.append(remaining.pop(0))
    return own, words, unknown


def _canonical(
    arguments: Iterable[str], params: Iterable[Any], commands: Collection[str] = ()
) -> list[str]:
    """The arguments with the first spelling of every option, and ``--key.sub value`` as
    ``--key.sub=value``, up to ``--`` or a subcommand, whose options are its own; an alias that is
    an option stays."""
    own = {name for parameter in params for name in parameter.opts}
    names = {alias: name for alias, name in ALIASES.items() if name in own and alias not in own}
    changed = []
    remaining = list(arguments)
    while remaining and remaining[0] != "--" and remaining[0] not in commands:
        argument = remaining.pop(0)
        name, equals, value = argument.partition("=")
        if (
            name.startswith("--")
            and "." in name
            and not equals
            and remaining
            and not remaining[0].startswith("-")
        ):
            equals, value = "=", remaining.pop(0)
        changed.append(f"{names.get(name, name)}{equals}{value}")
    return [*changed, *remaining]


def _value_options(params: Iterable[Any]) -> dict[str, bool]:
    options = [parameter for parameter in params if parameter.param_type_name == "option"]
    return {
        name: not (option.is_flag or option.count)
        for option in options
        for name in (*option.opts, *option.secondary_opts)
    }
