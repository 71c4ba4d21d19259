"""The JSON Schemas that torchscale publishes, as text."""

from __future__ import annotations

import json

from torchscale.config.choices import ResultSchema
from torchscale.config.experiment import Experiment
from torchscale.read.published import published_schema


def results_schema(name: ResultSchema) -> str:
    """JSON Schema (draft 2020-12) of what a command prints or writes for other programs."""
    return json.dumps(published_schema(name), indent=1)


def config_schema() -> str:
    """JSON Schema (draft 2020-12) of a config."""
    return json.dumps(Experiment.model_json_schema(), indent=1)
