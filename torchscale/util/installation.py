"""How this copy of the program was installed, and the command that adds an extra to it.

The installed distribution says where it came from (``direct_url.json``, PEP 610) and by what
(``INSTALLER``, PEP 627). pipx and ``uv tool`` leave a file of their own in each environment.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement

from torchscale.util.interpreter import interpreter
from torchscale.version import DISTRIBUTION

_PIPX, _UV_TOOL = "pipx_metadata.json", "uv-receipt.toml"
"""Files in ``sys.prefix`` of an application of pipx, and of ``uv tool``."""
_RECEIPT_EXTRAS = re.compile(rf'name = "{DISTRIBUTION}", extras = \[([^\]]*)\]')


def install_command(extra: str) -> str:
    """The command that adds an extra of pyproject.toml to this copy, ready for a shell."""
    if _is_tool_of_uv():
        return _uv_tool_install(extra)
    return shlex.join([*_installer(), *install_source(extra)])


def library_command(requirement: str) -> str:
    """The command that adds a library that no extra brings, ready for a shell."""
    if _is_tool_of_uv():
        return _uv_tool_install("", "--with", requirement)
    return shlex.join([*_installer(), requirement])


def _installer() -> list[str]:
    """What goes before the requirements. Environments of uv have no pip."""
    if (Path(sys.prefix) / _PIPX).is_file():
        return ["pipx", "inject", DISTRIBUTION]
    installed = _installed()
    by = None if installed is None else installed.read_text("INSTALLER")
    if by is not None and by.strip() == "uv":
        return ["uv", "pip", "install"]
    return ["pip", "install"]


def _is_tool_of_uv() -> bool:
    return (Path(sys.prefix) / _UV_TOOL).is_file()


def _uv_tool_install(extra: str, *options: str) -> str:
    """``uv tool`` takes away the extras that are not named again."""
    receipt = _RECEIPT_EXTRAS.search((Path(sys.prefix) / _UV_TOOL).read_text(encoding="utf-8"))
    extras = {extra} - {""}
    if receipt is not None:
        extras |= set(re.findall(r'"([^"]+)"', receipt[1]))
    source = install_source(",".join(sorted(extras)))
    if source[0] != "-e" and len(source) > 1:  # libraries alone: the copy's source is gone
        return shlex.join(["uv", "pip", "install", "--python", interpreter(), *source])
    return shlex.join(["uv", "tool", "install", *options, *source])


def install_source(extras: str = "") -> list[str]:
    """Arguments of ``pip install`` for this program and these extras, from where this copy came: a
    checkout, file, address or commit, or by its name from an index. Of a file or folder that is
    gone: the libraries of the extras.

    Args:
        extras: One, or several with commas.
    """
    named = f"[{extras}]" if extras else ""
    installed = _installed()
    if installed is None:
        return _checkout(named)
    text = installed.read_text("direct_url.json")
    if text is None:
        return [f"{DISTRIBUTION}{named}"]
    origin = json.loads(text)
    if "vcs_info" in origin:
        vcs = origin["vcs_info"]
        return [f"{DISTRIBUTION}{named} @ {vcs['vcs']}+{origin['url']}@{vcs['commit_id']}"]
    url = urlsplit(origin["url"])
    if url.scheme != "file":
        return [f"{DISTRIBUTION}{named} @ {origin['url']}"]
    path = unquote(url.path)
    if extras and not Path(path).exists():
        return [library for one in extras.split(",") for library in _libraries(installed, one)]
    if origin.get("dir_info", {}).get("editable", False):
        return ["-e", f"{path}{named}"]
    return [f"{path}{named}"]


def _installed() -> Distribution | None:
    try:
        return distribution(DISTRIBUTION)
    except PackageNotFoundError:
        return None


def _checkout(named: str) -> list[str]:
    """Of a copy that was not installed: the checkout that it is imported from, if it is one."""
    root = Path(__file__).resolve().parents[2]
    if (root / "pyproject.toml").is_file():
        return ["-e", f"{root}{named}"]
    return [f"{DISTRIBUTION}{named}"]


def _libraries(installed: Distribution, extra: str) -> Iterator[str]:
    """The requirements of an extra, those of the extras that it names among them."""
    for requirement in map(Requirement, installed.requires or ()):
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": ""}):  # the core's
            continue
        if not marker.evaluate({"extra": extra}):
            continue
        if requirement.name == DISTRIBUTION:
            for part in sorted(requirement.extras):
                yield from _libraries(installed, part)
        else:
            yield f"{requirement.name}{requirement.specifier}"
