"""Writes docs/configuration.md from the schema, so that the page cannot fall behind it."""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from torchscale.schema.config import PRESETS, Experiment

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"

HEAD = """\
# Configuration

<!-- Written by scripts/config_reference.py from the schema; a test keeps it in step. -->

A config is YAML (or JSON). Any key can be overridden on the command line, after the file and before validation:
`--training.precision=bf16`, `--batch_sizes=[32,64]`, `--launch.env.NCCL_DEBUG=INFO`. Of two overrides of a key the last
counts. Values are read as YAML, but for environment variables, which are the text as it is typed.

```yaml
experiment_name: "resnet50_scaling_test"
models: ["resnet50", "bert-large"]
batch_sizes: [64, 128, 256]     # per GPU
gpu_counts: [1, 2, 4, 8]        # or: auto
```

Reading is strict: unknown keys (with a suggestion), keys that stand twice, tags, anchors, numbers written as text and
values out of range are errors, each in one line with file, line, key, value and what was expected; all of them at once.

An **axis** takes a value or a list; every combination of all axes is a cell.

`torchscale config show` prints a config with every default, `torchscale config schema` the JSON Schema for editors.
What `config show` prints loads to the same experiment; since it writes out every key, another `benchmark.preset` on top
of it changes nothing.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD, "## Top level\n", _table(Experiment, "")]
    for name, field in Experiment.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            doc = (section.__doc__ or "").strip().partition("\n")[0]
            parts += [f"## `{name}`\n", f"{doc}\n", _table(section, f"{name}.")]
    parts += ["## Presets\n", _presets()]
    return "\n".join(parts)


def _table(model: type[BaseModel], prefix: str) -> str:
    rows = ["| key | takes | default | |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            continue
        default = "required" if field.is_required() else f"`{_shown(field.get_default(call_default_factory=True))}`"
        description = (field.description or "").replace("|", "\\|")
        rows.append(f"| `{prefix}{name}` | {_takes(annotation)} | {default} | {description} |")
    return "\n".join(rows) + "\n"


def _shown(value: Any) -> str:  # noqa: ANN401 - any default
    if isinstance(value, tuple) and len(value) == 1:
        value = value[0]
    return json.dumps(value).strip('"') if not isinstance(value, tuple) else json.dumps(list(value))


def _takes(annotation: Any) -> str:  # noqa: ANN401 - any annotation
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _takes(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin is tuple:
        return f"{_takes(arguments[0])}, or a list"
    if origin is dict:
        return "a mapping"
    if origin in (types.UnionType, Union):
        kinds = [_takes(argument) for argument in arguments if argument is not type(None)]
        return " or ".join(dict.fromkeys(kinds))
    words = {int: "whole number", float: "number", bool: "true or false", str: "text"}
    return words.get(annotation, "name or mapping")


def _presets() -> str:
    names = list(PRESETS)
    rows = ["| key | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    rows += [
        f"| `benchmark.{key}` | " + " | ".join(f"{PRESETS[name][key]:g}" for name in names) + " |"
        for key in PRESETS[names[0]]
    ]
    return "A preset sets these where the config does not.\n\n" + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
