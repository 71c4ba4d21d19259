"""Gives every command its help text, and the options that all have: ``-v`` and ``-q``, also after
the command's name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer

from torchscale.cli.addresses import fetched, refuse_addresses
from torchscale.cli.command import Command, PlainGroup
from torchscale.cli.help import help_of
from torchscale.cli.output import raise_verbosity
from torchscale.cli.parameters import option

VerboseOption = Annotated[bool, option("--verbose -v", "Also show commands, paths and decisions.")]
QuietOption = Annotated[bool, option("--quiet -q", "Show only results and errors.")]


@dataclass(frozen=True)
class _Verbosity:
    """What every command takes."""

    verbose: VerboseOption = False
    quiet: QuietOption = False


def finish_commands(app: typer.Typer, *, root: bool = True) -> None:
    """Give every command of ``app`` its help text, one line per paragraph, and the options that all
    have.

    A group that was given a help text keeps it; the options of the program itself stay as they are.
    """
    callback = app.registered_callback
    if callback is not None:
        if not isinstance(app.info.help, str):
            callback.help = help_of(callback.callback)
        if not root:
            callback.callback = _with_groups(callback.callback)
    for command in app.registered_commands:
        command.help = help_of(command.callback)
        command.callback = _with_groups(command.callback)
        command.cls = Command
    for group in app.registered_groups:
        instance = group.typer_instance
        if instance is not None:
            if getattr(instance.info.cls, "value", instance.info.cls) is None:
                instance.info.cls = PlainGroup
            finish_commands(instance, root=False)


def _with_groups(function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """``function`` with the options ``--verbose`` and ``--quiet``, which it never sees, and with one
    for each field of its parameters that are dataclasses, which it is given as one object each."""
    if function is None:
        return None
    wrapped = function
    signature = inspect.signature(wrapped, eval_str=True)
    groups: dict[str, Any] = {
        parameter.name: parameter.annotation
        for parameter in signature.parameters.values()
        if is_dataclass(parameter.annotation)
    }

    @functools.wraps(wrapped)
    def command(*, verbose: bool = False, quiet: bool = False, **options: Any) -> Any:  # noqa: ANN401
        raise_verbosity(verbose=verbose, quiet=quiet)
        refuse_addresses(options, spellings)
        for name, group in groups.items():
            options[name] = group(**{one.name: options.pop(one.name) for one in fields(group)})
        with fetched():
            return wrapped(**options)

    parameters = [
        option for parameter in signature.parameters.values() for option in _options_of(parameter)
    ]
    parameters += _fields_of(_Verbosity)
    spellings = {one.name: _spelling(one.annotation) for one in parameters}
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _spelling(annotation: object) -> str:
    """The first name of an option: ``--output-dir``; empty for what is none."""
    # typer has the first name as the default where there is an annotation.
    names = [
        name
        for info in getattr(annotation, "__metadata__", ())
        for name in (getattr(info, "default", None), *(getattr(info, "param_decls", None) or ()))
    ]
    return next((name for name in names if isinstance(name, str) and name[:1] == "-"), "")


def _options_of(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    if is_dataclass(parameter.annotation):
        return _fields_of(parameter.annotation)
    return [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]


def _fields_of(group: Any) -> list[inspect.Parameter]:  # noqa: ANN401 - any dataclass
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=one.default,
            annotation=hints[one.name],
        )
        for one in fields(group)
    ]
