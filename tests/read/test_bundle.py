"""Bundles of validations: written, sent, changed, and judged again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.analysis.acceptance.runs import a_run, eight_gpus
from tests.analysis.health.test_disposition import burn, of, validated, wrong
from tests.analysis.health.test_kernel_log import message
from tests.analysis.health.test_node import node
from tests.util.test_signing import make_key
from torchscale.analysis.health.node import validate_facts
from torchscale.analysis.health.required import Requirements
from torchscale.read.bundle import verify_bundle, write_bundle
from torchscale.schema.node.acceptance import Acceptance
from torchscale.store.bundle import (
    MANIFEST,
    SIGNATURE,
    manifest_of,
    read_archive,
    write_archive,
)

SLOW = validate_facts(
    of(),
    Requirements(),
    None,
    Acceptance(run=a_run(eight_gpus(np.random.default_rng(1), {2: 0.8}))),
)
SICK = validated(of(log=(message(95, "0000:1d:00"),), remapping_failed=True))


def rewritten(path: Path, changes: Mapping[str, Any], **manifest: Any) -> Path:
    """The bundle with changes to its validation, and digests that fit."""
    files = read_archive(path)
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
    assert set(read_archive(tmp_path / "a.zip")) == {
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
    files = read_archive(tmp_path / "a.zip")
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
    assert found.problems[0].startswith(problem)


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

    files = read_archive(tmp_path / "a.zip")
    rewritten(tmp_path / "a.zip", {"unseen": []})
    resigned = {**read_archive(tmp_path / "a.zip"), SIGNATURE: files[SIGNATURE]}
    write_archive(tmp_path / "a.zip", resigned)
    forged = verify_bundle(tmp_path / "a.zip")
    assert forged.signer is None
    assert forged.problems[0] == f"{MANIFEST} was changed after it was signed"


def test_secrets_are_not_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef0123456789abcdef01234567")
    facts = of(log=(message(95, text="name=x --key 0123456789abcdef0123456789abcdef01234567"),))
    write_bundle(validated(facts), tmp_path / "a.zip")
    for content in read_archive(tmp_path / "a.zip").values():
        assert b"0123456789abcdef0123456789abcdef01234567" not in content
