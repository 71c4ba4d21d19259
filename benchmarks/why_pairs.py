"""Does ``torchscale compare --why`` name the part that was made slower, and its size? Real launches
of two gloo ranks, one injected difference a pair.

::

    PYTHONPATH=. python benchmarks/why_pairs.py --output results/why              # 60 pairs and 20 equal ones
    PYTHONPATH=. python benchmarks/why_pairs.py --output results/why --only link --rounds 2

A round measures pairs of every kind: two results directories with a cell for each pair, by the real
command and in turns, one launch of every cell at a time. No launch belongs to two pairs.
Interrupted, the same command goes on where it ended. The slower link is a rate limit on the loopback
interface of a network namespace of its own; it needs root and is left out without.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchscale.features.compare.analysis.compare import compare
from torchscale.features.compare.analysis.explanation import ExplainedCell, explain
from torchscale.features.compare.inputs import load_source
from torchscale.features.compare.text.why_rows import TimeUnit, step_rows
from torchscale.schema.run.step_parts import OutsidePart, StepPart

HERE = Path(__file__).resolve().parent
LAUNCHES = 4
FEWEST = 3
"""Launches of a side with which a round that was cut short is judged."""
STEPS = 40
SETTINGS = {
    "batch_sizes": [8],
    "gpu_counts": [2],
    "device": "cpu",
    "training": {"optimizer": "sgd"},
    "benchmark": {
        "preset": "quick",
        "warmup_steps": 10,
        "warmup_seconds": 0.3,
        "warmup_max_seconds": 1.0,
        "measure_steps": STEPS,
    },
    "launch": {"threads_per_rank": 1, "timeout_seconds": 120},
}
"""Two ranks, launches of a few seconds."""
LARGE = {"layers": 4, "width": 512}
"""4 MiB of gradients, in one bucket."""
MANY = {"layers": 100, "width": 64}
"""1.6 MiB of gradients in 200 tensors."""
RATES = ("4gbit", "300mbit")
"""Of the loopback interface, on both sides of a pair whose second link is slower."""
TOLERANCE = 0.2
"""Share by which the size may be off."""
ALLOWED = 0.05
"""Share of equal pairs in which a part may be clear."""


@dataclass(frozen=True)
class Scenario:
    """One kind of pair.

    Attributes:
        name: What the table calls it.
        injected: Into the second side.
        parts: What should be found → its size in seconds; ``None`` for all of the difference.
        outside: The same outside the steps.
        shape: Of the model, on both sides.
        rates: Of the loopback interface on both sides; ``None`` for the host's own.
    """

    name: str
    injected: dict[str, float]
    parts: dict[StepPart, float | None]
    outside: OutsidePart | None = None
    shape: tuple[tuple[str, int], ...] = tuple(LARGE.items())
    rates: tuple[str, str] | None = None


def slower(seconds: float) -> tuple[Scenario, ...]:
    """One pair of each kind of which the size is known."""
    size = f"+{seconds * 1e3:g} ms"
    return (
        Scenario(f"forward {size}", {"forward": seconds}, {StepPart.FORWARD: seconds}),
        Scenario(f"backward {size}", {"backward": seconds}, {StepPart.BACKWARD: seconds}),
        Scenario(
            f"rank 1 {size}", {"one_rank": seconds, "rank": 1}, {StepPart.SLOWER_RANKS: seconds}
        ),
        Scenario(f"loader {size}", {"loader": seconds}, {StepPart.DATA_WAIT: seconds}),
        Scenario(
            f"forward {size}, loader twice that",
            {"forward": seconds, "loader": 2 * seconds},
            {StepPart.DATA_WAIT: 2 * seconds, StepPart.FORWARD: seconds},
        ),
    )


BUCKETS = Scenario(
    "smaller buckets",
    {"bucket": 0.01},
    {StepPart.COMMUNICATION: None},
    shape=tuple(MANY.items()),
)
START = Scenario("start-up +2 s", {"start": 2.0}, {}, outside=OutsidePart.BUILD)
EQUAL = Scenario("none", {}, {})
SCENARIOS = (*slower(0.005), *slower(0.01), BUCKETS, START, EQUAL, EQUAL, EQUAL, EQUAL)
"""A round. Of steps of about 30 ms."""
LINK = Scenario("slower link", {}, {StepPart.COMMUNICATION: None}, rates=RATES)
LINK_ROUND = (LINK, LINK)


@dataclass(frozen=True)
class Outcome:
    """A pair that was judged."""

    scenario: Scenario
    named: bool
    sized: bool
    sums: bool
    clear: tuple[str, ...]
    disturbed: bool
    text: str

    @property
    def is_right(self) -> bool:
        """Part, size and sums."""
        return self.named and self.sized and self.sums


def measure(scenarios: Sequence[Scenario], directory: Path) -> None:
    """Both sides in turns, a launch of each cell at a time; launches that are there are kept."""
    directory.mkdir(parents=True, exist_ok=True)
    models = [{"name": "why_net:build", "pair": number} for number in range(len(scenarios))]
    (directory / "config.json").write_text(json.dumps({"models": models, **SETTINGS}))
    for launch, (place, name) in itertools.product(range(LAUNCHES), enumerate("ab")):
        injected = [dict(one.shape) | (one.injected if place else {}) for one in scenarios]
        variables = {
            **os.environ,
            "WHY_INJECTED": json.dumps(injected),
            "PYTHONPATH": os.pathsep.join((str(HERE), str(HERE.parent))),
        }
        command = [
            sys.executable, "-m", "torchscale", "benchmark", str(directory / "config.json"),
            "--output-dir", str(directory / name), f"--benchmark.repeats={launch + 1}",
        ]  # fmt: skip
        rates = scenarios[0].rates
        if rates is not None:
            command = in_namespace(command, rates[place])
        subprocess.run(command, env=variables, check=True, capture_output=True, timeout=1200)


def in_namespace(command: list[str], rate: str) -> list[str]:
    """The command where the loopback interface has this rate."""
    shaped = (
        f"ip link set lo up && tc qdisc add dev lo root tbf rate {rate} burst 256kb latency 400ms"
        ' && exec "$@"'
    )
    return ["unshare", "--net", "sh", "-c", shaped, "sh", *command]


def can_shape() -> bool:
    """Whether the slower link can be made here."""
    return os.geteuid() == 0 and all(map(shutil.which, ("unshare", "ip", "tc")))


def judged(scenarios: Sequence[Scenario], directory: Path, *, accept_flags: bool) -> list[Outcome]:
    """Every pair of a round; ``accept_flags`` as of the command.

    Raises:
        SystemExit: a pair has no figures.
    """
    sides = [load_source(str(directory / name)) for name in "ab"]
    explained = explain(compare(sides[0], sides[1], accept_flags=accept_flags))
    by_pair = {_pair(cell): cell for cell in explained.cells}
    missing = set(range(len(scenarios))) - set(by_pair)
    if missing:
        raise SystemExit(f"{directory}: nothing to explain in pairs {sorted(missing)}")
    return [judge(one, by_pair[number]) for number, one in enumerate(scenarios)]


def _pair(cell: ExplainedCell) -> int:
    options = cell.why.cell.cell.cell.model_dump()["model_options"]
    return int(options["pair"])


def judge(scenario: Scenario, cell: ExplainedCell) -> Outcome:
    """Whether the right parts are clear, as the largest ones; their size; and the sums."""
    why = cell.why
    clear = {part.name: part.seconds for part in why.clear}
    outside = {part.name: part.seconds for part in why.outside_parts if part.is_clear}
    whole = why.step.seconds
    wanted = list(scenario.parts)  # the largest first, as ``clear`` is
    named = list(clear)[: len(wanted)] == wanted
    if scenario.outside is not None:
        named = scenario.outside in outside and not clear
    if not scenario.injected and scenario.rates is None:
        named = not clear
    if "one_rank" in scenario.injected:
        named = named and [one.name for one in why.ranks if one.is_clear] == [1]
    found = [
        clear[name] / (whole if size is None else size)
        for name, size in scenario.parts.items()
        if named
    ]
    if scenario.outside is not None and named:
        found.append(outside[scenario.outside] / scenario.injected["start"])
    texts = [f"{name.value} {seconds * 1e3:+.2f} ms" for name, seconds in clear.items()]
    texts += [f"{name.value} {seconds:+.2f} s" for name, seconds in outside.items()]
    conditions = ", ".join(why.disturbance.conditions)
    return Outcome(
        scenario,
        named,
        named and all(abs(share - 1) <= TOLERANCE for share in found),
        sums(cell),
        tuple(name.value for name in clear),
        bool(conditions),
        f"{', '.join(texts) or 'nothing'}; step {whole * 1e3:+.2f} ms"
        + f" ({conditions})" * bool(conditions),
    )


def sums(cell: ExplainedCell) -> bool:
    """Whether parts sum to the difference, to the last digits of a float, and the rows of the table
    as they are printed exactly."""
    why = cell.why
    parts = math.fsum(part.seconds for part in why.parts)
    unit, rows = step_rows(why)
    *printed, total = [row for row in rows if not row.indent]
    shown = sum(_units(unit, row.difference) for row in printed)
    return math.isclose(parts, why.step.seconds, rel_tol=1e-9, abs_tol=1e-12) and shown == _units(
        unit, total.difference
    )


def _units(unit: TimeUnit, value: float) -> int:
    """The printed value in units of its last digit."""
    return round(float(unit.change(value).replace(",", "")) * float(f"1e{unit.digits}"))


def print_totals(done: list[Outcome]) -> None:
    """A row for each kind."""
    print("injected | pairs | disturbed | part named | size within 20 % | sums | other clear parts")
    for name in dict.fromkeys(outcome.scenario.name for outcome in done):
        mine = [outcome for outcome in done if outcome.scenario.name == name]
        others = Counter(
            part
            for outcome in mine
            for part in outcome.clear
            if part not in {one.value for one in outcome.scenario.parts}
        )
        print(
            f"{name} | {len(mine)} | {sum(one.disturbed for one in mine)} | {sum(one.named for one in mine)} | "
            f"{sum(one.sized for one in mine)} | {sum(one.sums for one in mine)} | "
            f"{', '.join(f'{part} {count}' for part, count in others.items()) or '–'}"
        )


def main() -> int:
    """Measure what is missing, then print a line a pair and the totals; 1 where too many are
    wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="directory of the results; kept")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", help="words of the names of pairs")
    parser.add_argument(
        "--minutes", type=float, default=90.0, help="begin no round after this long"
    )
    parser.add_argument("--judge", action="store_true", help="measure nothing; judge what is there")
    arguments = parser.parse_args()
    end = time.monotonic() + 60 * arguments.minutes
    kinds = {"pairs": SCENARIOS, **({"link": LINK_ROUND} if can_shape() else {})}
    judgements: dict[bool, list[Outcome]] = {False: [], True: []}
    for number, (name, scenarios) in itertools.product(range(arguments.rounds), kinds.items()):
        chosen = [
            one
            for one in scenarios
            if not arguments.only or any(word in one.name for word in arguments.only)
        ]
        directory = arguments.output / f"{name}-{number}"
        if not chosen or (arguments.judge and not is_whole(directory)):
            continue
        if time.monotonic() > end:
            print("stopped: time is over")
            break
        if not arguments.judge:
            measure(chosen, directory)
        for accept_flags in judgements:
            judgements[accept_flags] += judged(chosen, directory, accept_flags=accept_flags)
        for outcome in judgements[False][-len(chosen) :]:
            verdict = "right" if outcome.is_right else "WRONG"
            print(f"{outcome.scenario.name}: {verdict}: {outcome.text}", flush=True)
    for accept_flags, done in judgements.items():
        print("\nWith --accept flags:" if accept_flags else "\nAs the command judges by default:")
        print_totals(done)
        print(f"{sum(one.is_right for one in done)} of {len(done)} pairs right")
    right = sum(one.is_right for one in judgements[False])
    return int(right < (1 - ALLOWED) * len(judgements[False]))


def is_whole(directory: Path) -> bool:
    """Whether both sides have at least three launches of every cell."""
    counts = [
        len(list(cell.glob("launch-*/record.json")))
        for name in "ab"
        for cell in (directory / name).glob("cells/*")
    ]
    return bool(counts) and min(counts) >= FEWEST


if __name__ == "__main__":
    raise SystemExit(main())
