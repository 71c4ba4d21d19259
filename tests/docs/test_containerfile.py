"""The image: its build reads files that exist, and leaves the base's torch alone."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Containerfile").read_text()
KNOWN = {"ARG", "FROM", "RUN", "COPY", "ENV", "WORKDIR", "USER", "ENTRYPOINT", "CMD"}


def instructions() -> list[tuple[str, str]]:
    """Word and argument of each instruction, in order; continued lines are one."""
    lines = [line for line in TEXT.splitlines() if not line.lstrip().startswith("#")]
    whole = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [
        (line.partition(" ")[0], line.partition(" ")[2].strip())
        for line in whole.splitlines()
        if line.strip()
    ]


def arguments(word: str) -> list[str]:
    return [argument for each, argument in instructions() if each == word]


def test_it_begins_with_the_image_that_the_user_names() -> None:
    assert {word for word, _ in instructions()} <= KNOWN
    first, second = instructions()[:2]
    assert first[0] == "ARG"
    assert first[1].startswith("BASE=")
    assert second == ("FROM", "${BASE}")
    assert len(arguments("FROM")) == 1


def test_the_default_base_has_the_torch_that_ci_tests() -> None:
    (wanted,) = re.findall(
        r"^torch==([\d.]+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE
    )
    assert f"/pytorch:{wanted}-cuda" in arguments("ARG")[0]


def test_every_copied_file_is_in_the_repository() -> None:
    copied = [shlex.split(argument) for argument in arguments("COPY")]
    sources = [source for *sources, _ in copied for source in sources]
    for source in sources:
        assert (ROOT / source).exists(), source
        ignored = subprocess.run(
            ["git", "check-ignore", "-q", source], cwd=ROOT, check=False, timeout=30
        )
        assert ignored.returncode != 0, f"{source} is not in a clean checkout"


def test_all_that_the_package_is_built_from_is_copied() -> None:
    targets = {source for argument in arguments("COPY") for source in shlex.split(argument)[:-1]}
    assert {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "torchscale",
        "torchscale_bench.py",
    } <= targets
    links = [path for path in (ROOT / "torchscale").iterdir() if path.is_symlink()]
    assert links
    for link in links:
        assert link.resolve().relative_to(ROOT).as_posix() in targets, link


@pytest.mark.parametrize("script", arguments("RUN"))
def test_the_scripts_are_shell(script: str) -> None:
    done = subprocess.run(
        ["/bin/sh", "-n"], input=script, text=True, capture_output=True, check=False, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_installs_or_changes_torch() -> None:
    """pip is called once, for torchscale, bound to the versions that the base has; and the build
    fails where torch is another one afterwards."""
    installs = [
        command
        for script in arguments("RUN")
        for command in script.split(";")
        if "pip install" in command
    ]
    (install,) = installs
    words = shlex.split(install.partition("pip install")[2])
    assert words == [
        "--no-cache-dir",
        "--constraint",
        "/tmp/constraints.txt",
        "/opt/torchscale[all]",
    ]
    (script,) = [script for script in arguments("RUN") if "pip install" in script]
    (pattern,) = re.findall(r"grep -iE '([^']+)'", script)
    frozen = [
        "torch==2.13.0+cu130",
        "torchvision==0.28.0",
        "nvidia-nccl-cu13==2.28",
        "numpy==1.26.4",
        "triton==3.5",
    ]
    assert all(re.match(pattern, line, re.IGNORECASE) for line in frozen)
    assert not any(
        re.match(pattern, line, re.IGNORECASE)
        for line in ("torchscale==1", "typer==0.1", "nvidia==1")
    )
    before, after = script.split("pip install")
    assert "torch.__version__" in before
    assert "cmp - /tmp/torch.before" in after
    assert script.startswith("set -eu;")


def test_it_runs_as_no_root_and_starts_torchscale() -> None:
    (user,) = arguments("USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert instructions().index(("USER", user)) > max(
        index for index, (word, _) in enumerate(instructions()) if word in ("RUN", "COPY")
    )
    (entrypoint,) = arguments("ENTRYPOINT")
    assert json.loads(entrypoint) == ["torchscale"]
