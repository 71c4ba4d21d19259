"""Distributions of others that hold a package ``torchscale``, found among fabricated
installations."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

import torchscale
from torchscale.errors import ExitCode
from torchscale.util.namesake import namesakes, repairs, replaced_package
from torchscale.version import DISTRIBUTION

OTHER = "torchscale 0.3.0 (Transformers at any scale)"


def install(
    site: Path, name: str, version: str, *, package: str, summary: str = "", command: str = ""
) -> Path:
    """The metadata of a distribution, as pip leaves it."""
    directory = site / f"{name.replace('-', '_')}-{version}.dist-info"
    directory.mkdir(parents=True)
    about = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + f"Summary: {summary}\n" * bool(summary)
    )
    (directory / "METADATA").write_text(about)
    (directory / "top_level.txt").write_text(f"examples\n{package}\n")
    if command:
        (directory / "entry_points.txt").write_text(f"[console_scripts]\n{command} = a:run\n")
    return directory


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment that holds nothing but Python's own library."""
    library = [
        path
        for path in sys.path
        if path.startswith(sys.base_prefix) and "site-packages" not in path
    ]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *library])
    return tmp_path


def test_another_project_with_our_package_is_named_and_we_are_not(site: Path) -> None:
    install(site, DISTRIBUTION, "0.2", package="torchscale", command="torchscale")
    assert namesakes() == ()
    install(site, "torchscale", "0.3.0", package="torchscale", summary="Transformers at any scale")
    install(site, "other", "1", package="other")
    assert namesakes() == (OTHER,)


def test_an_earlier_installation_of_ours_under_that_name_is_no_other_project(site: Path) -> None:
    install(site, "torchscale", "0.2.0.dev0", package="torchscale", command="torchscale")
    assert namesakes() == ()


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        (None, [DISTRIBUTION]),
        ({"url": "file:///a%20b/torchscale", "dir_info": {}}, ["/a b/torchscale"]),
        ({"url": "file:///src", "dir_info": {"editable": True}}, ["-e", "/src"]),
        ({"url": "https://h/t.whl", "archive_info": {}}, [f"{DISTRIBUTION} @ https://h/t.whl"]),
        (
            {"url": "https://h/t.git", "vcs_info": {"vcs": "git", "commit_id": "1f"}},
            [f"{DISTRIBUTION} @ git+https://h/t.git@1f"],
        ),
    ],
    ids=["index", "directory", "editable", "archive", "git"],
)
def test_the_repair_installs_ours_from_where_it_came(
    site: Path, origin: object, source: list[str]
) -> None:
    metadata = install(site, DISTRIBUTION, "0.2", package="torchscale", command="torchscale")
    if origin is not None:
        (metadata / "direct_url.json").write_text(json.dumps(origin))
    removal, installation = repairs((OTHER,))
    assert removal == "pip uninstall torchscale"
    assert shlex.split(installation) == [
        "pip",
        "install",
        "--force-reinstall",
        "--no-deps",
        *source,
    ]


def test_the_error_tells_an_overwritten_package_from_a_missing_one(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, "torchscale", "0.3.0", package="torchscale", summary="Transformers at any scale")
    overwritten = replaced_package(torchscale)
    assert (
        overwritten.message
        == f"{torchscale.__file__} belongs to {OTHER}, whose package has the same name"
    )
    assert overwritten.hint == " && ".join(repairs((OTHER,)))
    assert overwritten.exit_code is ExitCode.UNABLE
    monkeypatch.setattr(torchscale, "__file__", None)
    assert "/__init__.py is missing: " in replaced_package(torchscale).message
