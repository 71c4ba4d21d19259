"""Check the CUDA paths of torchscale on one machine, through its own commands, and print one table.

Needs nothing but the standard library to start: packages that torchscale needs and this Python
lacks are taken from wheels that ``pack`` has fetched before. torch has to be installed. Described
in docs/gpu-check.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WHEELS = ROOT / "build" / "gpu-check"
MOST_WHEEL_BYTES = 60 << 20
ALL_SECONDS = 480.0
"""For all checks together."""
MOST_BESIDE, CORES_OF_A_CHECK = 4, 4
"""Checks that run side by side where they judge no time, and cores for each."""
END_SECONDS = 15.0
"""A command that is interrupted ends its ranks within seconds."""
NEEDED = (
    "typer",
    "rich",
    "pydantic",
    "pyyaml",
    "psutil",
    "nvidia-ml-py",
    "msgspec",
    "numpy",
    "scipy",
    "jinja2",
)
"""Of torchscale's requirements those that the checks use: no charts, PDF, data frames, or models of
transformers."""
KEPT = ("numpy", "scipy")
"""Kept as they are installed, whatever their version: torch and others were built against them."""

PASS, FAIL, NOT_APPLICABLE = "pass", "fail", "not applicable"
NO_CUDA = "no CUDA device"

QUICK = ("--benchmark.preset=quick", "--benchmark.warmup_max_seconds=4", "--gpus", "1")
SHORT_WARMUP = ("--benchmark.warmup_max_seconds=4",)
MODEL = ("--model", "decoder-small", "--batch-size", "4")
ON_CPU = (
    "--benchmark.measure_steps=5",
    "--benchmark.warmup_steps=2",
    "--benchmark.warmup_seconds=0.1",
)
"""There nothing is judged."""
SMALL = ("--model", "tiny-decoder", "--batch-size", "32")
CLOCK_RANGE = (0.80, 1.01)
"""Seconds of the measured steps by CUDA events ÷ wall time around them, which also holds the pauses
between batches."""
ABOVE_PEAK = 1.03
"""Clocks may boost a little above those of the data sheet."""
LEAST_OF_PEAK = 0.3
"""Large products in fp16 and bf16 reach 60 to 80 % of the documented rate; far less is another
device or clock."""
PREDICTION_ERROR = 0.15
"""CPU predictions were within 6 % (docs/tested-on.md); kernels on GPUs keep other things."""
SAME_LOSS = 0.01
"""First losses of a compiled and an uncompiled model in fp32 differ in the order of sums alone."""
JOB = "gpu_check_job"
"""The program that is watched, and the model that is late."""
WATCHED_STEPS = 200
BROUGHT = "brought-back"
MOST_BYTES = 4 << 20
"""Of a file that is brought back."""
WATTS = (10.0, 1500.0)
CELSIUS = (5.0, 110.0)


@dataclass(frozen=True)
class Outcome:
    """How a check ended, and its figure or reason."""

    result: str
    figure: str


@dataclass(frozen=True)
class Ran:
    """A command that has ended: its exit code (``None`` where it ran out of time), its JSON, its
    last words."""

    code: int | None
    document: Any
    said: str

    def problem(self) -> str:
        """What went wrong, in one line."""
        if self.code is None:
            return f"not finished in time{f': {self.said}' if self.said else ''}"
        return f"exit code {self.code}{f': {self.said}' if self.said else ''}"


@dataclass
class Session:
    """One run of the checks.

    Attributes:
        directory: For run folders.
        environment: Of the commands.
        ends: When no further check begins, by ``time.monotonic``.
        facts: What ``validate --json`` found; empty before it ran.
        cells: Training cells by precision, once measured.
    """

    directory: Path
    environment: Mapping[str, str]
    ends: float
    facts: Mapping[str, Any] = field(default_factory=dict)
    cells: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def cuda(self) -> bool:
        """Whether torch can use a CUDA device."""
        return bool((self.facts.get("software") or {}).get("cuda_available"))

    @property
    def gpus(self) -> list[dict[str, Any]]:
        """As the driver describes them."""
        return list((self.facts.get("driver") or {}).get("gpus") or ())

    @property
    def device(self) -> str:
        """Name of the first GPU."""
        return str(self.gpus[0]["name"]) if self.gpus else ""

    def run(self, *arguments: str, seconds: float) -> Ran:
        """Run a command of torchscale within ``seconds`` and the time left. Its JSON is read from
        standard output."""
        return self.python("-m", "torchscale", *arguments, seconds=seconds)

    def python(self, *arguments: str, seconds: float) -> Ran:
        """The same for Python."""
        limit = max(1.0, min(seconds, self.ends - time.monotonic()))
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.directory,
            env=dict(self.environment),
            start_new_session=True,
        )
        code: int | None
        try:
            out, err = process.communicate(timeout=limit)
            code = process.returncode
        except subprocess.TimeoutExpired:
            out, err = _end(process)
            code = None
        try:
            document = json.loads(out)
        except ValueError:
            document = None
        lines = [line.strip() for line in err.splitlines() if line.strip()]
        return Ran(code, document, lines[-1][:200] if lines else "")


def _end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Interrupt a command, which ends its ranks, and kill what is left of it."""
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=END_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()


