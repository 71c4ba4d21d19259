"""``torchscale config``: what a config resolves to, and its schema for editors."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from torchscale.cli.options import CONTEXT_SETTINGS, ConfigArgument, known_options
from torchscale.config.choices import ConfigFormat

app = typer.Typer(no_args_is_help=True, help="Show what a config resolves to, or the schema for editors.")


@app.command("show", context_settings=CONTEXT_SETTINGS)
def show(
    context: typer.Context,
    config: ConfigArgument = None,
    style: Annotated[ConfigFormat, typer.Option("--format", "-f", help="How to print it.")] = ConfigFormat.YAML,
) -> None:
    """Print the config with every default, after overrides: what benchmark would run.

    [bold]Example[/bold]

    [cyan]torchscale config show my_matrix.yaml --training.precision=bf16[/cyan]
    """
    from torchscale.config.arguments import load_from_arguments  # noqa: PLC0415 - `--help` does not need it
    from torchscale.config.dump import to_json, to_yaml  # noqa: PLC0415

    arguments = [*([config] if config is not None else []), *context.args]
    experiment = load_from_arguments(arguments, known_options=known_options(context)).experiment
    typer.echo(to_json(experiment) if style is ConfigFormat.JSON else to_yaml(experiment), nl=False)


@app.command("schema")
def schema() -> None:
    """Print the JSON Schema of a config.

    Editors check and complete with it: save it and put [cyan]# yaml-language-server: $schema=schema.json[/cyan]
    in the first line of a config.
    """
    from torchscale.config.experiment import Experiment  # noqa: PLC0415 - `--help` does not need it

    typer.echo(json.dumps(Experiment.model_json_schema(), indent=1))
