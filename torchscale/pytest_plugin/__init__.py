"""The pytest plugin: a fixture ``torchscale`` that measures a function or a config and fails on a
regression.

pytest loads this module in every run of every project that has torchscale installed: it imports
nothing but pytest until the fixture is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from torchscale.pytest_plugin.timing import TimeChange, TimingSession
    from torchscale.run_results import Results

_UPDATE = "--torchscale-update-baseline"
_ACCEPT = "--torchscale-accept-contended"
_BASELINE = "baselines/pytest.json"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare options and ini keys."""
    group = parser.getgroup("torchscale", "performance regressions (torchscale)")
    group.addoption(
        _UPDATE,
        nargs="?",
        const="replace",
        choices=("replace", "add"),
        metavar="replace|add",
        help="Write what is measured into the baseline instead of comparing with it. add keeps "
        "earlier sessions: the noise between sessions is estimated from them.",
    )
    group.addoption(
        "--torchscale-baseline", metavar="FILE", help=f"Baseline file. Default: {_BASELINE}"
    )
    group.addoption(
        "--torchscale-threshold", metavar="SHARE", help="Smaller changes pass: 10%% or 0.1."
    )
    group.addoption(
        _ACCEPT,
        action="store_true",
        help="Write and judge measurements during which other processes took cores, too.",
    )
    parser.addini(
        "torchscale_baseline", f"Baseline file of the fixture torchscale. Default: {_BASELINE}"
    )
    parser.addini("torchscale_threshold", "Changes up to this share pass: 10% or 0.1.")


def pytest_configure(config: pytest.Config) -> None:
    """Keep what this session measures."""
    config.stash[_RUN] = _Run(config)


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


class Measure:
    """The fixture's value: call it with a function, or :meth:`config` with a config."""

    def __init__(self, test: str, run: _Run, places: pytest.TempPathFactory) -> None:
        self._test, self._run, self._places = test, run, places

    def __call__(
        self,
        function: Callable[[], object],
        *,
        name: str = "",
        threshold: float | str | None = None,
        rounds: int | None = None,
        round_seconds: float | None = None,
        synchronize: Callable[[], object] | None = None,
    ) -> TimingSession:
        """Time a function of no arguments and compare it with the baseline. A slower result is
        measured again, and fails the test if it is slower again. Where other processes took cores
        meanwhile nothing is decided, and the test is skipped.

        Args:
            function: What is measured.
            name: Tells several measurements of one test apart.
            threshold: Changes up to this share pass, in place of the option's.
            rounds, round_seconds: How many rounds, and how long each lasts at least; by default 20
                of 20 ms.
            synchronize: Called at the end of each round: ``torch.cuda.synchronize`` for work on a
                GPU.

        Returns:
            The times of the last measurement.
        """
        __tracebackhide__ = True
        from torchscale.pytest_plugin import timing  # noqa: PLC0415 - loads numpy, and only here
        from torchscale.util.text import one_line  # noqa: PLC0415

        self._run.refuse_neighbours()
        key = self._test
        if name:
            key += f"[{one_line(str(name))}]"
        if key in self._run.measured:
            pytest.fail(f"{key} is measured twice: give each measurement a name=…", pytrace=False)
        session = self._timed(function, rounds, round_seconds, synchronize)
        if self._run.update is not None:
            if session.is_contended and not self._run.accept_contended:
                session = self._timed(function, rounds, round_seconds, synchronize)
            if session.is_contended and not self._run.accept_contended:
                why = f"{timing.format_contention(session)}, measured twice"
                pytest.fail(
                    f"not written, {why}: quiet the machine, or add {_ACCEPT}", pytrace=False
                )
            self._run.measured[key] = session
            self._run.lines.append(
                f"{key}: {timing.describe_session(session)}: written to the baseline"
            )
            return session
        self._run.measured[key] = session
        share = self._run.threshold(threshold)
        baseline = self._run.baseline(key)
        change = self._run.compared(session, baseline, share)
        if change.is_slower:
            session = self._timed(function, rounds, round_seconds, synchronize)
            change = self._run.compared(session, baseline, share)
        self._run.lines.append(f"{key}: {timing.describe_session(session)}: {change.describe()}")
        if change.is_slower and session.is_contended and not self._run.accept_contended:
            pytest.skip(
                f"unclear, {timing.format_contention(session)}, measured twice: {change.describe()}"
            )
        if change.is_slower:
            pytest.fail(
                f"slower than the baseline, measured twice: {change.describe()}", pytrace=False
            )
        return session

    def config(
        self, config: str | Path, *, baseline: str, threshold: float | str = "2%"
    ) -> Results:
        """Measure a config as ``torchscale benchmark`` does, and compare it with a baseline as
        ``torchscale compare`` does: three launches or more of each cell (``benchmark.repeats``)
        give verdicts.

        Args:
            config: A config file.
            baseline: Name of the baseline, a file beside that of functions: ``main`` is
                ``baselines/main.json``.
            threshold: Changes up to this share pass.
        """
        __tracebackhide__ = True
        from torchscale.config.choices import FailOn  # noqa: PLC0415 - only here
        from torchscale.config.load import load_experiment  # noqa: PLC0415
        from torchscale.errors import TorchscaleError  # noqa: PLC0415
        from torchscale.features.compare import baselines, compare  # noqa: PLC0415
        from torchscale.features.compare.gate import gate  # noqa: PLC0415
        from torchscale.measure.benchmark import benchmark  # noqa: PLC0415
        from torchscale.run_results import load_results  # noqa: PLC0415

        self._run.refuse_neighbours()
        place = self._places.mktemp("torchscale") / Path(config).stem
        kept = self._run.path.parent
        rules = compare.Rules(self._run.threshold(threshold))
        failure, report = "", None
        try:
            path = baselines.path(
                baseline, kept
            )  # what is wrong with it is said before minutes are spent
            if self._run.update is None:
                baselines.read(baseline, kept)
            outcome = benchmark(load_experiment(Path(config)), output_dir=place)
            if outcome.interrupted:
                raise KeyboardInterrupt
            if self._run.update is not None:
                baselines.save(baseline, str(place), baselines=kept, replace=True)
                self._run.lines.append(
                    f"{self._test}: {config}: written to the baseline {baseline}"
                )
                return load_results(place)
            report = compare.compare_sources([str(path), str(place)], rules, baselines=kept)
        except TorchscaleError as error:
            failure = f"{config}: {error.message}"
            if error.hint:
                failure += f"; {error.hint}"
        if report is None:  # outside of the handler, which pytest would show as well
            pytest.fail(failure, pytrace=False)
        gated = gate(report, FailOn.REGRESSION)
        self._run.lines += [f"{self._test}: {line}" for line in gated.messages]
        if gated.messages:
            pytest.fail("\n".join(gated.messages), pytrace=False)
        return load_results(place)

    def _timed(
        self,
        function: Callable[[], object],
        rounds: int | None,
        round_seconds: float | None,
        synchronize: Callable[[], object] | None,
    ) -> TimingSession:
        __tracebackhide__ = True
        from torchscale.errors import UsageError  # noqa: PLC0415 - only here
        from torchscale.pytest_plugin import timing  # noqa: PLC0415

        try:
            return timing.time_function(
                function,
                rounds=timing.ROUNDS if rounds is None else rounds,
                round_seconds=timing.ROUND_SECONDS if round_seconds is None else round_seconds,
                synchronize=synchronize,
            )
        except UsageError as error:
            wrong = error.message
        pytest.fail(wrong, pytrace=False)


