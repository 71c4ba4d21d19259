"""Signatures of files by OpenSSH's keys: nodes have ssh-keygen, and people have keys."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from torchscale.errors import MachineError, UsageError

_NAMESPACE = "torchscale"
"""A signature for one purpose is none for another."""
_SECONDS = 60.0
"""A key on a token waits for a touch."""
_SIGNED_BY = re.compile(r"Good .* signature with (\S+) key (SHA256:\S+)")


def sign(path: Path, key: Path) -> Path:
    """Sign a file. Returns the signature's file, ``PATH.sig``.

    Args:
        path: The file.
        key: A private key, or a public one whose private key the SSH agent holds.

    Raises:
        UsageError: the key cannot be used.
        MachineError: ssh-keygen is not installed.
    """
    done = _run(["ssh-keygen", "-Y", "sign", "-f", str(key), "-n", _NAMESPACE, str(path)], b"")
    if done.returncode != 0:
        reason = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
        raise UsageError(
            f"cannot sign with {key}: {reason[-1][:200]}",
            hint="name a private key of OpenSSH; one with a passphrase through the SSH agent, by "
            "its .pub file",
        )
    return path.with_name(f"{path.name}.sig")


def signer_of(content: bytes, signature: Path) -> str | None:
    """The key that has signed the content (``ED25519 SHA256:…``); ``None`` where it is another
    content, or no signature.

    Raises:
        MachineError: ssh-keygen is not installed.
    """
    command = ["ssh-keygen", "-Y", "check-novalidate", "-n", _NAMESPACE, "-s", str(signature)]
    done = _run(command, content)
    found = _SIGNED_BY.search(done.stdout.decode("utf-8", "replace"))
    if done.returncode != 0 or found is None:
        return None
    return f"{found[1]} {found[2]}"


def _run(command: Sequence[str], content: bytes) -> subprocess.CompletedProcess[bytes]:
    """In a session of its own, where no terminal can be asked for a passphrase."""
    try:
        return subprocess.run(
            command,
            input=content,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise MachineError(
            "ssh-keygen is not installed", hint="install the OpenSSH client, or leave out the key"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise MachineError(
            f"ssh-keygen gave no answer in {_SECONDS:.0f} s", hint="use a key without a passphrase"
        ) from error
