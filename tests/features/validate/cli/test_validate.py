"""``torchscale validate --bundle`` and ``--verify``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.program import torchscale
from tests.features.validate.health.test_disposition import of, validated
from torchscale.features.validate.bundle import write_bundle
from torchscale.features.validate.bundle_file import read_archive, write_archive

SICK = validated(of(remapping_failed=True))


def test_a_bundle_is_shown_with_what_to_do_and_who_signed_it(
    tmp_path: Path,
) -> None:
    write_bundle(SICK, tmp_path / "a.zip")
    code, out = verified(tmp_path)
    assert code == 0
    assert "not signed" in out
    assert re.search(r"return +GPU 2 \(0000:1d:00\.0, .*replace the .*a row of memory", out)
    assert "Verified: as it was written." in out


def test_a_changed_bundle_is_named_and_fails(
    tmp_path: Path,
) -> None:
    write_bundle(SICK, tmp_path / "a.zip")
    files = read_archive(tmp_path / "a.zip").files
    files["report.html"] += b" "
    write_archive(tmp_path / "a.zip", files)
    code, out = verified(tmp_path)
    assert code == 1
    assert "changed: report.html was changed" in out
    assert "Not verified." in out
    code, out = verified(tmp_path, "--json")
    assert code == 1
    assert json.loads(out)["problems"] == ["report.html was changed"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--verify", "missing.zip"], "cannot read missing.zip"),
        (["--verify", "a.zip", "--policy", "ours.yaml"], "--policy is for a node"),
        (["--sign", "key"], "--sign signs a bundle"),
        (["--brief", "--json"], "--brief is a line"),
        (["--bundle", "missing/node.zip"], "--bundle missing/node.zip: not a file in a directory"),
        (["--bundle", "."], "--bundle .: not a file in a directory"),
        (["--bundle", "node.zip", "--sign", "missing"], "cannot sign with missing"),
    ],
)
def test_what_cannot_be_is_one_error(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = torchscale(tmp_path, "validate", *arguments)
    assert done.returncode == 2
    assert said in done.stderr


def verified(directory: Path, *more: str) -> tuple[int, str]:
    """Exit code and text of a check of ``a.zip``."""
    done = torchscale(directory, "validate", "--verify", "a.zip", *more)
    return done.returncode, " ".join(done.stdout.split())


@pytest.mark.slow
def test_this_node_is_told_in_a_line_and_bundled(tmp_path: Path) -> None:
    done = torchscale(tmp_path, "validate", "--brief", "--bundle", "a.zip", "-o", ".")
    assert done.stdout.count("\n") == 1
    assert "Wrote a.zip" in done.stderr
    code, out = verified(tmp_path)
    assert code == 0
    assert "Verified: as it was written." in out
