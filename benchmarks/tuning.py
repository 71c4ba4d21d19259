"""``torchscale tune`` against an exhaustive search of the same space, for three small models.

::

    python benchmarks/tuning.py                              # results in results/tuning
    python benchmarks/tuning.py --model mlp --directory /tmp/t
    python benchmarks/tuning.py --rounds 5 --pairs 12        # as many rounds as a race, closer intervals

Each space has four axes. The search runs with a budget that it does not reach. The exhaustive
search launches every combination three times (``--rounds``), interleaved, and takes the one with
the highest geometric mean. Its launches are as long as those of the search. Then the two choices
run in alternating launches: means of few launches flatter the best of many, these do not. Printed:
the verified gain, how far the choice is behind, and the time of the search as a share of the
exhaustive one. Both can be continued after an interruption: launches stay in the directory.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from torchscale.config.choices import TuningAxis  # noqa: E402
from torchscale.config.experiment import Experiment  # noqa: E402
from torchscale.config.load import load_experiment_from  # noqa: E402
from torchscale.features.decide.tune.gains import paired_gain  # noqa: E402 - of this checkout
from torchscale.features.decide.tune.launcher import SettingLauncher  # noqa: E402
from torchscale.features.decide.tune.run import TuneOptions, tune  # noqa: E402
from torchscale.features.decide.tune.settings import SettingChange, candidates  # noqa: E402
from torchscale.features.decide.tune.surface import START, AxisChange, Setting  # noqa: E402
from torchscale.features.decide.tune.tuned_cell import for_tuning  # noqa: E402
from torchscale.measure.context import measuring, plan_run  # noqa: E402
from torchscale.observer import SILENT  # noqa: E402


@dataclass(frozen=True)
class Space:
    """A config to start from, and the axes that are searched."""

    config: dict[str, Any]
    axes: tuple[TuningAxis, ...]


def space(
    model: str,
    axes: Sequence[TuningAxis],
    *,
    ranks: int = 1,
    training: dict[str, str] | None = None,
) -> Space:
    """Of a model of ``family_models.py`` on ranks of one thread each."""
    config = {
        "experiment_name": model,
        "models": [f"family_models:{model}"],
        "batch_sizes": [16],
        "gpu_counts": [ranks],
        "device": "cpu",
        "launch": {"threads_per_rank": 1, "env": {"PYTHONPATH": str(HERE)}},
        "telemetry": {"enabled": False},
        "training": training or {},
    }
    return Space(config, tuple(axes))


SPACES = {
    "mlp": space(
        "mlp",
        (TuningAxis.FUSED, TuningAxis.PRECISION, TuningAxis.BUCKET, TuningAxis.COMM_HOOK),
        ranks=2,
    ),
    "convolutions": space(
        "convolutions",
        (TuningAxis.FUSED, TuningAxis.CHANNELS_LAST, TuningAxis.PRECISION, TuningAxis.BUCKET),
        ranks=2,
    ),
    "transformer": space(
        "transformer",
        (TuningAxis.FUSED, TuningAxis.CHECKPOINTING, TuningAxis.PRECISION, TuningAxis.BATCH),
        training={"activation_checkpointing": "full"},
    ),
}


def main() -> None:
    """Print a line for each model, and write all figures as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=list(SPACES), action="append")
    parser.add_argument("--directory", type=Path, default=Path("results/tuning"))
    parser.add_argument("--launch-seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3, help="launches of each combination")
    parser.add_argument(
        "--pairs", type=int, default=8, help="alternating launches of the two choices"
    )
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    results = {}
    for model in arguments.model or SPACES:
        directory = arguments.directory / model
        results[model] = compared(SPACES[model], directory, arguments)
        print(f"{model}: {json.dumps(results[model])}", flush=True)
    (arguments.directory / "tuning.json").write_text(json.dumps(results, indent=1))


def compared(asked: Space, directory: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Both searches and the comparison of what they chose."""
    launch_seconds: float = arguments.launch_seconds
    experiment = load_experiment_from(asked.config)
    options = TuneOptions(
        asked.axes, budget_seconds=7200, allow_numerics=True, launch_seconds=launch_seconds
    )
    directory.mkdir(parents=True, exist_ok=True)
    outcome = tune(
        experiment, options, config=directory / "tuned.yaml", output_dir=directory / "tune"
    )
    if outcome.interrupted:
        raise KeyboardInterrupt
    result = outcome.export()
    chosen = outcome.search.winner if result.better else START
    best, combinations, exhaustive_seconds, behind = _exhaustive(
        experiment, asked.axes, directory / "all", chosen, arguments
    )
    return {
        "chosen": _text(chosen),
        "verified": None if result.verified is None else result.verified.model_dump(),
        "skipped": result.skipped,
        "best_of_all": _text(best),
        "combinations": combinations,
        "behind": behind,
        "search_seconds": round(result.seconds, 1),
        "exhaustive_seconds": round(exhaustive_seconds, 1),
        "share_of_time": round(result.seconds / exhaustive_seconds, 3),
    }


def _exhaustive(
    experiment: Experiment,
    axes: Sequence[TuningAxis],
    directory: Path,
    chosen: Setting,
    arguments: argparse.Namespace,
) -> tuple[Setting, int, float, dict[str, float] | None]:
    """The best combination, how many there are, what they took, and how far ``chosen`` is behind
    the best."""
    planned = plan_run(for_tuning(experiment, arguments.launch_seconds), SILENT)
    known: dict[AxisChange, SettingChange] = {}
    values: list[list[Setting]] = []
    for axis in axes:
        found = candidates(
            planned.experiment, axis, planned.plan.device, len(planned.machine.cores)
        )
        changes = {AxisChange(one.axis.value, one.value): one for one in found}
        known |= changes
        values.append([START, *((change,) for change in changes)])
    settings = [tuple(sorted(itertools.chain(*parts))) for parts in itertools.product(*values)]
    logs: dict[Setting, list[float]] = {setting: [] for setting in settings}
    spent = 0.0
    with measuring(directory) as stop:
        launches = SettingLauncher(planned, directory, known, SILENT)
        with launches.launcher(stop) as launcher:
            for number in range(arguments.rounds):
                for setting in settings if number % 2 == 0 else settings[::-1]:
                    measured = launches.measure(setting, launcher)
                    if stop.asked:
                        raise KeyboardInterrupt
                    spent += measured.seconds
                    if measured.log is not None:
                        logs[setting].append(measured.log)
            means = {
                setting: statistics.fmean(values) for setting, values in logs.items() if values
            }
            best = max(means, key=lambda setting: means[setting])
            if best == chosen:
                return best, len(settings), spent, None
            both = []
            for number in range(arguments.pairs):
                order = (chosen, best) if number % 2 == 0 else (best, chosen)
                measured_logs = {
                    setting: launches.measure(setting, launcher).log for setting in order
                }
                mine, theirs = measured_logs[chosen], measured_logs[best]
                if mine is not None and theirs is not None:
                    both.append((mine, theirs))
    gain = paired_gain(both)
    if gain is None:
        return best, len(settings), spent, None
    low, high = gain.interval()
    behind = {
        "behind": round(-math.expm1(gain.log), 4),
        "low": round(1 - high, 4),
        "high": round(1 - low, 4),
    }
    return best, len(settings), spent, behind


def _text(setting: Setting) -> str:
    return " ".join(f"{change.axis}={change.value}" for change in setting) or "start"


if __name__ == "__main__":
    main()
