"""Signatures by ssh-keygen."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from torchscale.errors import MachineError, UsageError
from torchscale.util.signing import sign, signer_of

pytestmark = pytest.mark.slow


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A private key without a passphrase."""
    return make_key(tmp_path / "key")


def make_key(path: Path, passphrase: str = "") -> Path:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=60)
    return path


def test_a_signature_is_of_its_content_alone(tmp_path: Path, key: Path) -> None:
    signed = tmp_path / "manifest.json"
    signed.write_bytes(b"content")
    signature = sign(signed, key)
    signer = signer_of(b"content", signature)
    assert signer is not None
    assert signer.startswith("ED25519 SHA256:")
    assert signer_of(b"contents", signature) is None


def test_a_signature_for_another_purpose_is_none(tmp_path: Path, key: Path) -> None:
    signed = tmp_path / "manifest.json"
    signed.write_bytes(b"content")
    command = ["ssh-keygen", "-Y", "sign", "-f", str(key), "-n", "git", str(signed)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert signer_of(b"content", tmp_path / "manifest.json.sig") is None
    (tmp_path / "none.sig").write_bytes(b"-----BEGIN SSH SIGNATURE-----\nx\n")
    assert signer_of(b"content", tmp_path / "none.sig") is None


def test_a_key_that_cannot_be_used_is_one_error(tmp_path: Path) -> None:
    signed = tmp_path / "manifest.json"
    signed.write_bytes(b"content")
    secret = make_key(tmp_path / "secret", "a passphrase")
    for bad in (tmp_path / "missing", signed, secret):
        with pytest.raises(UsageError, match="cannot sign with"):
            sign(signed, bad)


def test_without_ssh_keygen_it_is_said(
    tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="not installed"):
        sign(tmp_path / "manifest.json", key)
