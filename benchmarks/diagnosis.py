"""Does the diagnosis find the injected cause, its rank and its cost? Real gloo ranks, one cause per
run.

::

    python benchmarks/diagnosis.py                      # everything, about half an hour
    python benchmarks/diagnosis.py --only none slow_rank --ranks 2
    python benchmarks/diagnosis.py --short              # each cause once, in one torchrun, a minute
    python benchmarks/diagnosis.py --only pipeline      # pipelines of 2 x 2 and of 4 stages
    python benchmarks/diagnosis.py --keep wrong         # keeps the recordings that are judged wrong
    python benchmarks/diagnosis.py --markdown table.md  # the confusion matrices

Every run is measured (always-on signals), then recorded with torch.profiler (recording). The
compute of the model is a timed operator (see ``scenario_net.py``), because ranks that share cores
would slow each other. The slow link is a pair of network namespaces with a rate-limited link
between them; it needs root and is skipped without.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from scenario_net import PAUSE_EVERY

from torchscale.analysis.diagnosis.diagnose import diagnose
from torchscale.analysis.training.signals import launch_signals
from torchscale.config.choices import ProfileTarget, Tool
from torchscale.config.experiment import Experiment
from torchscale.errors import TorchscaleError
from torchscale.features.trace.analyze import analyze_files, analyze_recording
from torchscale.features.trace.recording.profile import record_cell
from torchscale.launch.collect import collect_launch
from torchscale.launch.control import LaunchLimits, StopRequest
from torchscale.launch.judge import EndingKind, LaunchEnding
from torchscale.launch.machine import detect_machine
from torchscale.launch.run import run_launch
from torchscale.launch.torchrun import torchrun_command, worker_environment
from torchscale.plan.expand import make_plan
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.launch.task import GroupItem, LaunchTask
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.profiles.finding import Diagnosis, Finding, FindingKind
from torchscale.schema.profiles.request import RecordRequest
from torchscale.schema.state import State
from torchscale.util.processes.bounded import run_bounded
from torchscale.util.processes.subprocesses import adopt_orphans

HERE = Path(__file__).resolve().parent
COMPUTE_SECONDS = 0.02
STEPS = 120
SHORT_STEPS = 80
SHORT_LAYERS = 40
FAST_SECONDS = 0.009
"""Compute of the runs with steps of about 13 ms."""
BURN_STEPS = 400
"""As many as an adaptive measurement takes at most."""
SPELL_STEPS = 700
"""About ten seconds, in which a rank is slow four times."""
PIPELINE_SECONDS = 0.006
"""A layer takes for a micro-batch; a stage has two layers, a step eight micro-batches."""
MICRO_BATCHES = 8
SHORT_RECORDED = ("none", "slow_loader", "host_work", "pauses")
"""The short form takes a minute: fewer steps, fewer of the small buckets, which only make a step
longer, signals of causes that they can identify, and recordings of one cause for each rule that
reads them, but for the straggler that tests/integration/test_diagnosis.py records twice."""
RECORDED_STEPS = 60
LIMITS = LaunchLimits(timeout_seconds=300, stall_seconds=200)
NOBODY = -1
SHAPED = "200mbit"
_NEVER_WRONG = (
    FindingKind.EXPOSED_COMMUNICATION,
    FindingKind.SYNC_VARIANCE,
    FindingKind.IDLE_DEVICE,
)
"""Real causes in many runs in addition to the injected one: gloo over the loopback is neither free
nor steady, and a small model leaves a GPU idle."""


@dataclass(frozen=True)
class Scenario:
    """One run.

    Attributes:
        cause: Of ``scenario_net``.
        expected: What should be found; ``None`` for nothing.
        ranks: World size.
        rank: The affected rank; ``NOBODY`` for all or none.
        extra: Seconds injected, or MB of a bucket.
        cost: Gain per step if it were fixed, in seconds; ``None`` if not known beforehand.
        layers, width: Number and width of the square layers; width 512 has 1 MiB.
        seconds: Compute of a step, or in a pipeline of a layer and micro-batch.
        copies, stages: Of the model, which is cut into several in a pipeline.
        steps, recorded: Measured and recorded steps.
        blocks: Steps of a block, of which every other one has the cause; 0 for all steps.
        by_signals, by_recording: Whether each source can identify this cause.
    """

    cause: str
    expected: FindingKind | None
    ranks: int
    rank: int = NOBODY
    extra: float = 0.0
    cost: float | None = None
    layers: int = 4
    width: int = 512
    seconds: float = COMPUTE_SECONDS
    recorded: int = RECORDED_STEPS
    copies: int = 1
    stages: int = 1
    steps: int = STEPS
    blocks: int = 0
    by_signals: bool = True
    by_recording: bool = True

    @property
    def name(self) -> str:
        """Name for output."""
        size = (
            f" {self.extra * 1e3:g} ms"
            if self.extra
            and self.cause not in ("small_buckets", "slow_link", "uneven_micro_batches")
            else ""
        )
        where = f" on rank {self.rank}" if self.rank != NOBODY else ""
        shape = (
            f", {self.stages} stages x {self.copies} copies"
            if self.stages > 1
            else f", {self.ranks} ranks"
        )
        return f"{self.cause}{size}{where}{shape}"


@dataclass
class Outcome:
    """The findings of one run, from one source; for a wrong answer also why the rule of the
    expected cause did not judge, if it says so."""

    scenario: Scenario
    source: str
    findings: list[tuple[str, int | None, float]] = field(default_factory=list)
    right: bool = False
    wrong_rank: bool = False
    ratio: float | None = None
    problem: str = ""
    unjudged: str = ""


def scenarios(sizes: list[int], clean: int) -> list[Scenario]:
    """All scenarios that the arguments ask for."""
    found = []
    for n in sizes:
        found += [Scenario("none", None, n) for _ in range(clean)]
        for extra in (0.002, 0.005, 0.012):
            found += [
                Scenario("slow_rank", FindingKind.STRAGGLER, n, rank, extra, cost=extra)
                for rank in range(n)
            ]
        half = COMPUTE_SECONDS / 2
        found.append(
            Scenario("uneven_batch", FindingKind.STRAGGLER, n, n - 1, extra=half, cost=half)
        )
        found.append(
            Scenario("moving", FindingKind.LOAD_IMBALANCE, n, extra=0.012, cost=0.012 * (n - 1) / n)
        )
        found.append(
            Scenario(
                "small_buckets",
                FindingKind.SMALL_BUCKETS,
                n,
                extra=0.01,
                layers=100,
                width=64,
                by_recording=False,
            )
        )
        found.append(
            Scenario("slow_loader", FindingKind.INPUT_PIPELINE, n, extra=0.008, cost=0.008)
        )
        found.append(
            Scenario("slow_loader", FindingKind.INPUT_PIPELINE, n, n - 1, extra=0.008, cost=0.008)
        )
        found.append(
            Scenario(
                "host_work", FindingKind.HOST_BOUND, n, extra=0.012, cost=0.012, by_signals=False
            )
        )
        for rank in range(n):
            found += [
                *(
                    Scenario(
                        cause,
                        kind,
                        n,
                        rank,
                        extra=0.2,
                        cost=0.2 / PAUSE_EVERY,
                        recorded=STEPS,
                    )
                    for cause, kind in (
                        ("pauses", FindingKind.PAUSES),
                        ("periodic", FindingKind.STRAGGLER),
                    )
                ),
                Scenario(
                    "burn",
                    FindingKind.STRAGGLER,
                    n,
                    rank,
                    extra=0.002,
                    cost=0.002,
                    seconds=FAST_SECONDS,
                    steps=BURN_STEPS,
                    recorded=BURN_STEPS,
                ),
                Scenario(
                    "spells",
                    FindingKind.INTERMITTENT_STRAGGLER,
                    n,
                    rank,
                    extra=0.006,
                    cost=0.003,
                    seconds=FAST_SECONDS,
                    steps=SPELL_STEPS,
                    recorded=SPELL_STEPS,
                ),
            ]
        paused = Scenario("pauses", FindingKind.PAUSES, n, extra=0.2, cost=0.2 / PAUSE_EVERY)
        periodic = replace(
            paused, cause="periodic", expected=FindingKind.PERIODIC_WORK, recorded=STEPS
        )
        found += [paused, periodic]
    if 4 in sizes:
        found += _pipelines(clean)
    if 2 in sizes and os.geteuid() == 0 and shutil.which("ip") and shutil.which("tc"):
        found.append(Scenario("slow_link", FindingKind.SLOW_LINK, 2, layers=4, by_recording=False))
    return found


def _pipelines(clean: int) -> list[Scenario]:
    """Two stages of two copies, and four stages of one: even, with a slow rank, with a last stage
    of 60 % more work, with a quarter of the micro-batches three times as long as the others."""
    found = []
    for stages, copies in ((2, 2), (4, 1)):
        shape = Scenario(
            "none",
            None,
            4,
            layers=2 * stages,
            width=64,
            seconds=PIPELINE_SECONDS,
            copies=copies,
            stages=stages,
            steps=40,
            recorded=40,
        )
        found += [shape for _ in range(clean)]
        # A stage of one rank has no peers: that the rank is slow shows as a stage with more work.
        kind = FindingKind.STRAGGLER if copies > 1 else FindingKind.UNEVEN_STAGES
        found += [
            replace(shape, cause="slow_rank", expected=kind, rank=rank, extra=PIPELINE_SECONDS)
            for rank in range(4)
        ]
        last = NOBODY if copies > 1 else 3
        found.append(
            replace(shape, cause="uneven_stages", expected=FindingKind.UNEVEN_STAGES, rank=last)
        )
    for stages, copies in ((2, 1), (2, 2), (4, 1)):
        shape = Scenario(
            "equal_micro_batches",
            None,
            stages * copies,
            layers=2 * stages,
            width=64,
            seconds=PIPELINE_SECONDS / 2,
            copies=copies,
            stages=stages,
            steps=40,
            recorded=40,
        )
        uneven = FindingKind.UNEVEN_MICRO_BATCHES
        found += [
            shape,
            replace(
                shape, cause="uneven_micro_batches", expected=uneven, extra=2.0, by_signals=False
            ),
        ]
    return found


def main() -> None:
    """Run all scenarios, print one line each, then the confusion matrices."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--clean", type=int, default=4, help="clean runs per world size")
    parser.add_argument("--only", nargs="+", help="causes to run")
    parser.add_argument("--short", action="store_true", help="two ranks, each cause once")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--no-recording", action="store_true", help="signals only, no recording")
    source.add_argument(
        "--no-signals", action="store_true", help="recordings only; not with --short"
    )
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path, help="write every outcome here")
    parser.add_argument(
        "--keep", type=Path, help="copy the recordings that are judged wrong into this directory"
    )
    arguments = parser.parse_args()
    adopt_orphans()
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(HERE), os.environ.get("PYTHONPATH")))
    )
    chosen = [
        item
        for item in scenarios(arguments.ranks, arguments.clean)
        if not arguments.only
        or item.cause in arguments.only
        or (item.stages > 1 and "pipeline" in arguments.only)
    ]
    if arguments.short:
        wanted = arguments.only or {item.cause for item in scenarios([2], 1)} - {"slow_link"}
        by_cause = {item.cause: item for item in scenarios([2], 1) if item.cause in wanted}
        chosen = [
            replace(
                item,
                steps=SHORT_STEPS if item.steps == STEPS else item.steps,
                layers=min(item.layers, SHORT_LAYERS),
            )
            for item in by_cause.values()
        ]
    recording = not arguments.no_recording
    together = arguments.short and not any(scenario.cause == "slow_link" for scenario in chosen)
    judged = (
        run_together(chosen, SHORT_RECORDED if recording else ())
        if together
        else itertools.chain.from_iterable(
            run(
                scenario, signals=not arguments.no_signals, recording=recording, keep=arguments.keep
            )
            for scenario in chosen
        )
    )
    outcomes: list[Outcome] = []
    for outcome in judged:
        outcomes.append(outcome)
        print(f"[{len(outcomes)}] {line(outcome)}", flush=True)
    text = summary(outcomes)
    print(text)
    if arguments.markdown:
        arguments.markdown.write_text(text)
    if arguments.json:
        arguments.json.write_text(
            json.dumps([asdict(outcome) for outcome in outcomes], default=str, indent=1)
        )


