"""A config of another suite, by its form, as a config of this one that loads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from torchscale.config.load import read_config_text
from torchscale.config.translate import Translation, put, translated, value_of
from torchscale.config.yaml_reader import (
    MAX_BYTES,
    ConfigDocument,
    Data,
    format_path,
    read_json,
    read_yaml,
)
from torchscale.errors import ConfigError
from torchscale.features.imports.deepspeed import from_deepspeed, is_deepspeed
from torchscale.features.imports.huggingface import (
    from_accelerate,
    from_trainer,
    is_accelerate,
    is_trainer,
)
from torchscale.features.imports.hydra import composed
from torchscale.features.imports.mend import mend
from torchscale.features.imports.mllog import from_mllog, is_mllog
from torchscale.features.imports.models import find_missing_files, name_models
from torchscale.features.imports.names import DEVICES, PRECISIONS, STRATEGIES
from torchscale.features.imports.nccl_tests import from_nccl_tests, is_nccl_tests
from torchscale.features.imports.optimum import from_optimum, is_optimum
from torchscale.features.imports.suites import from_suite, is_suite
from torchscale.features.imports.superbench import from_superbench, is_superbench
from torchscale.util.text import one_line

_MAX_BYTES = 64 << 20
"""Logs of MLPerf are read too, which have megabytes where they hold every step."""
_FORMS: tuple[
    tuple[Callable[[Mapping[str, Data]], bool], Callable[[Mapping[str, Data]], Translation]], ...
] = (
    (is_superbench, from_superbench),
    (is_optimum, from_optimum),
    (is_trainer, from_trainer),
    (is_accelerate, from_accelerate),
    (is_deepspeed, from_deepspeed),
    (is_suite, from_suite),
)
"""Whether a config has a suite's form, and its translation; the first that fits is taken."""


def read_translation(source: Path) -> Translation:
    """The translation of a file, which loads.

    Raises:
        ConfigError: it cannot be read, or holds no key that is known here.
    """
    text = read_config_text(source, _MAX_BYTES)
    translation = _translation(text, source)
    if not translation.data and not translation.suite:
        raise ConfigError(
            f"{source}: no key of it is known here",
            hint="write a new config with `torchscale init`",
        )
    name_models(translation)
    _name_values(translation)
    mend(translation)
    find_missing_files(translation)
    return translation


def _name_values(translation: Translation) -> None:
    """Give words of strategies, precisions and devices of a config whose form is unknown their
    names here."""
    for key, names in (
        ("parallel.strategy", STRATEGIES),
        ("training.precision", PRECISIONS),
        ("device", DEVICES),
    ):
        value = value_of(translation.data, key)
        if isinstance(value, str) and value.casefold() in names:
            put(translation.data, tuple(key.split(".")), names[value.casefold()], replace=True)


def _translation(text: str, source: Path) -> Translation:
    if is_mllog(text):
        return from_mllog(text)
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{source}: larger than {MAX_BYTES:,} bytes; not a config file")
    if is_nccl_tests(text):
        return from_nccl_tests(text)
    document = _document(text, source)
    data = document.data if isinstance(document.data, dict) else {}
    if is_optimum(data):
        data = composed(data, source.parent)
    translate = next((made for fits, made in _FORMS if fits(data)), translated)
    translation = translate(data)
    for _, path, problem in document.problems:
        translation.left_out.setdefault(one_line(format_path(path)), problem)
    return translation


def _document(text: str, source: Path) -> ConfigDocument:
    if source.suffix.lower() == ".json" or text.lstrip().startswith("{"):
        return read_json(text, str(source))
    return read_yaml(text, str(source), anchors=True)