@dataclass(frozen=True)
class Check:
    """One row of the table.

    Attributes:
        name: Its title.
        seconds: At most this long.
        run: The check.
        on_cpu: Whether it runs on a machine without a GPU as well, to prove the script.
        beside: Whether it judges no time, and runs beside its neighbours of which that holds too,
            as far as there are cores.
    """

    name: str
    seconds: float
    run: Callable[[Session, float], Outcome]
    on_cpu: bool = False
    beside: bool = False


def perform(
    checks: Sequence[Check], session: Session, on_outcome: Callable[[Check, Outcome], None]
) -> bool:
    """Run the checks; ``on_outcome`` gets them in their order. Returns whether none failed."""
    sound = True
    for check, outcome in _outcomes(checks, session):
        sound = sound and outcome.result != FAIL
        on_outcome(check, outcome)
    return sound


def _outcomes(checks: Sequence[Check], session: Session) -> Iterator[tuple[Check, Outcome]]:
    workers = min(MOST_BESIDE, (os.cpu_count() or 1) // CORES_OF_A_CHECK)
    with ThreadPoolExecutor(max(1, workers)) as pool:
        running: list[tuple[Check, Future[Outcome]]] = []
        for check in checks:
            if check.beside:
                running.append((check, pool.submit(_perform, check, session)))
                continue
            yield from ((one, future.result()) for one, future in running)
            running = []
            yield check, _perform(check, session)
        yield from ((one, future.result()) for one, future in running)


def _perform(check: Check, session: Session) -> Outcome:
    known = bool(session.facts)
    if known and not session.cuda and not check.on_cpu:
        return Outcome(NOT_APPLICABLE, NO_CUDA)
    left = session.ends - time.monotonic()
    if left <= 0:
        return Outcome(FAIL, "not begun: the time for all checks was over")
    try:
        outcome = check.run(session, min(check.seconds, left))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        return Outcome(FAIL, f"its answer lacks something: {type(error).__name__}: {error}"[:200])
    if outcome.result == PASS and session.facts and not session.cuda:
        return Outcome(NOT_APPLICABLE, f"{NO_CUDA}; on the CPU: {outcome.figure}")
    return outcome


def validate(session: Session, seconds: float) -> Outcome:
    """The node is fit; all later checks use the facts."""
    ran = session.run("validate", "--json", "--output-dir", str(session.directory), seconds=seconds)
    if ran.document is None:
        return Outcome(FAIL, ran.problem())
    session.facts = ran.document["facts"]
    failed = [
        f"{check['title']}: {check['seen']}"
        for check in ran.document["checks"]
        if check["status"] == "fail"
    ]
    return (
        Outcome(FAIL, "; ".join(failed)[:300]) if failed else Outcome(PASS, ran.document["verdict"])
    )


def device_known(session: Session, _: float) -> Outcome:
    """The catalogue has the device, so that there is an MFU."""
    peaks = _peaks(session.device)
    if peaks is None:
        return Outcome(
            NOT_APPLICABLE,
            f"{session.device} is not in the catalogue: no documented peak, no MFU by it",
        )
    return Outcome(
        PASS, f"{session.device}: bf16 {peaks.get('bf16', 0) / 1e12:.0f} TFLOP/s documented"
    )


def driver(session: Session, _: float) -> Outcome:
    """NVML answers for every GPU."""
    named = (
        "uuid",
        "memory_bytes",
        "temperature_celsius",
        "throttle_reasons",
        "pcie_width",
        "foreign_processes",
    )
    silent = [
        f"GPU {gpu['index']}: {name}"
        for gpu in session.gpus
        for name in named
        if gpu.get(name) is None
    ]
    if not session.gpus or silent:
        return Outcome(FAIL, f"not answered: {', '.join(silent) or 'anything'}")
    first = session.gpus[0]
    reasons = ", ".join(first["throttle_reasons"]) or "none"
    ecc = {True: "on", False: "off", None: "none"}[first.get("ecc_enabled")]
    return Outcome(
        PASS, f"throttle reasons {reasons}, {first['temperature_celsius']} °C, ECC {ecc}"
    )


def nccl(session: Session, _: float) -> Outcome:
    """The all-reduce of ``validate`` ran on every GPU."""
    found, software = session.facts["collective"], session.facts["software"]
    count = software["cuda_devices"]
    figure = (
        f"NCCL {software['nccl']}, {found['world_size']} of {count} GPUs, {found['elements']:,} "
        "elements each"
    )
    right = (
        found["backend"] == "nccl" and found["world_size"] == count and not found["wrong_elements"]
    )
    return Outcome(PASS if right and found["error"] is None else FAIL, found["error"] or figure)


def training(precision: str) -> Callable[[Session, float], Outcome]:
    """A training cell in one precision; all three are measured by the first of them."""

    def check(session: Session, seconds: float) -> Outcome:
        if precision not in session.cells:
            _train(session, ("fp32", "bf16", "fp8") if session.cuda else ("fp32",), seconds)
        cell = session.cells[precision]
        if cell["state"] == "skipped":
            return Outcome(NOT_APPLICABLE, cell["reason"])
        if cell["state"] != "ok":
            return Outcome(FAIL, f"{cell['state']}: {cell['reason']}"[:300])
        figures = cell["figures"]
        flags = f", {', '.join(cell['flags'])}" if cell["flags"] else ""
        return Outcome(
            PASS,
            f"{figures['samples_per_second']:.1f} samples/s, loss "
            f"{figures['last_loss']:.3f}{flags}",
        )

    return check


def _train(session: Session, precisions: Sequence[str], seconds: float) -> None:
    workload = MODEL if session.cuda else (*SMALL, "--device", "cpu")
    measure = ("--benchmark.measure_seconds=5",) if session.cuda else ON_CPU
    precision = ("--precision", ",".join(precisions), "--launch.isolation=group")
    folder = ("-o", str(session.directory / "training"))
    ran = session.run(
        "benchmark", *workload, *QUICK, *measure, *precision, *folder, "--json", seconds=seconds
    )
    cells = [] if ran.document is None else ran.document["cells"]
    missing = {"state": "missing", "reason": ran.problem()}
    session.cells = dict.fromkeys(("fp32", "bf16", "fp8"), missing)
    session.cells |= {str(cell["cell"]["precision"]): cell for cell in cells}


def event_clock(session: Session, _: float) -> Outcome:
    """Times by CUDA events add up to the wall time around the measured steps."""
    cell = _measured(session)
    record = session.directory / "training" / "cells" / cell["cell_id"] / "launch-0" / "record.json"
    rank = json.loads(record.read_text())["payload"]["ranks"][0]
    by_events = sum(rank["batches"]["seconds"])
    wall = rank["measured_until"] - rank["measured_from"]
    share = by_events / wall
    right = CLOCK_RANGE[0] <= share <= CLOCK_RANGE[1]
    return Outcome(
        PASS if right else FAIL,
        f"{by_events:.2f} s by events in {wall:.2f} s of wall time, {share:.1%}",
    )


def mfu(session: Session, _: float) -> Outcome:
    """Model FLOP/s stay below the device's peak."""
    shares = {
        precision: cell["compute"]["mfu"]
        for precision, cell in session.cells.items()
        if cell["state"] == "ok" and cell["compute"] is not None
    }
    known = {precision: share for precision, share in shares.items() if share is not None}
    if not known:
        return Outcome(NOT_APPLICABLE, "no peak of this device is known")
    figure = ", ".join(f"{precision} {share:.1%}" for precision, share in known.items())
    return Outcome(PASS if all(0 < share < 1 for share in known.values()) else FAIL, figure)


def telemetry(session: Session, _: float) -> Outcome:
    """What NVML told during training is plausible."""
    found = _measured(session)["figures"]["telemetry"]
    if found is None or not found["gpus"]:
        return Outcome(FAIL, "no reading of a GPU" + (f": {found['problem']}" if found else ""))
    gpu = found["gpus"][0]
    watts, celsius, busy, joules = (
        gpu[name] for name in ("power_watts", "temperature_peak_celsius", "busy", "energy_joules")
    )
    figure = (
        f"{watts:.0f} W, {celsius:.0f} °C, busy {busy:.0%}, {gpu['sm_clock_hertz'] / 1e6:.0f} MHz"
    )
    wrong = []
    if not WATTS[0] < watts < WATTS[1] or not CELSIUS[0] < celsius < CELSIUS[1]:
        wrong.append("power or temperature")
    if not 0.05 < busy <= 1:
        wrong.append("share of time busy")
    if joules is not None:
        figure += f", {joules / found['seconds']:.0f} W by its energy counter"
        wrong += [] if 0.5 < joules / found["seconds"] / watts < 2 else ["energy against power"]
    reasons = gpu["throttle_reasons"]
    figure += f", throttle reasons {', '.join(reasons) or 'none'}" if reasons is not None else ""
    return Outcome(FAIL, f"{', '.join(wrong)}: {figure}") if wrong else Outcome(PASS, figure)


def compiled(mode: str) -> Callable[[Session, float], Outcome]:
    """A compiled model trains, and its first loss is that of the model as it is."""

    def check(session: Session, seconds: float) -> Outcome:
        value = "true" if mode == "default" else mode
        folder = ("-o", str(session.directory / f"compiled-{mode}"))
        axis = (f"--model.compile=[false,{value}]", "--benchmark.measure_steps=30")
        ran = session.run("benchmark", *SMALL, *QUICK, *axis, *folder, "--json", seconds=seconds)
        if ran.document is None:
            return Outcome(FAIL, ran.problem())
        cells = {bool(cell["cell"]["compile"]): cell for cell in ran.document["cells"]}
        if cells[True]["state"] == "interrupted":
            return Outcome(NOT_APPLICABLE, f"not compiled within {seconds:.0f} s")
        if any(cell["state"] != "ok" for cell in cells.values()):
            bad = next(cell for cell in cells.values() if cell["state"] != "ok")
            return Outcome(FAIL, f"{bad['state']}: {bad['reason']}"[:300])
        plain, other = cells[False]["figures"], cells[True]["figures"]
        ratio = other["samples_per_second"] / plain["samples_per_second"]
        apart = abs(other["first_loss"] / plain["first_loss"] - 1)
        took = other["compile_seconds"] or 0.0
        figure = f"{ratio:.2f} × the speed, compiled in {took:.0f} s, first loss off by {apart:.1e}"
        return Outcome(PASS if apart <= SAME_LOSS else FAIL, figure)

    return check


def sharded(session: Session, seconds: float) -> Outcome:
    """FSDP on one GPU: a process group of NCCL with one rank, and its hooks."""
    folder = ("-o", str(session.directory / "fsdp"))
    settings = ("--strategy", "fsdp", "--precision", "bf16", "--benchmark.measure_steps=20")
    ran = session.run("benchmark", *SMALL, *QUICK, *settings, *folder, "--json", seconds=seconds)
    return _state_of_cell(ran)


def collectives(session: Session, seconds: float) -> Outcome:
    """``measure collectives`` over two GPUs with two algorithms."""
    count = session.facts["software"]["cuda_devices"]
    if count < 2:
        return Outcome(NOT_APPLICABLE, "one GPU")
    folder = ("-o", str(session.directory / "collectives"))
    sizes = (
        "--op",
        "all_reduce,all_gather",
        "-b",
        "1MiB",
        "-e",
        "64MiB",
        "--algo",
        "Ring,Tree",
        "--gpus",
        str(count),
    )
    ran = session.run("measure", "collectives", *sizes, *folder, "--json", seconds=seconds)
    if ran.document is None:
        return Outcome(FAIL, ran.problem())
    states = {cell["state"] for cell in ran.document}
    curves = [
        curve
        for cell in ran.document
        if cell["figures"] is not None
        for curve in cell["figures"]["curves"]
    ]
    rates = [curve["points"][-1]["busbw"] for curve in curves]
    verdicts = [cell["verdict"]["text"] for cell in ran.document if cell["verdict"] is not None]
    figure = (
        f"up to {max(rates, default=0) / 1e9:.0f} GB/s bus bandwidth; "
        f"{verdicts[0] if verdicts else 'no verdict'}"
    )
    moved = [cell["transport"] for cell in ran.document]
    ways = {
        way["name"] for transport in moved if transport is not None for way in transport["ways"]
    }
    figure = f"moved by {', '.join(sorted(ways)) or 'what is not known'}; {figure}"
    is_known = all(transport is not None and transport["ways"] for transport in moved)
    return Outcome(PASS if states == {"ok"} and is_known else FAIL, figure[:300])


def peak_rates(session: Session, seconds: float) -> Outcome:
    """Measured rates lie below the documented ones, and not far below."""
    sizes = ("--hardware.matmul_sizes=[4096,8192]", "--seconds", "0.1", "--gpus", "1")
    ran = session.run(
        "measure",
        "hardware",
        *sizes,
        "-o",
        str(session.directory / "hardware"),
        "--json",
        seconds=seconds,
    )
    if ran.document is None or ran.document[0]["figures"] is None:
        return Outcome(FAIL, ran.problem() if ran.document is None else ran.document[0]["reason"])
    figures = ran.document[0]["figures"]
    rates = {product["dtype"]: product["peak"] for product in figures["matmuls"]}
    told = ", ".join(f"{dtype} {rate / 1e12:.0f}" for dtype, rate in rates.items()) + " TFLOP/s"
    peaks = _peaks(session.device)
    if peaks is None:
        return Outcome(NOT_APPLICABLE, f"{told}; the device's documented rates are not known")
    above = [
        dtype for dtype, rate in rates.items() if rate > ABOVE_PEAK * peaks.get(dtype, float("inf"))
    ]
    least = {dtype: LEAST_OF_PEAK * peaks.get(dtype, 0.0) for dtype in ("fp16", "bf16")}
    below = [dtype for dtype, rate in least.items() if dtype in rates and rates[dtype] < rate]
    if above or below:
        return Outcome(FAIL, f"{', '.join(above + below)} against the documented rate: {told}")
    return Outcome(PASS, told)


def memory_prediction(session: Session, seconds: float) -> Outcome:
    """The predicted peak is that of the allocator."""
    folder = ("-o", str(session.directory / "memory"))
    ran = session.run(
        "measure", "memory", *MODEL, "--precision", "bf16", *folder, "--json", seconds=seconds
    )
    if ran.document is None or ran.document[0]["state"] != "ok":
        return Outcome(
            FAIL, ran.problem() if ran.document is None else str(ran.document[0]["reason"])
        )
    cell = ran.document[0]
    error, peak = cell["prediction_error"], cell["ranks"][0]["peak_bytes"]
    if error is None:
        return Outcome(FAIL, f"not predicted: {cell['ranks'][0]['not_predicted']}")
    figure = f"peak {peak / 2**30:.2f} GiB, predicted {error:+.1%}"
    return Outcome(PASS if abs(error) <= PREDICTION_ERROR else FAIL, figure)


def max_batch(session: Session, seconds: float) -> Outcome:
    """The search for the largest batch ends with one that fits, below a limit in the allocator."""
    search = (
        "--model",
        "decoder-small",
        "--find-max-batch",
        "--batch-size",
        "2",
        "--largest",
        "16",
        "--limit",
        "8GiB",
    )
    folder = ("-o", str(session.directory / "max-batch"))
    ran = session.run(
        "measure", "memory", *search, "--precision", "bf16", *folder, "--json", seconds=seconds
    )
    if ran.document is None:
        return Outcome(FAIL, ran.problem())
    trials = [f"{trial['batch_size']} {trial['state']}" for trial in ran.document["trials"]]
    sound = ran.document["batch_size"] is not None and all(
        trial.endswith(("ok", "oom")) for trial in trials
    )
    return Outcome(PASS if sound else FAIL, f"{ran.document['batch_size']} ({', '.join(trials)})")


def out_of_memory(session: Session, seconds: float) -> Outcome:
    """A cell above its limit ends as out of memory, and no other way."""
    folder = ("-o", str(session.directory / "oom"))
    ran = session.run(
        "measure", "memory", *MODEL, "--limit", "256MiB", *folder, "--json", seconds=seconds
    )
    if ran.document is None:
        return Outcome(FAIL, ran.problem())
    cell = ran.document[0]
    return Outcome(
        PASS if cell["state"] == "oom" else FAIL, f"{cell['state']}: {cell['reason']}"[:200]
    )


def recorded(tool: str) -> Callable[[Session, float], Outcome]:
    """A recording has kernels in its steps."""

    def check(session: Session, seconds: float) -> Outcome:
        if tool == "nsys" and not (session.facts.get("nsys") or {}).get("path"):
            return Outcome(NOT_APPLICABLE, "nsys is not installed")
        bounds = ("--duration", "2s", "--max-steps", "30", "--gpus", "1", "--tool", tool)
        folder = ("-o", str(session.directory / f"profile-{tool}"))
        ran = session.run("profile", *SMALL, *bounds, *folder, "--json", seconds=seconds)
        if ran.document is None:
            return Outcome(FAIL, ran.problem())
        rank, window = ran.document["per_rank"][0], ran.document["window"]
        share = rank["compute_seconds"] / rank["window_seconds"]
        right = 0 < share <= 1 and bool(window["steps"])
        return Outcome(
            PASS if right else FAIL,
            f"{window['steps']} steps, kernels in {share:.0%} of their time",
        )

    return check


def watched(session: Session, seconds: float) -> Outcome:
    """A program that knows nothing of torchscale is watched: all its steps and collectives are
    seen, their lengths, and its device. They are in NCCL's recorder."""
    ranks = max(1, session.facts["software"].get("cuda_devices") or 1)
    ran = _watch(session, "watched", ranks, "--timing", seconds=seconds)
    if ran.document is None or ran.code != 0:
        return Outcome(FAIL, ran.problem())
    found = ran.document
    device, recorder = ("cuda", "nccl") if session.cuda else ("cpu", "gloo")
    lost = sum(rank["lost_calls"] for rank in found["per_rank"])
    recorded = min(rank["recorders"].get(recorder, 0) for rank in found["per_rank"])
    right = found["steps"] == WATCHED_STEPS and found["device"] == device and not lost
    right = right and recorded >= WATCHED_STEPS
    figure = (
        f"{found['steps']} of {WATCHED_STEPS} steps on {found['device']} over {found['backend']}, "
        f"{recorded} collectives in the recorder of {recorder}, waits by {found['waits_by']}, "
        f"{found['collector_share']:.2%} of a step for the collector"
    )
    problems = [rank["problem"] for rank in found["per_rank"] if rank["problem"]]
    if lost or problems:
        figure += "; " + "; ".join([f"{lost} collectives lost", *problems])
    return Outcome(PASS if right and not problems else FAIL, figure[:300])


def _watch(
    session: Session, name: str, ranks: int, *options: str, job: Sequence[str] = (), seconds: float
) -> Ran:
    """The program under ``watch``, in a folder of this name."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks))
    program = str(session.directory / f"{JOB}.py")
    folder = ("-o", str(session.directory / name))
    command = (sys.executable, *launcher, program, "--steps", str(WATCHED_STEPS), *job)
    return session.run("watch", *folder, *options, "--json", "--", *command, seconds=seconds)


def late_rank_watched(backend: str, strategy: str) -> Callable[[Session, float], Outcome]:
    """Of two ranks on one GPU the one that sleeps before each step is named: over gloo by its calls,
    over NCCL, between which NCCL's sockets carry, by the lengths of collectives."""
    late = "0.02" if backend == "nccl" else "0.006"
    options = ("--timing",) if backend == "nccl" else ()
    apart = ("--apart", "--read-loss") if backend == "nccl" else ()

    def check(session: Session, seconds: float) -> Outcome:
        job = ("--backend", backend, "--strategy", strategy, "--late", late, *apart)
        name = f"late-{backend}-{strategy}"
        ran = _watch(session, name, 2, *options, job=job, seconds=seconds)
        if ran.document is None or ran.code != 0:
            return Outcome(FAIL, ran.problem())
        findings = [item["finding"] for item in ran.document["findings"]]
        return _late_rank(findings, f"{ran.document['backend']}, by {ran.document['waits_by']}")

    return check


def late_rank_launched(strategy: str) -> Callable[[Session, float], Outcome]:
    """The same in a launch of a benchmark."""

    def check(session: Session, seconds: float) -> Outcome:
        folder = ("-o", str(session.directory / f"late-launch-{strategy}"))
        ranks = ("--gpus", "2", "--launch.oversubscribe=true", "--strategy", strategy)
        measure = ("--benchmark.preset=quick", "--benchmark.measure_steps=60", *SHORT_WARMUP)
        model = ("--model", f"{JOB}:build", "--batch-size", "64")
        ran = session.run("benchmark", *model, *ranks, *measure, *folder, "--json", seconds=seconds)
        if ran.document is None:
            return Outcome(FAIL, ran.problem())
        (cell,) = ran.document["cells"]
        if cell["state"] != "ok":
            return Outcome(FAIL, f"{cell['state']}: {cell['reason']}"[:300])
        return _late_rank((cell["diagnosis"] or {}).get("findings", ()), strategy)

    return check


def late_rank_recorded(strategy: str) -> Callable[[Session, float], Outcome]:
    """The same in a recording by torch.profiler."""

    def check(session: Session, seconds: float) -> Outcome:
        folder = ("-o", str(session.directory / f"late-recording-{strategy}"))
        ranks = ("--gpus", "2", "--launch.oversubscribe=true", "--strategy", strategy)
        bounds = ("--duration", "15s", "--max-steps", "40", "--tool", "kineto")
        model = ("--model", f"{JOB}:build", "--batch-size", "64")
        ran = session.run("profile", *model, *ranks, *bounds, *folder, "--json", seconds=seconds)
        if ran.document is None:
            return Outcome(FAIL, ran.problem())
        window = ran.document["window"]
        findings = ran.document["findings"]
        named = any(item["kind"] == "straggler" for item in findings)
        if not named and window["confidence"] == "low":
            return Outcome(NOT_APPLICABLE, f"{strategy}: not judged: {window['reasons'][0]}"[:200])
        return _late_rank(findings, strategy)

    return check


def _late_rank(findings: Sequence[Mapping[str, Any]], what: str) -> Outcome:
    """Whether rank 1 alone is named as late; by how much is in the figure."""
    named = [item for item in findings if item["kind"] == "straggler"]
    told = "; ".join(item["summary"].partition(";")[0] for item in named)
    right = [item["rank"] for item in named] == [1]
    return Outcome(PASS if right else FAIL, f"{what}: {told or 'nobody is named'}"[:200])


def hang_explained(session: Session, seconds: float) -> Outcome:
    """Of two ranks over NCCL the one that does not call a collective is named while the other one
    waits in it."""
    job = ("--apart", "--hang", "16")
    ran = _watch(session, "hang", 2, "--stall", "5s", job=job, seconds=seconds)
    if ran.document is None:
        return Outcome(FAIL, ran.problem())
    verdict = ran.document["autopsy"]
    if verdict is None:
        return Outcome(FAIL, f"not seen; exit code {ran.code}")
    read = next((text for text in verdict["evidence"] if "recorders read" in text), "")
    right = verdict["ranks"] == [1] and verdict["collective"] is not None
    return Outcome(PASS if right else FAIL, f"{verdict['summary']}; {read}"[:300])


def graphs_beside_watch(session: Session, seconds: float) -> Outcome:
    """The collector's readings of the flight recorders leave the capture of CUDA graphs alone."""
    ran = _watch(session, "graphs", 1, job=("--capture",), seconds=seconds)
    if ran.code != 0 or ran.document is None:
        return Outcome(FAIL, ran.problem())
    read = ran.document["per_rank"][0]["recorders"]
    return Outcome(PASS, f"two graphs captured beside readings; {read}")


def timing_cost(session: Session, seconds: float) -> Outcome:
    """What timing costs; no limit is judged."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1")
    ran = session.python(*launcher, str(session.directory / f"{JOB}.py"), "--cost", seconds=seconds)
    return Outcome(PASS if ran.code == 0 else FAIL, ran.said if ran.code == 0 else ran.problem())


def brought_back(session: Session, seconds: float) -> Outcome:
    """Small files for who develops this: dumps of the recorders, a recording, facts, records."""
    folder = session.directory / BROUGHT
    folder.mkdir(exist_ok=True)
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1")
    program = (str(session.directory / f"{JOB}.py"), "--steps", "20", "--dump", str(folder))
    ran = session.python(*launcher, *program, seconds=seconds)
    facts = json.dumps(session.facts, indent=1)
    (folder / "facts.json").write_text(facts, encoding="utf-8")
    wanted = ("**/record.json", "**/watch.json", "**/*trace*.json*", "hang/hang/*.json")
    for path in sorted(found for pattern in wanted for found in session.directory.glob(pattern)):
        if BROUGHT not in path.parts and path.stat().st_size <= MOST_BYTES:
            name = "-".join(path.relative_to(session.directory).parts)
            shutil.copy(path, folder / name)
    sizes = [path.stat().st_size for path in folder.iterdir()]
    figure = f"{len(sizes)} files, {sum(sizes) / 1e6:.1f} MB in {BROUGHT}/"
    return Outcome(PASS, figure) if ran.code == 0 else Outcome(FAIL, ran.problem())


def report(session: Session, seconds: float) -> Outcome:
    """The report of the training cells is written."""
    folder = session.directory / "training"
    ran = session.run("report", str(folder), "--format", "md,csv,json", seconds=seconds)
    sizes = {path.name: path.stat().st_size for path in folder.glob("report.*")}
    whole = (
        ran.code == 0
        and {"report.md", "report.csv", "report.json"} <= sizes.keys()
        and min(sizes.values()) > 0
    )
    return Outcome(PASS, ", ".join(sorted(sizes))) if whole else Outcome(FAIL, ran.problem())


CHECKS = (
    Check("validate", 120, validate, on_cpu=True),
    Check("device in the catalogue", 5, device_known),
    Check("driver (NVML)", 5, driver),
    Check("NCCL all-reduce", 5, nccl),
    Check("training in fp32", 150, training("fp32"), on_cpu=True),
    Check("training in bf16", 5, training("bf16")),
    Check("training in fp8", 5, training("fp8")),
    Check("CUDA events against wall clock", 5, event_clock),
    Check("MFU below 100 %", 5, mfu),
    Check("telemetry", 5, telemetry),
    Check("report", 30, report, on_cpu=True),
    Check("peak rates", 60, peak_rates),
    Check("cost of timing", 60, timing_cost),
    Check("late rank over gloo, DDP, recording", 80, late_rank_recorded("ddp")),
    Check("late rank over gloo, FSDP2, recording", 80, late_rank_recorded("fsdp")),
    Check("collectives", 90, collectives),
    Check("compile max-autotune", 240, compiled("max-autotune"), beside=True),
    Check("watch and NCCL's recorder", 80, watched, on_cpu=True, beside=True),
    Check("late rank over NCCL, watch", 80, late_rank_watched("nccl", "ddp"), beside=True),
    Check("late rank over gloo, DDP, watch", 80, late_rank_watched("gloo", "ddp"), beside=True),
    Check("late rank over gloo, FSDP2, watch", 80, late_rank_watched("gloo", "fsdp"), beside=True),
    Check("late rank over gloo, DDP, launch", 80, late_rank_launched("ddp"), beside=True),
    Check("late rank over gloo, FSDP2, launch", 80, late_rank_launched("fsdp"), beside=True),
    Check("hang over NCCL", 80, hang_explained, beside=True),
    Check("graphs beside watch", 80, graphs_beside_watch, beside=True),
    Check("memory predicted", 60, memory_prediction, beside=True),
    Check("out of memory", 60, out_of_memory, beside=True),
    Check("torch.profiler", 60, recorded("kineto"), beside=True),
    Check("nsys", 90, recorded("nsys"), beside=True),
    Check("FSDP over NCCL", 60, sharded, beside=True),
    Check("compile", 120, compiled("default"), beside=True),
    Check("compile reduce-overhead", 120, compiled("reduce-overhead"), beside=True),
    Check("largest batch", 120, max_batch, beside=True),
    Check("brought back", 60, brought_back, on_cpu=True),
)
"""In the order of what they tell in the time that is there; those that judge times run alone."""


def _measured(session: Session) -> dict[str, Any]:
    """The training cell that others are checked on: bf16's, else fp32's.

    Raises:
        ValueError: neither was measured.
    """
    for precision in ("bf16", "fp32"):
        cell = session.cells.get(precision)
        if cell is not None and cell["state"] == "ok":
            return cell
    raise ValueError("no training cell was measured")


def _state_of_cell(ran: Ran) -> Outcome:
    if ran.document is None:
        return Outcome(FAIL, ran.problem())
    cell = ran.document["cells"][0]
    if cell["state"] != "ok":
        return Outcome(FAIL, f"{cell['state']}: {cell['reason']}"[:300])
    return Outcome(PASS, f"{cell['figures']['samples_per_second']:.0f} samples/s")


def _peaks(device: str) -> Mapping[str, float] | None:
    """Documented FLOP/s of a device by dtype."""
    from torchscale.catalog.devices import find_device  # noqa: PLC0415 - the path to it is set by main

    facts = find_device(device)
    return None if facts is None else facts.peak_flops


def table(rows: Sequence[tuple[str, Outcome]]) -> str:
    """The rows under a head, in columns as wide as they need."""
    lines = [
        ("check", "result", "figure"),
        *((name, outcome.result, outcome.figure) for name, outcome in rows),
    ]
    widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
    shown = [
        f"{line[0]:<{widths[0]}} | {line[1]:<{widths[1]}} | {line[2]}".rstrip() for line in lines
    ]
    rule = f"{'-' * widths[0]}-+-{'-' * widths[1]}-+-{'-' * 40}"
    return "\n".join([shown[0], rule, *shown[1:]]) + "\n"


def heading(facts: Mapping[str, Any]) -> str:
    """What was checked, in one line: nothing that names the machine or its user."""
    software, found, tool = (facts.get(name) or {} for name in ("software", "driver", "nsys"))
    gpus = found.get("gpus") or ()
    parts = [
        f"{len(gpus)} × {gpus[0]['name']}" if gpus else "no GPU",
        f"driver {found.get('version')}" if found.get("version") else "",
        f"PyTorch {software.get('torch')}",
        f"NCCL {software['nccl']}" if software.get("nccl") else "",
        f"nsys {tool['version']}" if tool.get("version") else "",
        f"Python {software.get('python')}",
    ]
    return ", ".join(part for part in parts if part)


def wheels_to_unpack(wheels: Sequence[Path], installed: Callable[[str], str | None]) -> list[Path]:
    """The wheels whose package is not installed, or is older; those in ``KEPT`` only if they are
    missing."""
    chosen = []
    for wheel in wheels:
        name, version = wheel.name.split("-")[:2]
        name = name.lower().replace("_", "-")
        present = installed(name)
        if present is None or (name not in KEPT and _numbers(present) < _numbers(version)):
            chosen.append(wheel)
    return chosen


def is_for(wheel: Path, python: tuple[int, int]) -> bool:
    """Whether the wheel runs with this version of Python, by its name."""
    versions, abi, _ = wheel.stem.split("-")[-3:]
    for version in versions.split("."):
        kind, number = version[:2], version[2:]
        if kind == "py" and number.startswith("3"):
            return True
        if kind == "cp" and number[1:].isdigit():
            least = int(number[0]), int(number[1:])
            if least == python or (abi == "abi3" and least <= python):
                return True
    return False


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:4])


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def pack(directory: Path, python: str | None) -> int:
    """Fetch the wheels that torchscale needs besides torch. Returns the exit code."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    asked = [
        match[0]
        for match in re.finditer(r"(?<=\")([\w-]+)>=[\d.]+(?=\")", text)
        if match[1] in NEEDED
    ]
    directory.mkdir(parents=True, exist_ok=True)
    for wheel in directory.glob("*.whl"):
        wheel.unlink()
    version = [] if python is None else ["--python-version", python]
    options = ["--only-binary=:all:", "--dest", str(directory), *version]
    done = subprocess.run([sys.executable, "-m", "pip", "download", *options, *asked], check=False)
    size = sum(wheel.stat().st_size for wheel in directory.glob("*.whl"))
    sys.stdout.write(f"{directory}: {size / 2**20:.1f} MiB\n")
    if size > MOST_WHEEL_BYTES:
        sys.stdout.write(
            f"more than {MOST_WHEEL_BYTES >> 20} MiB: leave out what the GPU machine has\n"
        )
    return done.returncode or int(size > MOST_WHEEL_BYTES)