def run(
    scenario: Scenario, *, signals: bool, recording: bool, keep: Path | None = None
) -> Iterator[Outcome]:
    """Measure the scenario, then record it; a recording that is judged wrong is copied into
    ``keep``."""
    cell = scenario_cell(scenario)
    with tempfile.TemporaryDirectory() as scratch:
        if signals:
            yield judge(scenario, "signals", *_measured(scenario, cell, Path(scratch)))
        if recording and scenario.cause != "slow_link":
            outcome = judge(scenario, "recording", *_recorded(scenario, cell, Path(scratch)))
            if keep is not None and not outcome.right:
                shutil.copytree(
                    Path(scratch) / "recording", keep / f"{scenario.name} {time.time_ns()}"
                )
            yield outcome


def run_together(chosen: Sequence[Scenario], recorded: Sequence[str]) -> Iterator[Outcome]:
    """Measure all, then record those with these causes, one after the other in the processes of one
    torchrun of two ranks: what starting processes takes is paid once."""
    with tempfile.TemporaryDirectory() as scratch:
        launches: list[tuple[Scenario, LaunchTask, Path]] = []
        for source in ("signals", "recording"):
            for number, scenario in enumerate(chosen):
                if source == "recording" and scenario.cause not in recorded:
                    continue
                if source == "signals" and not scenario.by_signals:
                    continue
                directory = Path(scratch) / f"{source}-{number}"
                directory.mkdir()
                request = (
                    recording_request(directory, scenario.recorded)
                    if source == "recording"
                    else None
                )
                launches.append(
                    (scenario, launch_task(scenario_cell(scenario), request), directory)
                )
        ending = run_group(
            [(task, directory) for _, task, directory in launches], Path(scratch) / "channel"
        )
        for scenario, task, directory in launches:
            if task.recording is None:
                record = collect_launch(
                    task, directory, ending, command=(), started_at="", seconds=1.0, oom_kills=0
                )
                yield judge(scenario, "signals", *_diagnosed(record, scenario_cell(scenario)))
            else:
                yield judge(scenario, "recording", *_analyzed(directory))


