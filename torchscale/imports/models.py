"""Names of models in other suites → entries of ``models`` here; never another architecture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torchscale.catalog.models import MODELS as CATALOG
from torchscale.catalog.models import find_model, is_import_path
from torchscale.config.translate import Translation
from torchscale.config.yaml_reader import Data
from torchscale.imports.names import MODELS, TORCHVISION


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
    models = translation.data.get("models")
    entries = models if isinstance(models, list) else [models]
    named: list[Data] = []
    for one in entries:
        name = one.get("name") if isinstance(one, dict) else one
        here = known_model(name) if isinstance(name, str) else None
        if here is None or here == name:
            named.append(one)
            continue
        named.append({**one, "name": here} if isinstance(one, dict) else here)
        translation.renamed[str(name)] = here
    if named != entries:
        translation.data["models"] = named if isinstance(models, list) else named[0]


def find_missing_files(translation: Translation) -> None:
    """Say which configuration files of ``hf:`` models are not here, and how to get them."""
    models = translation.data.get("models")
    for one in models if isinstance(models, list) else [models]:
        name = one.get("name") if isinstance(one, dict) else one
        library, _, path = str(name).partition(":")
        if library != "hf" or Path(path).is_file():
            continue
        source = path.removesuffix("/config.json")
        translation.missing.append(
            f"there is no {path}, which says what {source} is: "
            f"hf download {source} config.json --local-dir {source}"
        )
