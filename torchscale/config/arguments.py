"""A config file and ``--key.sub=value`` overrides, in any order, as one experiment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torchscale.config.experiment import Experiment
from torchscale.config.load import load_experiment
from torchscale.config.overrides import split_arguments
from torchscale.config.values import ConfigValue
from torchscale.errors import UsageError

DEFAULT_CONFIG = Path("benchmark_config.yaml")


def load_from_arguments(
    arguments: Sequence[str], *, named: Path | None = None, known_options: Sequence[str] = ()
) -> Experiment:
    """The experiment of a command that takes a config.

    Args:
        arguments: At most one config file, and overrides.
        named: A config file named by an option.
        known_options: Options of the command, for suggestions.

    Raises:
        UsageError: several configs are named, or none where there is no ``benchmark_config.yaml``.
        ConfigError: the config is wrong; one line per mistake.
    """
    plain, overrides = split_arguments(arguments)
    configs = [*plain, *([str(named)] if named is not None else [])]
    if len(configs) > 1:
        raise UsageError(f"more than one config: {', '.join(configs)}", hint="overrides are written --key.sub=value")
    if not configs and not DEFAULT_CONFIG.exists():
        raise UsageError(
            f"no config: there is no {DEFAULT_CONFIG} here", hint="name one, or write one with `torchscale init`"
        )
    path = Path(configs[0]) if configs else DEFAULT_CONFIG
    return load_experiment(path, overrides, known_options=known_options)


def load_from_options(
    name: str, values: Sequence[ConfigValue], arguments: Sequence[str], *, known_options: Sequence[str] = ()
) -> Experiment:
    """The experiment of a command whose options are the config.

    Args:
        name: The command; also the name of the experiment.
        values: What the options say.
        arguments: Further overrides, ``--key.sub=value``.
        known_options: Options of the command, for suggestions.

    Raises:
        UsageError: an argument is no override.
        ConfigError: a value is wrong; one line per mistake.
    """
    plain, overrides = split_arguments(arguments)
    if plain:
        raise UsageError(f"unexpected argument {plain[0]!r}", hint=f"see `torchscale {name} --help`")
    named = ConfigValue("experiment_name", name)
    return load_experiment(None, overrides, known_options=known_options, values=[named, *values])
