"""``torchscale tune --search strategy`` against an exhaustive search of the same strategies, for
three small models on four gloo ranks.

::

    python benchmarks/strategies.py                           # results in results/strategies
    python benchmarks/strategies.py --model decoder --directory /tmp/s

The search runs with a budget that it does not reach. The exhaustive search launches every strategy
that can run three times (``--rounds``), interleaved, and takes the one with the highest geometric
mean. Its launches are as long as those of the search. Where both chose differently, the two choices
then run in alternating launches (``--pairs``): means of few launches flatter the best of many, these
do not. Printed: both choices, how far that of the search is behind, and the launches of both. Both
can be continued after an interruption: launches stay in the directory.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from torchscale.config.choices import TuningAxis  # noqa: E402
from torchscale.config.experiment import Experiment  # noqa: E402
from torchscale.config.load import load_experiment_from  # noqa: E402
from torchscale.features.decide.tune.gains import paired_gain  # noqa: E402 - of this checkout
from torchscale.features.decide.tune.launcher import SettingLauncher  # noqa: E402
from torchscale.features.decide.tune.outcome import TuneOutcome  # noqa: E402
from torchscale.features.decide.tune.run import TuneOptions, tune  # noqa: E402
from torchscale.features.decide.tune.space import Entry, StrategySpace  # noqa: E402
from torchscale.features.decide.tune.surface import START, AxisChange, Setting  # noqa: E402
from torchscale.features.decide.tune.tuned_cell import for_tuning  # noqa: E402
from torchscale.measure.context import measuring, plan_run  # noqa: E402
from torchscale.observer import SILENT  # noqa: E402

RANKS = 4
MODELS: dict[str, dict[str, Any]] = {
    "mlp": {"models": ["split_mlp:build"], "batch_sizes": [8]},
    "decoder": {"models": ["tiny-decoder"], "batch_sizes": [2]},
    "moe": {"models": ["tiny-moe"], "batch_sizes": [2]},
}
HEADINGS = ("model", "strategies", "search", "exhaustive", "behind (95 %)", "launches", "share")


def main() -> None:
    """Print a line for each model, and write all figures as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=list(MODELS), action="append")
    parser.add_argument("--directory", type=Path, default=Path("results/strategies"))
    parser.add_argument("--launch-seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3, help="launches of each strategy")
    parser.add_argument(
        "--pairs", type=int, default=6, help="alternating launches of the two choices"
    )
    arguments = parser.parse_args()
    results = {}
    print(" | ".join(HEADINGS), flush=True)
    for model in arguments.model or MODELS:
        directory = arguments.directory / model
        directory.mkdir(parents=True, exist_ok=True)
        results[model] = compared(model, directory, arguments)
        print(_line(model, results[model]), flush=True)
    (arguments.directory / "strategies.json").write_text(json.dumps(results, indent=1))


def compared(model: str, directory: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Both searches, and the comparison of what they chose."""
    launch_seconds: float = arguments.launch_seconds
    experiment = load_experiment_from(
        {
            "experiment_name": model,
            "gpu_counts": [RANKS],
            "device": "cpu",
            "launch": {
                "threads_per_rank": 1,
                "oversubscribe": True,
                "env": {"PYTHONPATH": str(HERE)},
            },
            "telemetry": {"enabled": False},
            **MODELS[model],
        }
    )
    options = TuneOptions(
        (TuningAxis.STRATEGY,), budget_seconds=7200, launch_seconds=launch_seconds
    )
    outcome = tune(
        experiment, options, config=directory / "tuned.yaml", output_dir=directory / "tune"
    )
    if outcome.interrupted or outcome.space is None:
        raise KeyboardInterrupt
    chosen = outcome.space.entry_of(outcome.search.choice)
    every = Exhaustive(experiment, outcome, directory / "all", arguments)
    best, behind = every.best_and_behind(chosen)
    launches = sum(trial.launches for trial in outcome.search.trials.values())
    return {
        "chosen": chosen.choice.label,
        "best_of_all": best.choice.label,
        "behind": behind,
        "strategies": len(outcome.space.runnable),
        "launches": launches,
        "exhaustive_launches": arguments.rounds * len(outcome.space.runnable),
        "tuning": outcome.export().model_dump(mode="json"),
        "samples_per_second": every.rates,
    }


class Exhaustive:
    """Every strategy that can run, as often as every other.

    Attributes:
        rates: Strategy → samples per second, the geometric mean over launches.
    """

    def __init__(
        self,
        experiment: Experiment,
        outcome: TuneOutcome,
        directory: Path,
        arguments: argparse.Namespace,
    ) -> None:
        space = outcome.space
        assert space is not None
        self._space, self._outcome, self._directory = space, outcome, directory
        self._rounds, self._pairs = arguments.rounds, arguments.pairs
        self._planned = plan_run(for_tuning(experiment, arguments.launch_seconds), SILENT)
        self.rates: dict[str, float] = {}

    def best_and_behind(self, chosen: Entry) -> tuple[Entry, dict[str, float] | None]:
        """The strategy of the highest mean, and how far ``chosen`` is behind it in launches of both
        by turns; ``None`` where it is the same."""
        known = {AxisChange(one.axis.value, one.value): one for one in self._space.candidates}
        with measuring(self._directory) as stop:
            launches = SettingLauncher(self._planned, self._directory, known, SILENT)
            with launches.launcher(stop) as launcher:

                def log_of(entry: Entry) -> float | None:
                    measured = launches.measure(_setting(entry, self._space), launcher)
                    if stop.asked:
                        raise KeyboardInterrupt
                    return measured.log

                best = self._best(log_of)
                if best == chosen:
                    return best, None
                pairs = []
                for number in range(self._pairs):
                    order = (chosen, best) if number % 2 == 0 else (best, chosen)
                    logs = {entry.choice.label: log_of(entry) for entry in order}
                    mine, theirs = logs[chosen.choice.label], logs[best.choice.label]
                    if mine is not None and theirs is not None:
                        pairs.append((mine, theirs))
        gain = paired_gain(pairs)
        if gain is None:
            return best, None
        low, high = gain.interval()
        return best, {
            "behind": round(-math.expm1(gain.log), 4),
            "low": round(1 - high, 4),
            "high": round(1 - low, 4),
        }

    def _best(self, log_of: Any) -> Entry:  # noqa: ANN401 - a function of an entry
        entries = self._space.runnable
        logs: dict[str, list[float]] = {entry.choice.label: [] for entry in entries}
        for number in range(self._rounds):
            for entry in entries if number % 2 == 0 else entries[::-1]:
                log = log_of(entry)
                if log is not None:
                    logs[entry.choice.label].append(log)
        means = {label: statistics.fmean(values) for label, values in logs.items() if values}
        self.rates = {label: round(math.exp(mean), 2) for label, mean in means.items()}
        highest = max(means, key=lambda label: means[label])
        return next(entry for entry in entries if entry.choice.label == highest)


def _setting(entry: Entry, space: StrategySpace) -> Setting:
    if entry == space.start:
        return START
    return (entry.change,)


def _line(model: str, result: dict[str, Any]) -> str:
    behind = result["behind"]
    text = "the same choice"
    if behind is not None:
        text = (
            f"{100 * behind['behind']:.1f} % "
            f"({100 * behind['low']:.1f} to {100 * behind['high']:.1f})"
        )
    share = result["launches"] / result["exhaustive_launches"]
    return " | ".join(
        (
            model,
            str(result["strategies"]),
            result["chosen"],
            result["best_of_all"],
            text,
            f"{result['launches']} ({result['exhaustive_launches']})",
            f"{share:.2f}",
        )
    )


if __name__ == "__main__":
    main()
