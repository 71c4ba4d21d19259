"""Autopsies of a foreign job on real ranks, with py-spy and without it: what is named is what was
done to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchscale.features.watch.hang import py_spy
from torchscale.features.watch.hang.explain import explain_hang
from torchscale.features.watch.hang.running_job import inspect_job
from torchscale.schema.launch.hang import HangCause
from torchscale.schema.profiles.finding import Confidence

pytestmark = pytest.mark.slow

PLACEHOLDER = "-"
"""In the environment of the process that forks ranks, for which a rank writes a digit of its
own."""
SETTLE_SECONDS = 1.5
"""From the fault until the other ranks wait: a step takes a millisecond."""
SIZES = {"uneven": 4, "most": 3}
"""Ranks of a case; the others have two. Rank 1 is the odd one."""
MISSING, LEFT, STOPPED, UNKNOWN = (
    HangCause.RANK_MISSING,
    HangCause.TEARDOWN,
    HangCause.RANK_STOPPED,
    HangCause.UNKNOWN,
)
WITH_STACKS = {
    "busy": (MISSING, Confidence.MEDIUM),
    "busy_backward": (MISSING, Confidence.MEDIUM),
    "sleep": (MISSING, Confidence.LOW),
    "lock": (MISSING, Confidence.LOW),
    "stop": (STOPPED, Confidence.HIGH),
    "uneven": (LEFT, Confidence.MEDIUM),
    "inline": (LEFT, Confidence.MEDIUM),
    "most": (MISSING, Confidence.MEDIUM),
    "epochs": (UNKNOWN, Confidence.LOW),
}
WITHOUT_STACKS = {
    **dict.fromkeys(WITH_STACKS, (UNKNOWN, Confidence.LOW)),
    "busy": (MISSING, Confidence.LOW),
    "busy_backward": (MISSING, Confidence.LOW),
    "stop": (STOPPED, Confidence.HIGH),
}


class Ranks:
    """The process that forks ranks."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("hanging_ranks.py")
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
        environment = {**os.environ, **dict.fromkeys(names, PLACEHOLDER), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(script)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.fault = ""

    def hang(self, fault: str) -> None:
        """Let ranks hang for this, unless they do already."""
        if fault == self.fault:
            return
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{fault} {SIZES.get(fault, 2)} 1\n")
        self.process.stdin.flush()
        told = 2 if fault == "most" else 1
        for _ in range(told):
            assert self.process.stdout.readline() == f"{fault}\n"
        self.fault = fault
        time.sleep(SETTLE_SECONDS)

    def end(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    found = Ranks()
    yield found
    found.end()


@pytest.mark.parametrize("stacks", [True, False], ids=["with stacks", "without"])
@pytest.mark.parametrize("fault", WITH_STACKS)
def test_what_is_named_is_what_was_done(
    ranks: Ranks, fault: str, stacks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stacks and not py_spy.has_py_spy():
        pytest.skip("py-spy is not installed")
    if not stacks:
        monkeypatch.setattr(py_spy, "installed_program", lambda name: None)
    ranks.hang(fault)
    verdict = explain_hang(*inspect_job(ranks.process.pid))
    cause, confidence = (WITH_STACKS if stacks else WITHOUT_STACKS)[fault]
    named = () if cause is UNKNOWN else (1,)
    assert (verdict.cause, verdict.ranks, verdict.confidence) == (cause, named, confidence), verdict