def run_group(launches: Sequence[tuple[LaunchTask, Path]], channel: Path) -> LaunchEnding:
    """Hand all launches to the ranks of one torchrun at once, and see it to its end."""
    channel.mkdir(parents=True)
    for number, (task, directory) in enumerate(launches):
        item = GroupItem(task=task, directory=str(directory))
        (channel / f"item-{number}.json").write_text(item.model_dump_json())
    (channel / "end").touch()
    task = launches[0][0]
    finished = run_bounded(
        torchrun_command(task.cell.world_size, channel, "--group", str(channel)),
        timeout_seconds=len(launches) * 60,
        env=worker_environment(task, {}),
    )
    return LaunchEnding(EndingKind.FINISHED, finished.returncode, finished.stderr[-500:])


def scenario_cell(scenario: Scenario) -> TrainingCell:
    """The training cell of ``scenario_net`` with this cause."""
    options = {
        "cause": scenario.cause,
        "rank": scenario.rank,
        "extra": scenario.extra,
        "seconds": scenario.seconds,
        "layers": scenario.layers,
        "width": scenario.width,
        **({"blocks": scenario.blocks} if scenario.blocks else {}),
    }
    steps = scenario.steps
    experiment = Experiment.model_validate(
        {
            "models": {
                "name": f"scenario_net:{'build' if scenario.stages == 1 else 'build_pipeline'}",
                **options,
            },
            "batch_sizes": 8,
            "gpu_counts": scenario.ranks,
            **_parallel(scenario),
            "device": "cpu",
            "training": {
                "optimizer": "sgd"
            },  # Adam's state is large here, and as fast as memory happens to lie
            "benchmark": {
                "preset": "quick",
                "warmup_steps": 10,
                "warmup_max_seconds": 2.0,
                "measure_steps": steps,
            },
        }
    )
    anywhere = replace(detect_machine(), cores=tuple(range(64)))
    return make_plan(experiment, anywhere).training[0]


