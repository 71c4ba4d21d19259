"""The archive of a validation: what is sent to whoever sold the node, and checked there."""

from __future__ import annotations

import os
import tempfile
from datetime import datetime, timezone
from pathlib import Path

from pydantic import ValidationError

from torchscale.errors import MachineError, UsageError
from torchscale.features.validate.bundle_file import (
    MANIFEST,
    SIGNATURE,
    changed_files,
    manifest_of,
    read_archive,
    read_manifest,
    write_archive,
)
from torchscale.features.validate.bundle_schema import BundleCheck, BundleManifest
from torchscale.features.validate.document import validation_document
from torchscale.features.validate.health.answer import answer, gravity
from torchscale.features.validate.health.disposition import NODE
from torchscale.features.validate.health.node import validate_facts, verdict_of
from torchscale.features.validate.health.required import Requirements
from torchscale.features.validate.names import VALIDATION
from torchscale.observer import SILENT, Observer
from torchscale.report.formats.html import render_html
from torchscale.schema.node.check import Status
from torchscale.schema.node.validation import Validation
from torchscale.util.redaction import redact_model
from torchscale.util.signing import sign, signer_of
from torchscale.version import __version__


def write_bundle(
    validation: Validation, path: Path, key: Path | None = None, observer: Observer = SILENT
) -> None:
    """Write the archive: checks and facts as JSON, a page and a document for people, digests of
    all, and a signature of the digests if there is a ``key``. Secrets are redacted.

    Raises:
        UsageError: the key cannot be used.
        MachineError: ssh-keygen is not installed.
        OutputError: ``path`` cannot be written.
    """
    from torchscale.report.formats.pdf import render_pdf  # noqa: PLC0415 - loads system libraries

    validation = redact_model(validation)
    facts = validation.facts
    hostname = facts.host.hostname if facts.host is not None else "unknown"
    created_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
    document = validation_document(validation, hostname, created_at)
    files = {
        VALIDATION: validation.model_dump_json(indent=1).encode(),
        "report.html": render_html(document).encode(),
    }
    try:
        files["report.pdf"] = render_pdf(document)
    except MachineError as error:
        observer.note(f"warning: the bundle has no PDF: {error.message}")
    manifest = manifest_of(
        files, tool_version=__version__, hostname=hostname, created_at=created_at
    )
    files[MANIFEST] = manifest.model_dump_json(indent=1).encode()
    if key is not None:
        files[SIGNATURE] = _signature(files[MANIFEST], key)
    write_archive(path, files)


def check_place(path: Path, key: Path | None = None) -> None:
    """Find out before a long burn-in whether the archive can be written there, and signed.

    Raises:
        UsageError: it cannot.
        MachineError: ssh-keygen is not installed.
    """
    try:
        parent = path.resolve().parent
        fits = not path.is_dir() and parent.is_dir() and os.access(parent, os.W_OK)
    except (OSError, RuntimeError):  # a loop of links, or a file system that does not answer
        fits = False
    if not fits:
        raise UsageError(
            f"--bundle {path}: not a file in a directory that you may write to",
            hint="name a file, such as node.zip, in an existing directory",
        )
    if key is not None:
        _signature(b"", key)


def verify_bundle(path: Path) -> BundleCheck:
    """Whether an archive is as it was written, to the byte, who signed it, and whether its verdict
    follows from its facts.

    Raises:
        UsageError: ``path`` cannot be read, or is no bundle.
        MachineError: it is signed, and ssh-keygen is not installed.
    """
    archive = read_archive(path)
    files = archive.files
    manifest = read_manifest(files)
    problems, notes = changed_files(files, manifest), []
    if archive.is_as_written is False:
        problems.append("the archive was packed again or has bytes that are of none of its files")
    elif archive.is_as_written is None:
        notes.append("compressed: only its files were checked, not the bytes around them")
    signer = None
    if SIGNATURE in files:
        signer = _signer(files[MANIFEST], files[SIGNATURE])
        if signer is None:
            problems.append(f"{MANIFEST} was changed after it was signed")
    else:
        notes.append("not signed: whoever changed a file may have changed its digest too")
    validation = _validation(files, problems)
    if validation is not None:
        _judge_again(validation, manifest, problems, notes)
    return BundleCheck(
        verified=not problems,
        every_byte=archive.is_as_written is not None,
        problems=tuple(problems),
        notes=tuple(notes),
        signer=signer,
        manifest=manifest,
        validation=validation,
    )


def _validation(files: dict[str, bytes], problems: list[str]) -> Validation | None:
    try:
        return Validation.model_validate_json(files.get(VALIDATION, b""))
    except ValidationError:
        problems.append(f"{VALIDATION} cannot be read")
        return None


def _judge_again(
    validation: Validation, manifest: BundleManifest, problems: list[str], notes: list[str]
) -> None:
    """The checks and verdicts that this version draws from the facts. What was required of the node
    (``--require``) is not in them."""
    if manifest.tool_version != __version__:
        notes.append(f"judged by torchscale {manifest.tool_version}, this is {__version__}")
        return
    again = validate_facts(
        validation.facts,
        Requirements(),
        validation.burn_in,
        validation.acceptance,
        policy=validation.policy,
    )
    kept = {check.id: check for check in validation.checks}
    problems += [
        f"the check {check.title!r} does not follow from the facts"
        for check in again.checks
        if kept.get(check.id) != check
    ]
    failed = any(check.status is Status.FAIL for check in validation.checks)
    said = answer(
        verdict_of(validation.facts, validation.checks),
        validation.parts,
        validation.policy,
        fit=not failed,
    )
    if validation.fit is failed or (validation.disposition, validation.verdict) != said:
        problems.append("the verdict does not follow from the checks")
    if _said_of_figures(validation) != _said_of_figures(again):
        problems.append("what is said of the speeds does not follow from the rounds")
    parts = {part.part: part for part in validation.parts}
    problems += [
        f"what to do with {part.part} does not follow from the facts"
        for part in again.parts
        if part.part != NODE and parts.get(part.part) != part
    ]
    node, new = parts.get(NODE), next(part for part in again.parts if part.part == NODE)
    if node is None or gravity(node.disposition) < gravity(new.disposition):
        problems.append("what to do with node does not follow from the facts")


def _said_of_figures(validation: Validation) -> list[tuple[object, ...]]:
    """What is judged of each figure: without its rate and interval, of which another machine's
    arithmetic may change the last digit."""
    if validation.acceptance is None:
        return []
    return [
        (each.figure, each.part, each.status, each.rounds, each.cause, each.because, each.action)
        for each in validation.acceptance.figures
    ]


def _signature(content: bytes, key: Path) -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / MANIFEST
        path.write_bytes(content)
        return sign(path, key).read_bytes()


def _signer(content: bytes, signature: bytes) -> str | None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / SIGNATURE
        path.write_bytes(signature)
        return signer_of(content, path)
