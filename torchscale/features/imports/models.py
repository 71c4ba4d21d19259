"""Names of models in other suites → entries of ``models`` here; never another architecture."""

from __future__ import annotations

import os.path
import re
import shlex
from collections.abc import Mapping

from torchscale.catalog.models import MODELS as CATALOG
from torchscale.catalog.models import find_model, is_import_path
from torchscale.config.translate import Translation
from torchscale.config.yaml_reader import Data
from torchscale.features.imports.names import MODELS, TORCHVISION

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
"""``organization/name``, as Hugging Face's hub has it."""


def known_model(name: str) -> str | None:
    """The name here of a model of the same architecture and size; ``None`` where there is none."""
    if find_model(name) is not None or is_import_path(name):
        return name
    folded = name.casefold()
    if folded in CATALOG:
        return folded
    if folded in MODELS:
        return MODELS[folded]
    if folded in TORCHVISION:
        return f"torchvision:{folded}"
    if folded.startswith("timm/"):
        return f"timm:{name[len('timm/') :]}"
    return None


def hub_model(name: str) -> str:
    """The name here of a model that Hugging Face's libraries take: a catalogued one, else its own
    configuration file, ``hf:org/name/config.json``."""
    return known_model(name) or f"hf:{name.rstrip('/')}/config.json"


def entry(name: str, options: Mapping[str, Data]) -> Data:
    """An entry of ``models``; options at their defaults are left out."""
    facts = find_model(name)
    defaults: Mapping[str, object] = {} if facts is None else facts.options
    changed = {
        key: value
        for key, value in options.items()
        if key in defaults and value is not None and value != defaults[key]
    }
    if not changed:
        return name
    return {"name": name, **changed}


def name_models(translation: Translation) -> None:
    """Give models of a config whose form is unknown their names here, where they have one."""
    entries = _entries(translation)
    named = [_named(one, translation) for one in entries]
    if named != entries:
        translation.data["models"] = named


def find_missing_files(translation: Translation) -> None:
    """Say which configuration files of ``hf:`` models are not here, and how to get them."""
    for one in _entries(translation):
        library, _, path = _name_of(one).partition(":")
        if library != "hf" or os.path.isfile(path):  # noqa: PTH113 - a name may be too long
            continue
        source = path.removesuffix("/config.json")
        quoted = shlex.quote(source)
        translation.missing.append(
            f"there is no {path}, which says what {source} is: "
            f"hf download {quoted} config.json --local-dir {quoted}"
        )


def _entries(translation: Translation) -> list[Data]:
    models = translation.data.get("models")
    if models is None or isinstance(models, list):
        return models or []
    return [models]


def _name_of(entry: Data) -> str:
    name = entry.get("name") if isinstance(entry, dict) else entry
    return str(name or "")


def _named(entry: Data, translation: Translation) -> Data:
    name = _name_of(entry)
    here = hub_model(name) if _HUB_ID.fullmatch(name) else known_model(name)
    if here is None or here == name:
        return entry
    translation.renamed[name] = here
    if isinstance(entry, dict):
        return {**entry, "name": here}
    return here
