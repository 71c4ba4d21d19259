"""Bundles of validations: written, sent, changed, and judged again."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from tests.features.validate.acceptance.runs import a_run, eight_gpus
from tests.features.validate.health.test_disposition import burn, of, validated, wrong
from tests.features.validate.health.test_kernel_log import message
from tests.features.validate.health.test_node import node
from tests.util.test_signing import make_key
from torchscale.config.choices import ReportFormat
from torchscale.errors import UsageError
from torchscale.features.validate.bundle import check_place, verify_bundle, write_bundle
from torchscale.features.validate.bundle_file import (
    MANIFEST,
    SIGNATURE,
    manifest_of,
    read_archive,
    write_archive,
)
from torchscale.features.validate.health.node import validate_facts
from torchscale.features.validate.health.required import Requirements
from torchscale.features.validate.report import acceptance_report
from torchscale.features.validate.terminal import print_bundle
from torchscale.schema.node.acceptance import Acceptance, Conditions
from torchscale.version import __version__

SLOW = validate_facts(
    of(),
    Requirements(),
    None,
    Acceptance(run=a_run(eight_gpus(np.random.default_rng(1), {2: 0.8}))),
)
SICK = validated(of(log=(message(95, "0000:1d:00"),), remapping_failed=True))


def rewritten(path: Path, changes: Mapping[str, Any], **manifest: Any) -> Path:
    """The bundle with changes to its validation, and digests that fit."""
    files = read_archive(path).files
    validation = {**json.loads(files["validation.json"]), **changes}
    files["validation.json"] = json.dumps(validation).encode()
    described = {"tool_version": json.loads(files[MANIFEST])["tool_version"], **manifest}
    content = {name: data for name, data in files.items() if not name.startswith("manifest")}
    made = manifest_of(content, hostname="n1", created_at="2026-01-01", **described)
    write_archive(path, {**files, MANIFEST: made.model_dump_json().encode()})
    return path


@pytest.mark.parametrize(
    "validation",
    [
        validated(of(), burn()),
        SICK,
        validated(of(), burn((wrong("memory", 1), wrong("memory", 2)))),
        validate_facts(node(0), Requirements(cuda=True, gpus=4)),
        SLOW,
    ],
    ids=["healthy", "sick", "wrong", "required", "slow"],
)
def test_a_bundle_is_verified_as_it_was_written(tmp_path: Path, validation: Any) -> None:
    write_bundle(validation, tmp_path / "a.zip")
    found = verify_bundle(tmp_path / "a.zip")
    assert found.problems == ()
    assert found.verified
    assert found.validation == validation
    assert [note.partition(":")[0] for note in found.notes] == ["not signed"]
    assert set(read_archive(tmp_path / "a.zip").files) == {
        "validation.json",
        "report.html",
        "report.pdf",
        MANIFEST,
    }


def test_a_slow_gpu_that_is_said_to_be_within_its_limit_is_found(tmp_path: Path) -> None:
    write_bundle(SLOW, tmp_path / "a.zip")
    acceptance = SLOW.model_dump(mode="json")["acceptance"]
    acceptance["figures"][2] = {**acceptance["figures"][2], "status": "within", "cause": None}
    found = verify_bundle(rewritten(tmp_path / "a.zip", {"acceptance": acceptance}))
    assert not found.verified
    assert "what is said of the speeds does not follow from the rounds" in found.problems


def test_a_changed_file_is_found(tmp_path: Path) -> None:
    write_bundle(SICK, tmp_path / "a.zip")
    files = read_archive(tmp_path / "a.zip").files
    files["validation.json"] = files["validation.json"].replace(b"could not be", b"could well be")
    write_archive(tmp_path / "a.zip", files)
    found = verify_bundle(tmp_path / "a.zip")
    assert not found.verified
    assert found.problems[0] == "validation.json was changed"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"fit": True}, "the verdict does not follow"),
        ({"verdict": "Fit for training on 4 GPUs."}, "the verdict does not follow"),
        ({"parts": []}, "what to do with GPU 0"),
        ({"checks": []}, "the check 'Python' does not follow"),
    ],
)
def test_a_verdict_that_does_not_follow_is_found_behind_right_digests(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    write_bundle(SICK, tmp_path / "a.zip")
    found = verify_bundle(rewritten(tmp_path / "a.zip", changes))
    assert not found.verified
    assert any(each.startswith(problem) for each in found.problems)


def test_an_undecided_node_that_is_said_to_be_kept_is_found(tmp_path: Path) -> None:
    busy = [Conditions(foreign_share=0.4)] * 8
    run = a_run(eight_gpus(np.random.default_rng(1)), conditions=busy)
    undecided = validate_facts(of(), Requirements(), None, Acceptance(run=run))
    write_bundle(undecided, tmp_path / "a.zip")
    assert verify_bundle(tmp_path / "a.zip").verified
    parts = [
        {**part, "disposition": "keep", "action": "", "reasons": []}
        for part in undecided.model_dump(mode="json")["parts"]
    ]
    changes = {"parts": parts, "disposition": "keep", "verdict": "Keep: put it into service."}
    found = verify_bundle(rewritten(tmp_path / "a.zip", changes))
    assert "what to do with node does not follow from the facts" in found.problems


def test_the_page_of_a_bundle_is_the_report_of_the_folder(tmp_path: Path) -> None:
    """One builder, two doors."""
    write_bundle(SLOW, tmp_path / "a.zip")
    assert SLOW.acceptance is not None
    (tmp_path / "acceptance.json").write_text(SLOW.acceptance.model_dump_json())
    (tmp_path / "validation.json").write_text(SLOW.model_dump_json())
    page = acceptance_report(tmp_path).render(ReportFormat.HTML)
    in_bundle = read_archive(tmp_path / "a.zip").files["report.html"]
    title = b"<title>Acceptance of "
    assert (
        page.partition(title)[2].partition(b"</h1>")[2]
        == (in_bundle.partition(title)[2].partition(b"</h1>")[2])
    )


def test_another_version_may_judge_otherwise(tmp_path: Path) -> None:
    write_bundle(SICK, tmp_path / "a.zip")
    found = verify_bundle(rewritten(tmp_path / "a.zip", {"fit": True}, tool_version="0.1"))
    assert found.verified
    assert "judged by torchscale 0.1" in " ".join(found.notes)


def test_a_validation_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    write_bundle(SICK, tmp_path / "a.zip")
    found = verify_bundle(rewritten(tmp_path / "a.zip", {"checks": "none"}))
    assert found.problems == ("validation.json cannot be read",)
    assert found.validation is None


@pytest.mark.slow
def test_a_signature_holds_until_a_byte_is_changed(tmp_path: Path) -> None:
    """Also where the digests were made to fit."""
    key = make_key(tmp_path / "key")
    write_bundle(SICK, tmp_path / "a.zip", key)
    found = verify_bundle(tmp_path / "a.zip")
    assert found.verified
    assert found.signer is not None
    assert found.notes == ()

    files = read_archive(tmp_path / "a.zip").files
    rewritten(tmp_path / "a.zip", {"unseen": []})
    resigned = {**read_archive(tmp_path / "a.zip").files, SIGNATURE: files[SIGNATURE]}
    write_archive(tmp_path / "a.zip", resigned)
    forged = verify_bundle(tmp_path / "a.zip")
    assert forged.signer is None
    assert forged.problems[0] == f"{MANIFEST} was changed after it was signed"


def test_secrets_are_not_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef0123456789abcdef01234567")
    facts = of(log=(message(95, text="name=x --key 0123456789abcdef0123456789abcdef01234567"),))
    write_bundle(validated(facts), tmp_path / "a.zip")
    for content in read_archive(tmp_path / "a.zip").files.values():
        assert b"0123456789abcdef0123456789abcdef01234567" not in content


def test_an_archive_with_bytes_of_no_file_is_not_verified(tmp_path: Path) -> None:
    write_bundle(SICK, tmp_path / "a.zip")
    with (tmp_path / "a.zip").open("ab") as file:
        file.write(b"and more")
    found = verify_bundle(tmp_path / "a.zip")
    assert not found.verified
    assert found.problems == (
        "the archive was packed again or has bytes that are of none of its files",
    )


def test_of_a_compressed_archive_it_is_said_what_was_checked(tmp_path: Path) -> None:
    """As earlier versions wrote them."""
    write_bundle(SICK, tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in read_archive(tmp_path / "a.zip").files.items():
            archive.writestr(name, content)
    found = verify_bundle(tmp_path / "b.zip")
    assert (found.verified, found.every_byte) == (True, False)
    assert "compressed: only its files were checked" in " ".join(found.notes)


def test_a_bundle_in_a_loop_of_links_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    for place in (tmp_path / "a", tmp_path / "a" / "node.zip"):
        with pytest.raises(UsageError, match="not a file in a directory"):
            check_place(place)


NUMBERS = (1e308, -1e308, 10**19, 2**63, -1, 0, 1e-320, float("nan"), float("inf"))


def numbers(content: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the numbers of a JSON document are; of a list the first two entries."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from numbers(value, (*above, key))
    elif isinstance(content, list):
        for place, value in enumerate(content[:2]):
            yield from numbers(value, (*above, place))
    elif isinstance(content, (int, float)) and not isinstance(content, bool):
        yield above


@pytest.mark.parametrize("value", NUMBERS)
@pytest.mark.parametrize("validation", [validated(of(), burn()), SLOW], ids=["burn-in", "speeds"])
def test_no_number_of_a_bundle_raises(tmp_path: Path, validation: Any, value: float) -> None:
    """With digests that fit: it is another verdict, or cannot be read."""
    write_bundle(validation, tmp_path / "a.zip")
    files = read_archive(tmp_path / "a.zip").files
    content = json.loads(files["validation.json"])
    found = list(numbers(content))
    assert len(found) > 40
    for where in found:
        changed = json.loads(files["validation.json"])
        inner = changed
        for key in where[:-1]:
            inner = inner[key]
        inner[where[-1]] = value
        plain = {**files, "validation.json": json.dumps(changed).encode()}
        del plain[MANIFEST]
        made = manifest_of(plain, tool_version=__version__, hostname="n1", created_at="")
        write_archive(tmp_path / "b.zip", {**plain, MANIFEST: made.model_dump_json().encode()})
        checked = verify_bundle(tmp_path / "b.zip")
        print_bundle(checked, Console(file=io.StringIO(), width=80))
        checked.model_dump_json()