def run_checks(directory: Path, wheels: Path, only: Sequence[str], seconds: float) -> int:
    """Run the checks, or ``validate`` and those named in ``only``, with their files in
    ``directory``, within ``seconds``. Returns the exit code: 1 if any failed, 2 where wheels are
    for another Python."""
    chosen_wheels = wheels_to_unpack(sorted(wheels.glob("*.whl")), _installed)
    python = sys.version_info[:2]
    version = ".".join(map(str, python))
    packages = directory / f"packages-{version}"
    other = [wheel.name for wheel in chosen_wheels if not is_for(wheel, python)]
    if other:
        sys.stderr.write(
            f"error: {wheels / other[0]} is not for Python {version}, which runs the checks; fetch "
            f"those for it: scripts/gpu_check.sh pack --python {version}\n"
        )
        return 2
    for wheel in chosen_wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(packages)
    paths = [str(ROOT), str(packages)]
    sys.path[:0] = paths
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]).strip(":"),
    }
    shutil.copy(ROOT / "scripts" / f"{JOB}.py", directory)
    session = Session(directory, environment, time.monotonic() + seconds)
    rows: list[tuple[str, Outcome]] = []

    def note(check: Check, outcome: Outcome) -> None:
        rows.append((check.name, outcome))
        sys.stderr.write(f"{check.name}: {outcome.result}: {outcome.figure}\n")

    began = time.monotonic()
    chosen = [check for check in CHECKS if not only or check.name in (CHECKS[0].name, *only)]
    sound = perform(chosen, session, note)
    text = f"{heading(session.facts)}\n\n{table(rows)}\n{time.monotonic() - began:.0f} s\n"
    (directory / "gpu_check.txt").write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    return 0 if sound else 1


