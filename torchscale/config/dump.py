"""An experiment as a config file with every default, as ``benchmark --show-config`` prints it."""

from __future__ import annotations

import json
from collections.abc import Mapping

import yaml

from torchscale.config.experiment import Experiment
from torchscale.config.script import ScriptChoice
from torchscale.config.sections.models import ModelChoice
from torchscale.config.sections.training import ParallelSettings
from torchscale.config.strategy import strategy_options
from torchscale.config.yaml_reader import Data


def to_yaml(experiment: Experiment) -> str:
    """A YAML config that loads to the same experiment."""
    return to_yaml_text(_content(experiment))


def to_yaml_text(content: Mapping[str, Data]) -> str:
    """Config keys as YAML, one per line in their order, lists on one line."""
    return yaml.dump(dict(content), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def to_json(experiment: Experiment) -> str:
    """A JSON config that loads to the same experiment."""
    return json.dumps(_content(experiment), indent=2, ensure_ascii=False) + "\n"


def changed_content(experiment: Experiment) -> dict[str, Data]:
    """The keys that are not at their defaults, as in a config file."""
    content: dict[str, Data] = experiment.model_dump(mode="json", exclude_defaults=True)
    whole = _content(experiment)
    parallel = {} if experiment.parallel == ParallelSettings() else whole["parallel"]
    models = {"models": whole["models"]} if experiment.models else {}
    return {**content, **models, "parallel": parallel}


def _content(experiment: Experiment) -> dict[str, Data]:
    content: dict[str, Data] = experiment.model_dump(mode="json")
    content["models"] = [_entry(choice) for choice in experiment.models]
    strategies: list[Data] = [
        {"name": strategy.name, **options}
        if (options := strategy_options(strategy))
        else strategy.name
        for strategy in experiment.parallel.strategy
    ]
    if not experiment.models:
        del content["models"]
    if not experiment.batch_sizes:
        del content["batch_sizes"]
    return {**content, "parallel": {"strategy": strategies}}


def _entry(choice: ModelChoice | ScriptChoice) -> Data:
    """An entry of ``models`` as people write it."""
    if isinstance(choice, ScriptChoice):
        whole: dict[str, Data] = choice.model_dump(mode="json", exclude_none=True)
        return whole
    if not choice.options:
        return choice.name
    options: dict[str, Data] = choice.model_dump()
    return options


class _Dumper(yaml.SafeDumper):
    """One key per line, lists on one line; no anchors, which the reader refuses."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's interface
        return True


def _inline(dumper: _Dumper, data: list[Data]) -> yaml.Node:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=True)


def _text(dumper: _Dumper, data: str) -> yaml.Node:
    # PyYAML writes line breaks such as U+0085 as they are, and reads them as \n; in double quotes
    # it escapes them.
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", data, style=None if data.isprintable() else '"'
    )


_Dumper.add_representer(list, _inline)
_Dumper.add_representer(str, _text)
