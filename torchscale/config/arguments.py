"""A config file and ``--key.sub=value`` overrides, in any order, as one experiment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchscale.config.experiment import Experiment
from torchscale.config.load import load_experiment
from torchscale.config.overrides import parse_overrides, split_arguments
from torchscale.config.values import ConfigValue
from torchscale.errors import UsageError

DEFAULT_CONFIG = Path("benchmark_config.yaml")
DEFAULT_BATCH_SIZE = 32
"""Batch size of a workload that options describe without a batch size: fills a GPU fairly, and fits
nearly everywhere."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 60
"""Maximum number of characters of an experiment named after its models, so that paths stay
readable."""


@dataclass(frozen=True)
class NamedExperiment:
    """An experiment, and one line on where it comes from."""

    experiment: Experiment
    source: str


def load_from_arguments(
    arguments: Sequence[str],
    *,
    named: Path | None = None,
    known_options: Sequence[str] = (),
    values: Sequence[ConfigValue] = (),
) -> NamedExperiment:
    """The experiment of a command that takes a config.

    Args:
        arguments: At most one config file, and overrides.
        named: A config file named by an option.
        known_options: Options of the command, for suggestions.
        values: What the options say. Where they name the models and no file is named, they are the
            whole config, and a ``benchmark_config.yaml`` is not read.

    Raises:
        UsageError: several configs are named, or none where there is no ``benchmark_config.yaml``.
        ConfigError: the config is wrong; one line per mistake.
    """
    plain, overrides = split_arguments(arguments)
    configs = list(plain)
    if named is not None:
        configs.append(str(named))
    if len(configs) > 1:
        raise UsageError(
            f"more than one config: {', '.join(configs)}",
            hint="overrides are written --key.sub=value",
        )
    if not configs and any(value.key == "models" for value in values):
        experiment = load_experiment(None, overrides, known_options, (*_defaults(values), *values))
        unused = ""
        if DEFAULT_CONFIG.exists():
            unused = f"; {DEFAULT_CONFIG} is not used, name it to change it by options"
        return NamedExperiment(experiment, f"Config: from the options alone{unused}")
    if not configs and not DEFAULT_CONFIG.exists():
        parse_overrides(
            overrides, known_options
        )  # an option that does not exist is the first mistake
        raise UsageError(
            f"no config: there is no {DEFAULT_CONFIG} here",
            hint="name one, write one with `torchscale init`, or describe it: --model resnet50 "
            "--batch-size 64 --gpus 1,2,4",
        )
    path = Path(configs[0]) if configs else DEFAULT_CONFIG
    return NamedExperiment(
        load_experiment(path, overrides, known_options, values), f"Config: {path}"
    )


def _defaults(values: Sequence[ConfigValue]) -> list[ConfigValue]:
    """What a config needs beside the models that the options name."""
    models = next(value.value for value in values if value.key == "models")
    entries = models if isinstance(models, list) else [models]
    names = [
        str(entry.get("name", "model")) if isinstance(entry, dict) else str(entry)
        for entry in entries
    ]
    first = _NOT_IN_NAMES.sub("-", names[0]).strip("-._")[:_LONGEST_NAME] or "experiment"
    name = first
    if len(names) > 1:
        name += f"-and-{len(names) - 1}-more"
    return [ConfigValue("experiment_name", name), ConfigValue("batch_sizes", [DEFAULT_BATCH_SIZE])]


def load_from_options(
    command: str,
    values: Sequence[ConfigValue],
    arguments: Sequence[str],
    *,
    known_options: Sequence[str] = (),
) -> Experiment:
    """The experiment of a command whose options are the config.

    Args:
        command: The command as it is typed: ``measure memory``. Its last word is the name of the
            experiment.
        values: What the options say.
        arguments: Further overrides, ``--key.sub=value``.
        known_options: Options of the command, for suggestions.

    Raises:
        UsageError: an argument is no override.
        ConfigError: a value is wrong; one line per mistake.
    """
    plain, overrides = split_arguments(arguments)
    if plain:
        raise UsageError(
            f"unexpected argument {plain[0]!r}", hint=f"see `torchscale {command} --help`"
        )
    named = ConfigValue("experiment_name", command.rpartition(" ")[2])
    return load_experiment(None, overrides, known_options=known_options, values=[named, *values])
