"""An earlier acceptance, as the baseline of a new one."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from torchscale.errors import UsageError
from torchscale.features.validate.bundle_file import read_archive
from torchscale.features.validate.names import ACCEPTANCE, MOST_BYTES, VALIDATION
from torchscale.schema.node.acceptance import Acceptance, Baseline
from torchscale.schema.node.validation import Validation
from torchscale.util.files import read_bounded

_HINT = (
    "name the folder of an acceptance, its acceptance.json, the output of `torchscale validate "
    "--acceptance --json`, or a bundle of it"
)


def read_baseline(path: Path) -> Baseline:
    """The acceptance in a folder, a file of JSON or a bundle.

    Raises:
        UsageError: it cannot be read, or holds no acceptance.
    """
    return Baseline(source=path.name, run=read_acceptance(path).run)


def read_acceptance(path: Path) -> Acceptance:
    """As :func:`read_baseline`, all of it."""
    file = path / ACCEPTANCE if path.is_dir() else path
    try:
        content = read_bounded(file, MOST_BYTES)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {file}: {error}", hint=_HINT) from error
    if content[:2] == b"PK":
        content = read_archive(file).files.get(VALIDATION, b"")
    for model in (Validation, Acceptance):
        try:
            found = model.model_validate_json(content)
        except ValidationError:
            continue
        if isinstance(found, Acceptance):
            return found
        if isinstance(found, Validation) and found.acceptance is not None:
            return found.acceptance
    raise UsageError(f"{file} holds no acceptance that this version reads", hint=_HINT)