def _parallel(scenario: Scenario) -> dict[str, object]:
    if scenario.stages == 1:
        return {}
    schedule = {"schedule": "1f1b", "microbatches": MICRO_BATCHES}
    if scenario.copies == 1:
        return {"parallel": {"strategy": {"name": "pipeline", **schedule}}}
    degrees = {"data": scenario.copies, "pipeline": scenario.stages}
    return {"parallel": {"strategy": {"name": "hybrid", **degrees, **schedule}}}


def launch_task(cell: TrainingCell, request: RecordRequest | None = None) -> LaunchTask:
    """The task of a launch of a cell, which is recorded if there is a request."""
    return LaunchTask(
        cell=cell,
        launch=0,
        device="cpu",
        cpu_sets=_cores(cell.world_size),
        threads_per_rank=1,
        started_at=time.time(),
        collective_timeout_seconds=LIMITS.collective_seconds,
        recording=request,
    )


def _cores(ranks: int) -> tuple[tuple[int, ...], ...] | None:
    """One core per rank, as in a benchmark, if there are enough cores."""
    cores = sorted(os.sched_getaffinity(0))
    return tuple((core,) for core in cores[:ranks]) if ranks <= len(cores) else None


def _measured(
    scenario: Scenario, cell: TrainingCell, scratch: Path
) -> tuple[Diagnosis | None, float, str]:
    directory = scratch / "launch"
    directory.mkdir()
    task = launch_task(cell)
    if scenario.cause == "slow_link":
        with shaped_link():
            record = _launch_over_link(task, directory)
    else:
        record = run_launch(
            task,
            directory,
            limits=LIMITS,
            extra_env={},
            stop=StopRequest(),
            on_progress=lambda _: None,
        )
    return _diagnosed(record, cell)


