"""Which ranks ``watch --timing`` names in jobs whose collectives are kernels of a device.

Jobs by simple physics (``tests/features/watch/job/device_jobs.py``): hosts run ahead of their devices, kernels wait
for each other, every layer scatters by 3 %, and torch's ring is read as it is in a job. With known
causes, and without one. A cause is right where its kind and rank are found, and no other rank. What
a straggler is said to cost is compared with the step of the same job without it.

    PYTHONPATH=. python benchmarks/watch_device.py --ranks 2,8,64
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.features.watch.job.device_jobs import DeviceJob, named, watched

STRAGGLER, SPELLS, DATA = "straggler", "intermittent_straggler", "input_pipeline"
ON_A_RANK = ("slow", "forward", "late", "data")
OnRank = Callable[[int], Mapping[str, Any]]


@dataclass(frozen=True)
class Cause:
    """Something that one rank does, and what is to be found.

    Attributes:
        name: In the table.
        job: The job's settings, for the rank that is at fault.
        kind: Of the finding.
        seeds: Of the noise, each a job.
        least_ranks: That it needs.
    """

    name: str
    job: OnRank
    kind: str = STRAGGLER
    seeds: int = 2
    least_ranks: int = 2


def always(milliseconds: float, name: str = "slow", **settings: Any) -> OnRank:  # noqa: ANN401 - of DeviceJob
    """A rank that takes longer in every step."""
    return lambda odd: {name: lambda rank, _: milliseconds * (rank == odd), **settings}


def when(milliseconds: float, is_slow: Callable[[int], bool], **settings: Any) -> OnRank:  # noqa: ANN401 - of DeviceJob
    """A rank that takes longer in some steps."""
    return lambda odd: {
        "slow": lambda rank, step: milliseconds * (rank == odd and is_slow(step)),
        **settings,
    }


CAUSES = (
    Cause("device 4 ms slower, buckets", always(4.0)),
    Cause("device 2.6 ms slower, buckets", always(2.6)),
    Cause("device 4 ms slower in its forward pass", always(4.0, "forward")),
    Cause("device 5 ms slower, FSDP", always(5.0, strategy="fsdp")),
    Cause("device 5 ms slower in its forward pass, FSDP", always(5.0, "forward", strategy="fsdp")),
    Cause("device 6 ms slower, tensor", always(6.0, strategy="tensor"), least_ranks=4),
    Cause("host 12 ms later, little ahead", always(12.0, "late", host=58.0)),
    Cause("host 60 ms later, well ahead", always(60.0, "late")),
    Cause("data 60 ms later", always(60.0, "data"), kind=DATA),
    Cause("slower since the middle", when(5.0, lambda step: step >= 120)),
    Cause("slower until the middle", when(5.0, lambda step: step < 200, steps=400)),
    Cause("slow for 20 of 60 steps", when(25.0, lambda step: step % 60 < 20, steps=360), SPELLS),
    Cause("slower and slower", lambda odd: {"slow": lambda rank, step: step / 30 * (rank == odd)}),
    Cause("on two hosts, buckets", always(4.0, hosts=2)),
    Cause("on two hosts, FSDP", always(5.0, strategy="fsdp", hosts=2)),
    Cause("hosts ten steps ahead", always(4.0, ahead=10)),
    Cause("loss read in every step", always(4.0, sync_every=1)),
    Cause("loss never read", always(4.0, sync_every=0)),
    Cause("slow links, FSDP", always(6.0, strategy="fsdp", transfer=6.0)),
    Cause("a small model", always(0.6, compute=6.0, host=2.5, transfer=0.2)),
    Cause("24 layers", always(4.0, layers=24, transfer=0.3), seeds=1),
    Cause("shards and replicas", always(5.0, strategy="hybrid"), least_ranks=4),
    Cause("host 80 ms later, shards", always(80.0, "late", strategy="hybrid"), least_ranks=4),
    Cause("data 60 ms later, tensor", always(60.0, "data", strategy="tensor"), DATA, least_ranks=4),
    Cause("24 layers, FSDP", always(6.0, strategy="fsdp", layers=24, transfer=0.3), seeds=1),
    Cause("three buckets that take as long as the layers", always(5.0, layers=3, transfer=9.0)),
)
NOBODY: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("buckets", {}),
    ("FSDP", {"strategy": "fsdp"}),
    ("tensor", {"strategy": "tensor"}),
    ("shards and replicas", {"strategy": "hybrid"}),
    ("two hosts", {"hosts": 2}),
    ("24 layers, FSDP", {"strategy": "fsdp", "layers": 24, "transfer": 0.3}),
    ("loss read in every step", {"sync_every": 1}),
    ("slow links", {"transfer": 12.0}),
    ("hosts ten steps ahead", {"ahead": 10}),
    ("a host that is late within what it is ahead", {"late": lambda rank, _: 15.0 * (rank == 1)}),
    ("ranks that are late in turn", {"slow": "in turn"}),
    ("stages of a pipeline", {"sends": True, "slow": lambda rank, _: 8.0 * (rank == 0)}),
    ("graphs", {"captured": True, "slow": lambda rank, _: 8.0 * (rank == 0)}),
)
CLEAN_SEEDS = 4


@dataclass
class Count:
    """Right ones of all."""

    right: int = 0
    wrong: list[str] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    """Of the cost that was found, to the true one."""


def main() -> int:
    """Prints the table; 1 where too many are wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", default="2,8,64", help="numbers of ranks")
    sizes = [int(text) for text in parser.parse_args().ranks.split(",")]
    sys.stdout.write("| | " + " | ".join(f"{ranks} ranks" for ranks in sizes) + " |\n")
    sys.stdout.write("|---|" + "---|" * len(sizes) + "\n")
    counts = {ranks: (Count(), Count()) for ranks in sizes}
    for cause in CAUSES:
        cells = [_judge_cause(cause, ranks, counts[ranks][0]) for ranks in sizes]
        _print_row(cause.name, cells)
    for name, settings in NOBODY:
        cells = [_judge_clean(name, settings, ranks, counts[ranks][1]) for ranks in sizes]
        _print_row(f"nobody: {name}", cells)
    for ranks, (causes, clean) in counts.items():
        sys.stdout.write(
            f"\n{ranks} ranks: {causes.right} of {causes.right + len(causes.wrong)} causes, nobody "
            f"named in {clean.right} of {clean.right + len(clean.wrong)} without one\n"
        )
        if causes.ratios:
            low, middle, high = np.quantile(causes.ratios, [0.1, 0.5, 0.9])
            sys.stdout.write(
                f"cost found ÷ true cost: median {middle:.2f}, 10 % {low:.2f}, 90 % {high:.2f} "
                f"(least {min(causes.ratios):.2f}, most {max(causes.ratios):.2f})\n"
            )
        sys.stdout.writelines(f"  {text}\n" for text in (*causes.wrong, *clean.wrong))
    return int(any(len(causes.wrong) > 2 or clean.wrong for causes, clean in counts.values()))


