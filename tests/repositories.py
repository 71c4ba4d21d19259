"""Repositories of git for tests, and all that is in one."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from torchscale.util.git import without_repository


def git(directory: Path, *arguments: str) -> str:
    """What git prints, as somebody with a name, whatever variables say."""
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    may = ("-c", "protocol.file.allow=always")
    done = subprocess.run(
        ["git", "-C", str(directory), *who, *may, *arguments],
        env=without_repository(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


def commits(root: Path, *texts: str) -> None:
    """A repository with a commit ``v1``, ``v2``, … for each text of ``job/train.py``."""
    (root / "job").mkdir(parents=True, exist_ok=True)
    git(root, "init", "--quiet", "--initial-branch=main")
    for number, text in enumerate(texts, 1):
        (root / "job" / "train.py").write_text(text)
        git(root, "add", ".")
        git(root, "commit", "--quiet", "--allow-empty", "-m", f"Number {number}")
        git(root, "tag", f"v{number}")


def everything(root: Path) -> dict[str, str]:
    """Every file below a directory and what it holds, a repository's own files too."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
