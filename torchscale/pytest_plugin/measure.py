"""The value of the fixture: measures a function or a config, and fails on a regression."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from torchscale.pytest_plugin.session import ACCEPT, MeasuredRun

if TYPE_CHECKING:
    from torchscale.pytest_plugin.timing import TimingSession
    from torchscale.run_results import Results


class Measure:
    """The fixture's value: call it with a function, or :meth:`config` with a config."""

    def __init__(self, test: str, run: MeasuredRun, places: pytest.TempPathFactory) -> None:
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
        if self._run.update:
            if session.is_contended and not self._run.accept_contended:
                session = self._timed(function, rounds, round_seconds, synchronize)
            if session.is_contended and not self._run.accept_contended:
                why = f"{timing.format_contention(session)}, measured twice"
                pytest.fail(
                    f"not written, {why}: quiet the machine, or add {ACCEPT}", pytrace=False
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
            if not self._run.update:
                baselines.read(baseline, kept)
            outcome = benchmark(load_experiment(Path(config)), output_dir=place)
            if outcome.interrupted:
                raise KeyboardInterrupt
            if self._run.update:
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