def _diagnosed(record: LaunchRecord, cell: TrainingCell) -> tuple[Diagnosis | None, float, str]:
    signals = (
        launch_signals(payload(record, TrainingResult), cell) if record.state is State.OK else None
    )
    if signals is None:
        return None, 0.0, f"{record.state.value}: {record.reason}"
    return diagnose(signals), signals.step_seconds, ""


def _recorded(
    scenario: Scenario, cell: TrainingCell, scratch: Path
) -> tuple[Diagnosis | None, float, str]:
    directory = scratch / "recording"
    directory.mkdir()
    recording = record_cell(
        launch_task(cell, recording_request(directory, scenario.recorded)),
        directory,
        None,
        limits=LIMITS,
        extra_env={},
        stop=StopRequest(),
        on_progress=lambda _: None,
    )
    profile = analyze_recording(directory, recording)
    if profile.analysis is None:
        return None, 0.0, profile.problem
    return _analyzed(directory)


def recording_request(directory: Path, steps: int) -> RecordRequest:
    """To record so many steps with torch.profiler."""
    return RecordRequest(
        tool=Tool.KINETO,
        target=ProfileTarget.SYNC_STALLS,
        directory=str(directory),
        seconds=60,
        max_steps=steps,
    )


def _analyzed(directory: Path) -> tuple[Diagnosis | None, float, str]:
    try:
        analysis = analyze_files([directory])
    except TorchscaleError as error:
        return None, 0.0, error.message
    return (
        Diagnosis(findings=analysis.findings, abstentions=analysis.abstentions),
        analysis.step_seconds or 0.0,
        "",
    )


