"""What every test shares: torch on one thread (tests run side by side), no model hub, one browser a session, and the
guard that keeps ``make fast`` fast."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

HERE = Path(__file__).parent
SLOW_DIRECTORIES = (HERE / "worker", HERE / "integration")
"""Their tests import torch or start launches; ``make fast`` does not even collect them."""
SLOW_FIXTURES = {"browser"}
CHROMIUM = "/usr/bin/chromium"
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

_guarded_test = ""
"""Id of the test that runs now and may start no interpreter; empty where it may."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what its directory or its fixtures make slow, and run that first: then no worker is left with a long
    test when the others are done."""
    for item in items:
        in_slow_directory = any(item.path.is_relative_to(directory) for directory in SLOW_DIRECTORIES)
        if in_slow_directory or SLOW_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: (not item.get_closest_marker("integration"), not item.get_closest_marker("slow")))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Guard a test that is not marked as slow, its fixtures included."""
    global _guarded_test  # noqa: PLW0603 - an audit hook takes no argument of ours and cannot be removed
    _guarded_test = "" if item.get_closest_marker("slow") else item.nodeid
    try:
        return (yield)
    finally:
        _guarded_test = ""


def _refuse_interpreters(event: str, arguments: tuple[Any, ...]) -> None:
    """Fail a guarded test that starts Python or a browser. Small tools that libraries ask (``fc-list``, ``uname``) may
    run."""
    if not _guarded_test or event not in ("subprocess.Popen", "os.fork"):
        return
    program = Path(os.fsdecode(arguments[0] or arguments[1][0])).name if event == "subprocess.Popen" else "fork"
    if program.startswith(("python", "fork", "node", "chrom", "torch")):
        pytest.fail(f"{_guarded_test} starts {program}: mark it with `slow`, or test in process", pytrace=False)


sys.addaudithook(_refuse_interpreters)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A Chromium for all tests of a session; each opens its own pages and closes them. Outside CI, tests that use it
    are skipped where there is none."""
    from playwright.sync_api import sync_playwright

    if not Path(CHROMIUM).exists() and not os.environ.get("CI"):
        pytest.skip(f"no {CHROMIUM}; `make test` installs it")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        yield chromium
        chromium.close()
