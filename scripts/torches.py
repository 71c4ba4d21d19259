"""Run tests that a version of torch can break on other versions than that of .venv.

::

    python scripts/torches.py              # make torches; environments are kept in build/torches
    python scripts/torches.py 2.14.1       # these versions alone
    python scripts/torches.py newest       # the last of VERSIONS, as .ci/run does

Each has an environment of its own, with whatever build of torch pip offers: of most versions one for
CUDA, which runs on CPUs as well and takes 5 GB. One runs after the other; logs are in
build/torches.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from environments import ROOT, environment, project, requirements, run_tests

ENVIRONMENTS = ROOT / "build" / "torches"
VERSIONS = ("2.8.0", "2.10.0", "2.14.1")
"""The first with all of gloo's recorder, one between, and the newest."""
TESTS = (
    "tests/integration/test_watch.py",
    "tests/worker/launcher",
    "tests/worker/machine/test_collectives.py",
    "tests/worker/measure/test_exchanges.py",
    "tests/worker/parallel/test_ddp.py",
    "tests/worker/parallel/test_gradients.py",
    "tests/worker/profile",
    "tests/worker/test_compiler.py",
    "tests/worker/test_hang.py",
    "tests/worker/test_trainer.py",
    "tests/worker/watch",
)
"""What rests on private parts of torch, or on what changes between its versions: launches, the
collector, flight recorders, hangs, strategies, recordings, compiled models."""
_NEWEST = "newest"
_INSTALL_SECONDS = 900
_TEST_SECONDS = 600
_WORKERS = "3"


def tests_on(version: str, needed: list[str]) -> tuple[int, str]:
    """Exit code and the last lines of the tests with this version."""
    try:
        inside = environment(
            Path(sys.executable),
            ENVIRONMENTS / version,
            [f"torch=={version}", *needed, "-e", f"{ROOT}[train,nsys]"],
            (),
            seconds=_INSTALL_SECONDS,
        )
        arguments = ("-n", _WORKERS, "--dist", "loadscope", "-m", "not quiet", *TESTS)
        return run_tests(inside, arguments, ENVIRONMENTS / f"{version}.log", _TEST_SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        return 1, f"{error}\n{error.stdout or ''}\n{error.stderr or ''}"


def main() -> int:
    """Test on the versions that are named, else on all of ``VERSIONS``."""
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    needed, worst = requirements(project()), 0
    asked = [VERSIONS[-1] if name == _NEWEST else name for name in sys.argv[1:]]
    for version in asked or VERSIONS:
        began = time.monotonic()
        code, text = tests_on(version, needed)
        worst = max(worst, code)
        state = "passed" if code == 0 else "FAILED"
        seconds = time.monotonic() - began
        sys.stdout.write(f"torch {version}: {state} in {seconds:.0f} s\n{text}\n")
        sys.stdout.flush()
    return worst


if __name__ == "__main__":
    sys.exit(main())