def judge(
    scenario: Scenario, source: str, diagnosis: Diagnosis | None, step_seconds: float, problem: str
) -> Outcome:
    """Correct: the expected cause and rank are among the findings, and no other rank is named. For
    a clean run: no rank and no cause except those that are real without an injection."""
    del step_seconds
    outcome = Outcome(scenario, source, problem=problem)
    if diagnosis is None:
        return outcome
    findings = diagnosis.findings
    outcome.findings = [(item.kind.value, item.rank, item.cost_seconds) for item in findings]
    expected_rank = None if scenario.rank == NOBODY else scenario.rank
    outcome.wrong_rank = any(
        item.rank is not None and item.rank != expected_rank for item in findings
    )
    if scenario.expected is None:
        outcome.right = not [item for item in findings if item.kind not in _NEVER_WRONG]
        return outcome
    hit: Finding | None = next(
        (
            item
            for item in findings
            if item.kind is scenario.expected and item.rank == expected_rank
        ),
        None,
    )
    outcome.right = hit is not None and not outcome.wrong_rank
    if hit is not None and scenario.cost:
        outcome.ratio = hit.cost_seconds / scenario.cost
    if not outcome.right:
        outcome.unjudged = "; ".join(
            item.reason for item in diagnosis.abstentions if item.kind is scenario.expected
        )
    return outcome


def line(outcome: Outcome) -> str:
    """One line for the terminal."""
    found = ", ".join(
        f"{kind}{'' if rank is None else f' (rank {rank})'} {cost * 1e3:.1f} ms"
        for kind, rank, cost in outcome.findings
    )
    size = "" if outcome.ratio is None else f"; found ÷ injected {outcome.ratio:.2f}"
    verdict = "correct" if outcome.right else "WRONG"
    why = f" ({outcome.unjudged})" if outcome.unjudged else ""
    return (
        f"{outcome.scenario.name} [{outcome.source}]: {verdict}: "
        f"{outcome.problem or found or 'nothing'}{why}{size}"
    )


def summary(outcomes: list[Outcome]) -> str:
    """Confusion matrices in Markdown: rows are injected causes, columns the found cause with the
    highest cost."""
    parts = []
    for source in ("signals", "recording"):
        mine = [outcome for outcome in outcomes if outcome.source == source]
        if not mine:
            continue
        identifiable = [item for item in mine if getattr(item.scenario, f"by_{source}")]
        clean = [item for item in mine if item.scenario.expected is None]
        ratios = [item.ratio for item in identifiable if item.ratio is not None]
        within = sum(0.8 <= ratio <= 1.2 for ratio in ratios)
        named = sum(any(rank is not None for _, rank, _ in item.findings) for item in clean)
        parts.append(
            f"### From {'the signals of every launch' if source == 'signals' else 'recordings'}\n\n{_matrix(mine)}\n"
            f"Correct cause and rank: {sum(item.right for item in identifiable)} of "
            f"{len(identifiable)} "
            "that this source can identify; "
            f"cost within 20 %: {within} of {len(ratios)}; a rank named in {named} of "
            f"{len(clean)} clean runs.\n"
        )
    return "\n".join(parts)


