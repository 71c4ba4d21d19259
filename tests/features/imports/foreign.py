"""Configs of other suites as files, translated, loaded by the config's own loader."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from torchscale.config.experiment import Experiment
from torchscale.config.load import load_experiment
from torchscale.config.translate import Translation
from torchscale.features.imports.read import read_translation


def translate(tmp_path: Path, text: str, name: str = "foreign.yaml") -> Translation:
    """The translation of a file with this text."""
    source = tmp_path / name
    source.write_text(dedent(text))
    return read_translation(source)


def loaded(tmp_path: Path, translation: Translation) -> Experiment:
    """What the loader makes of the file that is written."""
    path = tmp_path / "translated.yaml"
    path.write_text(translation.to_yaml("foreign"))
    return load_experiment(path)
