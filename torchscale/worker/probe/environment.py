"""``python -m torchscale.worker.probe.environment`` prints, as one JSON line, the machine as torch sees
it; torch is imported only if it may see devices."""

from __future__ import annotations

import os
import platform
import re
import runpy
import sys
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import psutil

from torchscale.errors import MachineError
from torchscale.schema.node.environment import DeviceInfo, Environment, Versions
from torchscale.util.cpu import cpu_name
from torchscale.util.git import run_git
from torchscale.util.redaction import redact
from torchscale.util.text import shown_bytes
from torchscale.version import __version__

_GIT_SECONDS = 5.0
"""`git status` takes milliseconds, but can hang on a network file system; the commit is optional."""
_BRANCH_VARIABLES = (
    "GITHUB_HEAD_REF",
    "GITHUB_REF_NAME",
    "CI_COMMIT_BRANCH",
    "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME",
)
"""Variables of GitHub and GitLab, in this order."""
_MAX_BRANCH = 250
"""Characters: about what a file system allows for the name of a branch."""
_RELEVANT_NAME = re.compile(
    r"^(NCCL|CUDA|CUDNN|CUBLAS|NVIDIA|TORCH(?!SCALE_)|PYTORCH|OMP|MKL|KMP|GLOO|UCX|FI|MASTER|SLURM_JOB|SLURM_N|LD_PRELOAD|MALLOC_|GLIBC_TUNABLES)"
)


def collect_environment() -> Environment:
    """Host, devices and versions. The launcher replaces ``cores`` (here all physical ones) and sets
    ``command``."""
    devices: tuple[DeviceInfo, ...] = ()
    if cpu_only_torch() is None:
        from torchscale.worker.probe.devices import collect_devices  # noqa: PLC0415 - imports torch

        devices = collect_devices()
    commit, branch = _checkout(os.environ)
    return Environment(
        hostname=platform.node(),
        system=f"{platform.system()} {platform.release()}",
        cpu=cpu_name(),
        cores=psutil.cpu_count(logical=False) or os.cpu_count() or 1,
        memory_bytes=int(psutil.virtual_memory().total),
        versions=collect_versions(),
        devices=devices,
        cuda_available=any(device.kind == "cuda" for device in devices),
        env=relevant_variables(os.environ),
        git_commit=commit,
        git_branch=branch,
    )


def relevant_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that can change a figure, by name, secrets redacted."""
    return {
        shown_bytes(name): redact(name, shown_bytes(variables[name]))
        for name in sorted(variables)
        if _RELEVANT_NAME.match(name)
    }


def collect_versions() -> Versions:
    """Versions of everything that can change a figure; CUDA's only where torch can use it."""
    torch_version = cpu_only_torch()
    of_cuda: dict[str, str | None] = {}
    if torch_version is None:
        import torch  # noqa: PLC0415 - takes seconds, and a build for CPUs alone need not be asked

        from torchscale.worker.probe.devices import cuda_versions  # noqa: PLC0415 - imports torch

        torch_version, of_cuda = str(torch.__version__), cuda_versions()
    return Versions(
        torchscale=__version__,
        python=platform.python_version(),
        torch=torch_version,
        **of_cuda,
        transformers=_installed_version("transformers"),
        torchao=_installed_version("torchao"),
    )


@cache
def cpu_only_torch() -> str | None:
    """Version of the installed torch if it was built for CPUs alone and so sees no other device,
    read without importing it; ``None`` for every other build, on macOS (MPS is part of each build
    there), and where it cannot be read."""
    spec = find_spec("torch")
    if sys.platform == "darwin" or spec is None or spec.origin is None:
        return None
    try:
        build = runpy.run_path(str(Path(spec.origin).with_name("version.py")))
    except (OSError, SyntaxError):
        return None
    if any(build.get(name, "unknown") is not None for name in ("cuda", "hip", "xpu")):
        return None
    return str(build["__version__"])


def _installed_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _checkout(variables: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Commit of the working directory, marked ``-dirty`` when files differ from it, and its branch.
    (``git describe --dirty`` would write the user's index.)"""
    status = _git(
        "status", "--porcelain=v2", "--branch", "--no-ahead-behind", "--untracked-files=no"
    )
    if status is None:  # no checkout, or its files take too long to look at
        return None, _git("symbolic-ref", "--quiet", "--short", "HEAD")
    lines = status.splitlines()
    headers = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# branch."))
    commit, branch = headers.get("branch.oid"), headers.get("branch.head")
    if commit == "(initial)":
        commit = None
    elif commit is not None and any(not line.startswith("#") for line in lines):
        commit = f"{commit}-dirty"
    if branch == "(detached)":
        branch = _named_branch(variables)
    return commit, branch


def _named_branch(variables: Mapping[str, str]) -> str | None:
    """The branch of a detached checkout: CI checks a commit out without its branch, and names it in
    a variable."""
    # Of a pull request GITHUB_REF_NAME is `12/merge`; GITHUB_HEAD_REF is its branch, and empty
    # elsewhere.
    named = (shown_bytes(variables.get(name, ""))[:_MAX_BRANCH] for name in _BRANCH_VARIABLES)
    return next(filter(None, named), None)


def _git(*arguments: str) -> str | None:
    """What git prints; ``None`` where there is no git or no checkout."""
    try:
        done = run_git(Path(), *arguments, timeout_seconds=_GIT_SECONDS)
    except MachineError:
        return None
    if done.returncode == 0:
        return done.stdout.strip() or None
    return None


if __name__ == "__main__":
    sys.stdout.write(collect_environment().model_dump_json() + "\n")
