"""Run pytest; where CI asks for it, run tests that fail once more, each alone in a process.

::

    python scripts/once_more.py -n 3 tests        # as pytest -n 3 tests

Where ``TORCHSCALE_ONCE_MORE`` names a file, as in ``.ci/run``, what passes alone is added to that
file, a line each, and fails nothing: it is to be mended, and lets others work meanwhile. What fails
twice fails the run. So does whatever is not the failure of a test: a file that cannot be collected, a
worker that crashes, an interruption, more failures than chance explains.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

VARIABLE = "TORCHSCALE_ONCE_MORE"
MOST = 10
"""Failures of one run that may be chance."""
ALONE_SECONDS = 600.0
"""Time limit for one test, twice the one that pytest gives it."""
_CRASHED = "???"
"""What xdist calls the phase of a test whose worker crashed."""


class Failures:
    """What fails in a run: a plugin of pytest."""

    def __init__(self) -> None:
        self.tests: dict[str, None] = {}
        self.others: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test has ended."""
        if report.outcome != "failed":
            return
        if report.when == _CRASHED:
            self.others.append(f"a worker crashed in {report.nodeid}")
        self.tests[report.nodeid] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file was collected."""
        if report.outcome == "failed":
            self.others.append(f"{report.nodeid} was not collected")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        """A worker of xdist has ended."""
        del node
        if error:
            self.others.append(f"a worker ended: {error}")


def main(arguments: Sequence[str]) -> int:
    """Exit code of pytest, or 0 where all that failed passes alone."""
    failures = Failures()
    status = int(pytest.main(list(arguments), plugins=[failures]))
    flaky_file = os.environ.get(VARIABLE, "")
    if status != pytest.ExitCode.TESTS_FAILED or not flaky_file:
        return status
    tests = list(failures.tests)
    if failures.others or not 0 < len(tests) <= MOST:
        for text in failures.others or [f"{len(tests)} tests failed: that is no chance"]:
            sys.stdout.write(f"not run once more: {text}\n")
        return status
    passed = [test for test in tests if passes_alone(test)]
    with Path(flaky_file).open("a", encoding="utf-8") as file:
        file.writelines(f"{test} (Python {sys.version.split()[0]})\n" for test in passed)
    for test in tests:
        sys.stdout.write(f"{'FLAKY' if test in passed else 'FAILED TWICE'} {test}\n")
    return status if len(passed) < len(tests) else 0


def passes_alone(test: str) -> bool:
    """Whether a test passes in a process of its own."""
    sys.stdout.write(f"once more, alone: {test}\n")
    sys.stdout.flush()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    try:
        return subprocess.run(command, check=False, timeout=ALONE_SECONDS).returncode == 0
    except subprocess.TimeoutExpired:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
