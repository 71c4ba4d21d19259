"""What every test shares: torch on one thread (tests run side by side), no model hub, one browser a
session, and the guard that keeps ``make fast`` fast."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.campaign import FAULT, FAULT_TABLE, WHOLE, fault_table, markdown_fault_table
from tests.zygote import Zygote
from torchscale.util.gc import gc_paused

if TYPE_CHECKING:
    from playwright.sync_api import Browser

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

_ALLOWED = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
"""No machine is too slow to draw examples, and files of one example may be written over by the
next."""
for _name, _fixed in (("same examples", True), ("random examples", False)):
    settings.register_profile(
        _name, derandomize=_fixed, deadline=None, suppress_health_check=_ALLOWED
    )
settings.load_profile("random examples" if WHOLE else "same examples")

HERE = Path(__file__).parent
SLOW_DIRECTORIES = (HERE / "worker", HERE / "integration")
"""Their tests import torch or start launches; ``make fast`` does not even collect them."""

# A shell ignores Ctrl-C and Ctrl-\, and nohup HUP, for what it starts in the background; commands keep that.
for _number, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGQUIT, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)
SLOW_FIXTURES = {"browser"}
SYSTEMS = tuple(
    HERE / "integration" / f"test_{name}.py"
    for name in ("engines", "health_program", "nsys", "pods", "ray_cluster", "slurm")
)
"""Their tests need a system beside the package, as do those with a fixture of
:data:`SYSTEM_FIXTURES`; ``make test`` leaves them to ``make test-systems``."""
SYSTEM_FIXTURES = {"browser"}
OF_CI = ("code_figures", "once_more", "pythons", "reach", "torches")
"""Scripts that CI relies on: the tests of all others run in ``make campaign`` alone."""
ONE_BY_ONE = "tests/integration/"
"""Tests here take long and share nothing."""
_FORKS = "forked ranks"
SHARED = {
    "tests/integration/test_own_scripts.py": "a script's run",
    "tests/worker/machine/test_collective_operations.py": _FORKS,
    "tests/worker/parallel/test_correctness.py": _FORKS,
    "tests/worker/parallel/test_ddp.py": _FORKS,
    "tests/worker/parallel/test_gradients.py": _FORKS,
    "tests/worker/watch/test_checkpoints.py": _FORKS,
}
"""Files that share the process that forks their ranks (``tests/worker/forks.py``), or whose tests
read one run."""
pytest_plugins = ["tests.fake_launches"]
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

FORKED = tuple(
    HERE / name
    for name in (
        *("cli", "integration", "launch", "measure", "worker/machine"),
        *("features/cluster/nodes", "features/decide/tune", "features/machine"),
        *("features/validate/cli", "features/validate/fleet", "features/validate/run"),
    )
)
"""Here, the program and its launches are forks of a process that has imported torch
(``tests/zygote.py``), in slow tests that are not marked as ``real``."""
_zygote = Zygote()

_guarded_test = ""
"""Id of the test that runs now and may start no interpreter; empty where it may."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs a system or is slow by its place or its fixtures, and leave out what only a
    campaign runs. What is slow runs first: then no worker is left with a long test when the others
    are done."""
    for item in items:
        name = item.path.stem.removeprefix("test_")
        if item.path.parent == HERE / "scripts" and name not in OF_CI:
            item.add_marker(pytest.mark.campaign)
    if not WHOLE:
        left_out = [item for item in items if item.get_closest_marker("campaign")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("campaign")]
    for item in items:
        in_slow_directory = any(
            item.path.is_relative_to(directory) for directory in SLOW_DIRECTORIES
        )
        if "record_property" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.faults)
        fixtures = set(getattr(item, "fixturenames", ()))
        needs_system = item.path in SYSTEMS or bool(SYSTEM_FIXTURES & fixtures)
        if needs_system:
            item.add_marker(pytest.mark.systems)
        if item.get_closest_marker("quiet") and (not in_slow_directory or needs_system):
            raise pytest.UsageError(f"{item.nodeid}: `make unit-quiet` does not collect it there")
        if in_slow_directory or SLOW_FIXTURES & fixtures:
            item.add_marker(pytest.mark.slow)
    items.sort(
        key=lambda item: (
            not item.get_closest_marker("integration"),
            not item.get_closest_marker("slow"),
        )
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """In a campaign, the table of all faults that were caused: what was expected, and what was
    seen."""
    rows = [
        (row, report.duration)
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, row in getattr(report, "user_properties", ())
        if name == FAULT and getattr(report, "when", "") == "call"
    ]
    if WHOLE and rows:
        terminalreporter.section(f"{len(rows)} faults")
        for line in fault_table(rows):
            terminalreporter.write_line(line)
        FAULT_TABLE.parent.mkdir(exist_ok=True)
        FAULT_TABLE.write_text(markdown_fault_table(rows))
        terminalreporter.write_line(f"The whole texts: {FAULT_TABLE}")


class _ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Hands tests to workers file by file, so that what the tests of a file share is made once;
    those of :data:`ONE_BY_ONE` each by itself, and files of :data:`SHARED` together. (xdist's own
    groups have no effect under pytest 9.2.)"""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return SHARED.get(path, nodeid if path.startswith(ONE_BY_ONE) else path)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _ByFile | None:
    """``--dist loadscope`` is the one above."""
    return _ByFile(config, log) if config.getvalue("dist") == "loadscope" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Without the garbage collector, which would go over all that is imported again and again, then
    and in every test: it stays anyway."""
    with gc_paused():
        collected = yield
    gc.freeze()
    return collected


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Guard a test that is not marked as slow, its fixtures included."""
    global _guarded_test  # noqa: PLW0603 - an audit hook takes no argument of ours and cannot be removed
    _guarded_test = "" if item.get_closest_marker("slow") else item.nodeid
    try:
        with _zygote.serving() if _may_fork(item) else nullcontext():
            return (yield)
    finally:
        _guarded_test = ""


def _may_fork(item: pytest.Item) -> bool:
    """Whether what the test starts may be forks. What is judged by its times is started, and so is
    all in a campaign, which takes hours anyway."""
    marks = {mark.name for mark in item.iter_markers()}
    in_place = any(item.path.is_relative_to(directory) for directory in FORKED)
    return in_place and "slow" in marks and not marks & {"real", "quiet"} and not WHOLE


def pytest_unconfigure() -> None:
    """End what the tests of this process shared."""
    _zygote.end()


def _refuse_interpreters(event: str, arguments: tuple[Any, ...]) -> None:
    """Fail a guarded test that starts Python or a browser. Small tools that libraries ask
    (``fc-list``, ``uname``) may run."""
    if not _guarded_test or event not in ("subprocess.Popen", "os.fork"):
        return
    program = (
        Path(os.fsdecode(arguments[0] or arguments[1][0])).name
        if event == "subprocess.Popen"
        else "fork"
    )
    if program.startswith(("python", "fork", "node", "chrom", "torch")):
        pytest.fail(
            f"{_guarded_test} starts {program}: mark it with `slow`, or test in process",
            pytrace=False,
        )


sys.addaudithook(_refuse_interpreters)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A Chromium for all tests of a session; each opens its own pages and closes them. Outside CI,
    tests that use it are skipped where there is none."""
    from playwright.sync_api import sync_playwright

    if not Path(CHROMIUM).exists() and not os.environ.get("CI"):
        pytest.skip(f"no {CHROMIUM}; `make test` installs it")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        yield chromium
        chromium.close()
