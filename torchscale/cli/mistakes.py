"""Mistakes on the command line, which click finds, in the words and the form of all other errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from torchscale.errors import UsageError
from torchscale.util.words import did_you_mean

TYPED = "torchscale.arguments"
"""Key of the context's ``meta``: the arguments as typed."""
_ArgumentError: Any = typer.BadParameter.__bases__[0]
"""``UsageError`` of click, which moved within typer."""
_HELP_INSTEAD = "NoArgsIsHelpError"
"""What newer versions raise to print the help of a group."""
_EXTRA = re.compile(r"Got unexpected extra argument\S* \((.*)\)")


@contextmanager
def plain_errors() -> Iterator[None]:
    """Errors of arguments as ours, without secrets: they quote what was typed.

    Raises:
        UsageError: an argument is wrong.
    """
    try:
        yield
    except _ArgumentError as error:
        if type(error).__name__ == _HELP_INSTEAD:
            raise
        from torchscale.util.redaction import redact_text  # noqa: PLC0415 - compiles many patterns

        hint = None
        if error.ctx is not None:
            hint = " ".join(["torchscale", *command_names(error.ctx), "-h"])
        raise UsageError(redact_text(_message(error)), hint=hint) from error


def command_names(context: Any) -> list[str]:  # noqa: ANN401 - its type moved within typer
    """Names of the groups and the command that run, without the program's own, which may have been
    started by another name."""
    names: list[str] = []
    here = context
    while here.parent is not None:
        names.insert(0, str(here.info_name))
        here = here.parent
    return names


def _message(error: Any) -> str:  # noqa: ANN401 - click's types, which moved within typer
    """What is wrong, with the value where it is known."""
    if getattr(error, "param", None) is not None:
        return _of_parameter(error)
    if hasattr(error, "possibilities") and hasattr(error, "option_name"):
        known = [name for one in error.ctx.command.params for name in one.opts if name[:1] == "-"]
        return f"no such option: {error.option_name}{did_you_mean(error.option_name, known)}"
    text = _EXTRA.sub(r"unexpected argument: \1", error.format_message())
    text = text.removesuffix(".").replace(". Did you mean", "; did you mean")
    return text[:1].lower() + text[1:]


def _of_parameter(error: Any) -> str:  # noqa: ANN401
    """Of an option or argument whose value is missing or wrong."""
    parameter = error.param
    is_option = parameter.param_type_name == "option"
    name = parameter.opts[0] if is_option else parameter.metavar or parameter.name
    if hasattr(error, "param_type"):
        return f"{name} is missing"
    reason = error.message.removeprefix("Input ").removesuffix(".").partition(", unable")[0]
    value = _typed_value(error.ctx.meta.get(TYPED, ()), parameter.opts) if is_option else ""
    _, is_choice, listed = reason.partition(" is not one of ")
    if is_choice:
        choices = listed.replace("'", "").split(", ")
        near = did_you_mean(value.strip(), choices)
        return f"{name}{value}: expected one of {', '.join(choices)}{near}"
    return f"{name}{value}: {reason}"


def _typed_value(arguments: Sequence[str], names: Sequence[str]) -> str:
    """The value of an option as it was typed, behind a space; empty where it was not found."""
    for before, word in zip(("", *arguments), arguments, strict=False):
        name, equals, value = word.partition("=")
        if equals and name in names:
            return f" {value}"
        if before in names:
            return f" {word}"
    return ""