def _matrix(outcomes: list[Outcome]) -> str:
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for item in outcomes:
        scenario = item.scenario
        name = "clean" if scenario.expected is None else scenario.cause.replace("_", " ")
        if scenario.cause in ("slow_loader", "slow_rank", "pauses", "periodic"):
            name += " (one rank)" if scenario.rank != NOBODY else " (all)"
        if scenario.stages > 1:
            name += f", {scenario.stages} stages × {scenario.copies}"
        kinds = [kind for kind, _, _ in item.findings if FindingKind(kind) not in _NEVER_WRONG]
        wanted = None if scenario.expected is None else scenario.expected.value
        found = (
            "no answer"
            if item.problem
            else wanted
            if wanted in kinds
            else kinds[0]
            if kinds
            else "nothing"
        )
        rows[name][found or "nothing"] += 1
    columns = sorted(
        {found for row in rows.values() for found in row},
        key=lambda name: (name == "nothing", name),
    )
    lines = ["| injected | " + " | ".join(name.replace("_", " ") for name in columns) + " |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    lines += [
        f"| {name} | " + " | ".join(str(row[column] or "") for column in columns) + " |"
        for name, row in rows.items()
    ]
    return "\n".join(lines) + "\n"


@contextmanager
def shaped_link() -> Iterator[None]:
    """Two network namespaces with a link limited to ``SHAPED`` between them."""
    names = ("tsdiag0", "tsdiag1")
    _remove(names)
    try:
        for name in names:
            _ip("netns", "add", name)
        _ip(
            "link",
            "add",
            "tsv0",
            "netns",
            names[0],
            "type",
            "veth",
            "peer",
            "name",
            "tsv1",
            "netns",
            names[1],
        )
        for number, name in enumerate(names):
            inside = ("netns", "exec", name)
            _ip(*inside, "ip", "addr", "add", f"10.77.0.{number + 1}/24", "dev", f"tsv{number}")
            _ip(*inside, "ip", "link", "set", f"tsv{number}", "up")
            _ip(*inside, "ip", "link", "set", "lo", "up")
            shape = ("rate", SHAPED, "burst", "64kb", "latency", "400ms")
            _ip(*inside, "tc", "qdisc", "add", "dev", f"tsv{number}", "root", "tbf", *shape)
        yield
    finally:
        _remove(names)


def _ip(*arguments: str) -> None:
    subprocess.run(
        [shutil.which("ip") or "ip", *arguments], check=True, capture_output=True, timeout=30
    )


def _remove(names: tuple[str, ...]) -> None:
    for name in names:
        subprocess.run(
            [shutil.which("ip") or "ip", "netns", "del", name],
            check=False,
            capture_output=True,
            timeout=30,
        )


def _launch_over_link(task: LaunchTask, directory: Path):  # type: ignore[no-untyped-def]  # noqa: ANN202
    (directory / "task.json").write_text(task.model_dump_json())
    processes = []
    for number in (1, 0):
        env = worker_environment(task, {"GLOO_SOCKET_IFNAME": f"tsv{number}"})
        argv = [
            "ip", "netns", "exec", f"tsdiag{number}", sys.executable, "-m", "torch.distributed.run", "--nnodes=2",
            "--nproc-per-node=1", "--max-restarts=0", "--rdzv-backend=c10d", "--rdzv-endpoint=10.77.0.1:29511",
            f"--rdzv-conf=is_host={int(number == 0)},join_timeout=60", f"--local-addr=10.77.0.{number + 1}",
            "-m", "torchscale.worker", str(directory / "task.json"),
        ]  # fmt: skip
        if number:
            processes.append(
                subprocess.Popen(
                    argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            )
        else:
            finished = run_bounded(argv, timeout_seconds=LIMITS.timeout_seconds, env=env)
    for process in processes:
        process.wait(timeout=60)
    ending = LaunchEnding(EndingKind.FINISHED, finished.returncode, finished.stderr[-500:])
    return collect_launch(
        task, directory, ending, command=(), started_at="", seconds=finished.seconds, oom_kills=0
    )


if __name__ == "__main__":
    main()
