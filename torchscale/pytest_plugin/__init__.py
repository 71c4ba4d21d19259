"""The pytest plugin: a fixture ``torchscale`` that measures a function or a config and fails on a
regression.

pytest loads this module in every run of every project that has torchscale installed: it and
what it imports load nothing but pytest until the fixture is used.
"""

from __future__ import annotations

import pytest

from torchscale.pytest_plugin.measure import Measure
from torchscale.pytest_plugin.session import ACCEPT, ADD, BASELINE, UPDATE, MeasuredRun


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare options and ini keys."""
    group = parser.getgroup("torchscale", "performance regressions (torchscale)")
    group.addoption(
        UPDATE,
        action="store_true",
        help="Write what is measured into the baseline instead of comparing with it.",
    )
    group.addoption(
        ADD,
        action="store_true",
        help="The same, and keep the earlier sessions: the noise between sessions is estimated from "
        "them.",
    )
    group.addoption(
        "--torchscale-baseline", metavar="FILE", help=f"Baseline file. Default: {BASELINE}"
    )
    group.addoption(
        "--torchscale-threshold", metavar="SHARE", help="Smaller changes pass: 10%% or 0.1."
    )
    group.addoption(
        ACCEPT,
        action="store_true",
        help="Write and judge measurements during which other processes took cores, too.",
    )
    parser.addini(
        "torchscale_baseline", f"Baseline file of the fixture torchscale. Default: {BASELINE}"
    )
    parser.addini("torchscale_threshold", "Changes up to this share pass: 10% or 0.1.")


def pytest_configure(config: pytest.Config) -> None:
    """Keep what this session measures."""
    config.stash[_RUN] = MeasuredRun(config)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the baseline once, with everything that was measured. Where it cannot be written the
    session fails, after its summary."""
    run = session.config.stash[_RUN]
    try:
        run.write()
    except pytest.UsageError as error:
        if not session.config.pluginmanager.has_plugin("terminalreporter"):
            raise
        run.not_written = str(error)
        session.exitstatus = pytest.ExitCode.USAGE_ERROR


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """One line for each measurement, and why the baseline could not be written."""
    run = config.stash[_RUN]
    if run.lines or run.not_written:
        terminalreporter.section("torchscale")
    for line in run.lines:
        terminalreporter.write_line(line)
    if run.not_written:
        terminalreporter.write_line(f"ERROR: no baseline was written: {run.not_written}", red=True)


@pytest.fixture(name="torchscale")
def torchscale_fixture(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Measure:
    """Measure a function, or a config, and fail where it is slower than the committed baseline::

    def test_speed(torchscale):
        torchscale(lambda: parse(TEXT))
    """
    return Measure(request.node.nodeid, request.config.stash[_RUN], tmp_path_factory)


_RUN = pytest.StashKey[MeasuredRun]()
