"""The documentation as a site: every link and anchor leads somewhere, no page is left out, nothing
is loaded from other hosts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
LOADED = re.compile(
    r"""<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=["']?(https?:[^"'\s>]+)|url\(["']?(https?:[^"')]+)"""
)
"""What a browser fetches with a page; links that a reader follows are something else."""
pytestmark = pytest.mark.slow


def build(place: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """``make site`` for the documentation at ``place``."""
    argv = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        "mkdocs.yml",
        "--site-dir",
        str(site),
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        argv, cwd=place, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def test_the_site_builds_and_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "site").glob("*.html"))
    assert {page.stem for page in pages} >= {page.stem for page in (ROOT / "docs").glob("*.md")}
    for file in [*pages, *(tmp_path / "site").glob("assets/stylesheets/*.css")]:
        loaded = [
            address for match in LOADED.findall(file.read_text()) for address in match if address
        ]
        assert loaded == [], file.name


MISTAKES = {
    "[page](nowhere.md)": "'nowhere.md'",
    "[anchor](install.md#nowhere)": "no such anchor '#nowhere'",
    "![picture](pictures/nowhere.png)": "'pictures/nowhere.png'",
}
"""A link in a page, and what is said of it."""


def test_each_broken_link_and_a_page_that_the_navigation_lacks_is_an_error(tmp_path: Path) -> None:
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    with (tmp_path / "docs" / "index.md").open("a") as page:
        page.write("".join(f"\n{mistake}\n" for mistake in MISTAKES))
    (tmp_path / "docs" / "forgotten.md").write_text("# Forgotten\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    told = done.stderr.replace("does not contain an anchor", "no such anchor")
    for said in (*MISTAKES.values(), "forgotten.md"):
        assert said in told
    assert f"Aborted with {len(MISTAKES) + 1} warnings in strict mode" in done.stdout