class _Run:
    """What one pytest session measures, and the baseline that it compares with."""

    def __init__(self, config: pytest.Config) -> None:
        self.measured: dict[str, TimingSession] = {}
        self.lines: list[str] = []
        self.not_written = ""
        self._pid = os.getpid()
        self.update: str | None = config.getoption(_UPDATE)
        self.accept_contended: bool = config.getoption(_ACCEPT)
        named = (
            config.getoption("--torchscale-baseline")
            or config.getini("torchscale_baseline")
            or _BASELINE
        )
        self.path = config.rootpath / str(named)
        self._threshold: str = config.getoption("--torchscale-threshold") or config.getini(
            "torchscale_threshold"
        )
        workers = [getattr(config.option, name, None) for name in ("numprocesses", "tx")]
        if self.update is not None and any(workers):
            raise pytest.UsageError(f"{_UPDATE} measures in one process: add -n 0")

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
        from torchscale.pytest_plugin.timing import read_times  # noqa: PLC0415

        wrong = f"{self.path} has no baseline of {key}: run pytest {_UPDATE} and commit it"
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
            wrong = f"{error.message}: run pytest {_UPDATE} on this one"
        pytest.fail(wrong, pytrace=False)

    def write(self) -> None:
        """Update the baseline file with what was measured, if that was asked for. Not in a fork of
        this process that a test has let return: it has measured the same.

        Raises:
            UsageError: of pytest: the file cannot be written.
        """
        if self.update is None or not self.measured or os.getpid() != self._pid:
            return
        from torchscale.errors import TorchscaleError  # noqa: PLC0415 - only where something was measured
        from torchscale.pytest_plugin.timing import update_times  # noqa: PLC0415

        try:
            update_times(self.path, self.measured, add=self.update == "add")
        except TorchscaleError as error:
            raise pytest.UsageError(error.message) from error


_RUN = pytest.StashKey[_Run]()
