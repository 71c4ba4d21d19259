"""Secrets in a config: kept apart from what is planned and recorded, and given to the ranks in
their environment."""

from __future__ import annotations

import json
from collections.abc import Mapping

from torchscale.catalog.model_facts import OptionValue
from torchscale.catalog.models import find_model
from torchscale.config.experiment import Experiment
from torchscale.config.script import ScriptChoice
from torchscale.config.sections.models import ModelChoice
from torchscale.util.redaction import note_removed, note_secrets, redact
from torchscale.util.secret_names import REDACTED

HIDDEN_VARIABLE = "TORCHSCALE_HIDDEN"
"""Holds, for ranks, what stands in place of the options and paths with secrets: JSON, text →
value."""


def hide_secrets(experiment: Experiment) -> Experiment:
    """The experiment without secrets in its models' options, its data directory and its exports.
    :func:`hidden_environment` has them for the ranks. Their values, and those of ``launch.env``,
    are redacted from now on wherever they turn up."""
    note_secrets(experiment.launch.env)
    hidden: dict[str, OptionValue] = {}

    def hide(name: str, value: OptionValue) -> OptionValue:
        text = str(value)
        shown = text
        if not isinstance(value, bool | float):
            shown = redact(name, text)
        if shown == text:
            return value
        note_removed(text, shown, name)
        return _noted(hidden, shown, value)

    def hide_all(options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
        return {name: hide(name, value) for name, value in options.items()}

    def hide_in(choice: ModelChoice | ScriptChoice) -> ModelChoice | ScriptChoice:
        if isinstance(choice, ScriptChoice):
            text = str(hide(choice.form, choice.text))
            axes = {
                name: [hide(name, value) for value in values]
                for name, values in choice.axes.items()
            }
            given = {choice.form: text, "steps": choice.steps, **axes}
            return ScriptChoice.model_validate(given)
        if find_model(choice.name):  # what a catalogued model takes are sizes
            return choice
        return ModelChoice.model_validate({"name": choice.name, **hide_all(choice.options)})

    models = tuple(map(hide_in, experiment.models))
    update = {
        "models": models,
        "model": experiment.model.model_copy(
            update={"options": hide_all(experiment.model.options)}
        ),
        "export": experiment.export.model_copy(update=hide_all(experiment.export.places)),
        "data": experiment.data.model_copy(
            update={"data_dir": hide("data_dir", experiment.data.data_dir)}
        ),
    }
    if not hidden:
        return experiment
    return experiment.model_copy(update=update).with_hidden(hidden)


def hidden_environment(experiment: Experiment) -> dict[str, str]:
    """The variables of ``launch.env``, and one with what :func:`hide_secrets` took out, if it took
    anything."""
    if not experiment.hidden:
        return experiment.launch.env
    return {**experiment.launch.env, HIDDEN_VARIABLE: json.dumps(dict(experiment.hidden))}


def _noted(hidden: dict[str, OptionValue], shown: str, value: OptionValue) -> str:
    """The text that stands for ``value``: ``shown``, numbered where it stands for another value
    already."""
    number = 1
    text = shown
    while hidden.setdefault(text, value) != value:
        number += 1
        text = shown.replace(REDACTED, f"{REDACTED[:-1]} {number}>")
    return text
