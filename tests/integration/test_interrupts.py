"""Ctrl-C at many moments of the commands that take a while: it ends soon, says nothing of Python,
and leaves no process and no half file."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.campaign import WHOLE, cases, tell_fault
from tests.store.test_run_folder import measured

from .conftest import Program

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.real]

ENDED_SECONDS = 20.0
MOMENTS = 12 if WHOLE else 2
BEFORE_ANY_CODE_OF_OURS = ("init_import_site", "in _get_module_details")
"""Python says one of them of a Ctrl-C while it starts and looks for the program."""
MODEL = ("--model", "tiny-decoder", "--batch-size", "2", "--gpus", "2", "--device", "cpu")
LONG = 9.0
"""Seconds over which the moments are spread: past the start of ranks, into what they measure."""
SHORT = 1.5
REFUSED = 3
"""What ``predict`` ends with where it was faster than Ctrl-C: the run has one count."""


def check_files(directory: Path) -> None:
    """Whatever was written is whole."""
    for path in directory.rglob("*.json"):
        json.loads(path.read_bytes())
    for path in directory.rglob("out.html"):
        assert path.read_text().rstrip().endswith("</html>")
    assert list(directory.rglob("*.tmp")) == []


@pytest.mark.parametrize(
    ("arguments", "seconds"),
    cases(
        [(("tune", *MODEL, "--search", "bucket,workers"), LONG)],
        [
            (("measure", "collectives", "--gpus", "2", "--device", "cpu"), LONG),
            (("measure", "hardware", "--device", "cpu"), LONG),
            (("measure", "memory", *MODEL), LONG),
            (("profile", *MODEL, "--max-steps", "400"), LONG),
            (("export", "--to", "parquet", "results/run", "-o", "tables"), SHORT),
            (("report", "results/run", "-o", "out.html"), SHORT),
            (
                ("compare", "results/run", "results/run", "--accept", "unclear", "-o", "out.html"),
                SHORT,
            ),
            (("history", "results/run", "--html", "out.html", "--db", "out.sqlite"), SHORT),
            (("predict", "--source", "results/run", "--gpus", "4", "-o", "out.html"), SHORT),
        ],
    ),
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_ctrl_c_at_many_moments(
    program: Program,
    arguments: tuple[str, ...],
    seconds: float,
    record_property: Callable[[str, object], None],
) -> None:
    measured(program.directory / "results" / "run")
    codes: Counter[int] = Counter()
    longest = 0.0
    for moment in range(MOMENTS):
        process = program.start(*arguments)
        try:
            time.sleep(seconds * (moment + 0.5) / MOMENTS)
            process.send_signal(signal.SIGINT)
            pressed = time.monotonic()
            output, _ = process.communicate(timeout=ENDED_SECONDS)
        finally:
            process.kill()
        if not any(said in output for said in BEFORE_ANY_CODE_OF_OURS):
            by_itself = REFUSED if arguments[0] == "predict" else 0
            assert process.returncode in (by_itself, 130, -signal.SIGINT), output
            assert "Traceback" not in output
        longest = max(longest, time.monotonic() - pressed)
        codes[process.returncode] += 1
        assert program.leftovers() == []
        check_files(program.directory)
    seen = ", ".join(f"exit {code}: {count}" for code, count in sorted(codes.items()))
    tell_fault(
        record_property,
        f"Ctrl-C during `{arguments[0]}`",
        f"SIGINT at {MOMENTS} moments of {seconds:g} s",
        "exit 130, nothing left",
        f"{seen}; ended within {longest:.1f} s",
    )
    assert codes[130] > 0