def main(arguments: Sequence[str]) -> int:
    """``pack``, or the checks. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="gpu_check.sh", description="Check torchscale's CUDA paths on this machine."
    )
    parser.add_argument("mode", nargs="?", choices=["run", "pack"], default="run")
    parser.add_argument(
        "directory", nargs="?", type=Path, help="pack: for the wheels; run: for results, kept"
    )
    parser.add_argument(
        "--wheels", type=Path, default=WHEELS, help=f"run: where pack put them (default {WHEELS})"
    )
    parser.add_argument(
        "--python", metavar="VERSION", help="pack: of the GPU machine, such as 3.12"
    )
    names = [check.name for check in CHECKS]
    meaning = "run: validate and this check; may be repeated: " + ", ".join(names).replace(
        "%", "%%"
    )
    parser.add_argument(
        "--only", metavar="CHECK", action="append", default=[], choices=names, help=meaning
    )
    parser.add_argument(
        "--seconds", type=float, default=ALL_SECONDS, help="run: for all (default %(default).0f)"
    )
    given = parser.parse_args(arguments)
    if given.mode == "pack":
        return pack(given.directory or WHEELS, given.python)
    if given.directory is not None:
        given.directory.mkdir(parents=True, exist_ok=True)
        return run_checks(given.directory.resolve(), given.wheels, given.only, given.seconds)
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as scratch:
        return run_checks(Path(scratch), given.wheels, given.only, given.seconds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