def _judge_cause(cause: Cause, ranks: int, count: Count) -> str:
    if ranks < cause.least_ranks:
        return "–"
    right = 0
    for seed in range(cause.seeds):
        odd = (1, ranks - 1)[seed % 2]
        settings = cause.job(odd)
        found = _found(DeviceJob(ranks, seed=seed, **settings))
        if set(found) == {(cause.kind, odd)}:
            right += 1
            if cause.kind == STRAGGLER and (cost := found[STRAGGLER, odd]) is not None:
                count.ratios.append(cost / _true_cost(ranks, seed, settings))
        else:
            count.wrong.append(f"{cause.name}, rank {odd}: {sorted(found) or 'nobody'}")
    count.right += right
    return f"{right} of {cause.seeds}"


def _judge_clean(name: str, settings: Mapping[str, Any], ranks: int, count: Count) -> str:
    if settings.get("strategy") in ("tensor", "hybrid") and ranks < 4:
        return "–"
    right = 0
    for seed in range(CLEAN_SEEDS):
        chosen = dict(settings)
        if chosen.get("slow") == "in turn":
            chosen["slow"] = lambda rank, step: 5.0 * (step % ranks == rank)
        found = _found(DeviceJob(ranks, seed=100 + seed, **chosen))
        if not found:
            right += 1
        else:
            count.wrong.append(f"{name}, seed {seed}: {sorted(found)}")
    count.right += right
    return f"{right} of {CLEAN_SEEDS}"


def _true_cost(ranks: int, seed: int, settings: Mapping[str, Any]) -> float:
    """Milliseconds of a step."""
    without = {name: value for name, value in settings.items() if name not in ON_A_RANK}
    slow, fast = (DeviceJob(ranks, seed=seed, **chosen) for chosen in (settings, without))
    return slow.run() - fast.run()


def _found(job: DeviceJob) -> dict[tuple[str, int], float | None]:
    """Kind and rank of each finding → milliseconds that it costs a step; ``None`` where it is about
    a part of the job."""
    with tempfile.TemporaryDirectory() as scratch:
        judged = watched(job.write(Path(scratch)))
    if judged.problem:
        raise RuntimeError(judged.problem)
    costs = {
        (item.finding.kind.value, item.finding.rank): item.finding.cost_seconds * 1e3
        for item in judged.verdict.findings
        if not item.span
    }
    return {found: costs.get(found) for found in named(judged)}


def _print_row(name: str, cells: list[str]) -> None:
    sys.stdout.write(f"| {name} | " + " | ".join(cells) + " |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
