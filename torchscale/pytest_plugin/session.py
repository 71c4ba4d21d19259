"""What a session of pytest measures, and the baseline that it compares with."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from torchscale.pytest_plugin.timing import TimeChange, TimingSession


UPDATE = "--torchscale-update-baseline"
ADD = "--torchscale-add-to-baseline"
ACCEPT = "--torchscale-accept-contended"
BASELINE = "baselines/pytest.json"


class MeasuredRun:
    """What one pytest session measures, and the baseline that it compares with."""

    def __init__(self, config: pytest.Config) -> None:
        self.measured: dict[str, TimingSession] = {}
        self.lines: list[str] = []
        self.not_written = ""
        self._pid = os.getpid()
        self._add: bool = config.getoption(ADD)
        self.update: bool = config.getoption(UPDATE) or self._add
        self.accept_contended: bool = config.getoption(ACCEPT)
        named = (
            config.getoption("--torchscale-baseline")
            or config.getini("torchscale_baseline")
            or BASELINE
        )
        self.path = config.rootpath / str(named)
        self._threshold: str = config.getoption("--torchscale-threshold") or config.getini(
            "torchscale_threshold"
        )
        workers = [getattr(config.option, name, None) for name in ("numprocesses", "tx")]
        if self.update and any(workers):
            option = ADD if self._add else UPDATE
            raise pytest.UsageError(f"{option} measures in one process: add -n 0")

    def refuse_neighbours(self) -> None:
        """Skip in one of several workers of pytest-xdist: tests beside it take its cores."""
        if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1:
            pytest.skip("other workers disturb the times: run with -n 0")

    def threshold(self, given: float | str | None) -> float:
        """The share up to which changes pass."""
        from torchscale.pytest_plugin.timing import THRESHOLD  # noqa: PLC0415 - only where something is measured

        chosen = given if given is not None else self._threshold
        if chosen in ("", None):
            return THRESHOLD
        text = str(chosen).strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = -1.0
        if not 0 <= share < 1:
            pytest.fail(f"threshold {text}: expected a share such as 10% or 0.1", pytrace=False)
        return share

    def baseline(self, key: str) -> tuple[TimingSession, ...]:
        """The sessions of a test."""
        from torchscale.errors import UsageError  # noqa: PLC0415 - only where something is measured
        from torchscale.pytest_plugin.timing_baseline import read_times  # noqa: PLC0415

        wrong = f"{self.path} has no baseline of {key}: run pytest {UPDATE} and commit it"
        sessions: tuple[TimingSession, ...] = ()
        try:
            sessions = read_times(self.path).tests.get(key, ())
        except UsageError as error:
            wrong = error.message
        if not sessions:
            pytest.fail(wrong, pytrace=False)
        return sessions

    def compared(
        self, session: TimingSession, baseline: tuple[TimingSession, ...], threshold: float
    ) -> TimeChange:
        """The change; a baseline of another machine fails the test."""
        from torchscale.errors import UsageError  # noqa: PLC0415 - only where something is measured
        from torchscale.pytest_plugin.timing import compare_times  # noqa: PLC0415

        try:
            return compare_times(session, baseline, threshold)
        except UsageError as error:
            wrong = f"{error.message}: run pytest {UPDATE} on this one"
        pytest.fail(wrong, pytrace=False)

    def write(self) -> None:
        """Update the baseline file with what was measured, if that was asked for. Not in a fork of
        this process that a test has let return: it has measured the same.

        Raises:
            UsageError: of pytest: the file cannot be written.
        """
        if not self.update or not self.measured or os.getpid() != self._pid:
            return
        from torchscale.errors import TorchscaleError  # noqa: PLC0415 - only where something was measured
        from torchscale.pytest_plugin.timing_baseline import update_times  # noqa: PLC0415

        try:
            update_times(self.path, self.measured, add=self._add)
        except TorchscaleError as error:
            raise pytest.UsageError(error.message) from error
