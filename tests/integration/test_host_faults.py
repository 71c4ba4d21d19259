"""A host that lacks something: space, descriptors, a home, an encoding, a network. A command works,
or says what is wrong; nothing is left behind."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.campaign import cases, tell_fault
from tests.store.test_run_folder import measured

from .conftest import CATALOGUED, FAST, Program
from .faults import Done, Fault, can_unshare, exit_code, injected

pytestmark = [pytest.mark.integration, pytest.mark.real]

CGROUP = Path("/sys/fs/cgroup/memory")
MARKDOWN = ("report", "results/run", "--format", "md", "--output", "out.md")
TERMINAL = ("report", "results/run", "--format", "terminal")
SWEEP = ("benchmark", "config.json")
TRAINING = """
import sys, time, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
until = time.monotonic() + 4
while time.monotonic() < until:
    model(torch.ones(4)).sum().backward()
    optimizer.step()
sys.exit(7)
"""
NO_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def results(program: Program) -> None:
    """A measured run."""
    measured(program.directory / "results" / "run")


def trained(program: Program) -> None:
    """A program that trains for four seconds and exits with 7."""
    (program.directory / "train.py").write_text(TRAINING)


def config(program: Program, **content: Any) -> None:
    """A sweep of one cell of one rank."""
    program.config(**{"models": {"name": "faulty:build"}, "gpu_counts": [1], **content})


def catalogued(program: Program) -> None:
    """One of a catalogued model."""
    config(program, models=CATALOGUED)


def loading(program: Program) -> None:
    """One with processes that load data."""
    data = {"source": "shards", "data_dir": "data", "workers": 2, "total_mb": 1, "num_samples": 64}
    config(program, models="tiny-resnet", data=data)


def two_ranks(program: Program) -> None:
    """A sweep of one cell of two ranks."""
    config(program, gpu_counts=[2])


def bounded(program: Program) -> None:
    """A sweep of one cell that nothing but its budget ends within a minute."""
    endless = {
        "max_seconds": 60.0,
        "max_steps": 10**6,
        "target_half_width": 1e-6,
        "warmup_seconds": 3.0,
    }
    config(
        program,
        models=CATALOGUED,
        benchmark={"preset": "quick", "cell_seconds": 12.0, **endless},
    )


def raising(program: Program) -> None:
    """A rank that fails, and so writes why."""
    config(
        program,
        models={"name": "faulty:build", "fault": "raise"},
        benchmark={**FAST, "max_seconds": 60.0},
    )


def growing(program: Program) -> None:
    """A model that takes more and more memory."""
    config(program, models={"name": "hostile:build", "kind": "grows"})


def sound_times(program: Program, done: Done) -> str:
    """Of a record: durations are what they were, whatever the wall clock says."""
    (record,) = program.records().values()
    assert record["state"] == "ok"
    (rank,) = record["payload"]["ranks"]
    measured = sum(rank["batches"]["seconds"])
    assert 0 < measured < record["seconds"] < 120
    telemetry = record["telemetry"]
    readings = "no telemetry" if telemetry is None else f"{telemetry['readings']} readings"
    return f"exit {done.returncode}, ok, {record['seconds']:.0f} s, {readings}"


def ended_by_its_budget(program: Program, done: Done) -> str:
    """Of a record: the budget is of real time. By a clock that went back by two hours it would
    last as long; a busy machine takes twenty seconds."""
    (record,) = program.records().values()
    assert record["state"] == "ok"
    assert {rank["stop_rule"] for rank in record["payload"]["ranks"]} == {"budget"}
    assert 6.0 < record["seconds"] < 120.0
    return f"exit {done.returncode}, ok, {record['seconds']:.0f} s"


def all_ok(program: Program, done: Done) -> str:
    """The state of each launch, which is ok."""
    states = [record["state"] for record in program.records().values()]
    assert set(states) == {"ok"}
    return f"exit {done.returncode}, {', '.join(states)}"


def reasons(program: Program, done: Done) -> str:
    """State and reason of each launch."""
    records = program.records() if (program.directory / "results/run").exists() else {}
    told = [f"{record['state']}: {record['reason']}" for record in records.values()]
    return f"exit {done.returncode}, {'; '.join(told) or 'no record'}"


def full(name: str, pattern: str, codes: tuple[int, ...], said: str, **changes: Any) -> Fault:
    """A disk that is full when files of one kind are written."""
    given: dict[str, Any] = {
        "argv": SWEEP,
        "prepare": config,
        "look": reasons,
        "leaves": ("results",),
        **changes,
    }
    variables = {"TORCHSCALE_TEST_FULL": pattern, "PYTHONPATH": injected()}
    return Fault(
        f"full disk: {name}",
        "the file cannot be made",
        codes=codes,
        said=said,
        variables=variables,
        **given,
    )


def swept(
    name: str, how: str, codes: tuple[int, ...] = (0,), said: str = "", **changes: Any
) -> Fault:
    """A sweep on a host that lacks something."""
    given: dict[str, Any] = {"prepare": config, "leaves": ("results",), **changes}
    given.setdefault("look", all_ok if codes == (0,) else reasons)
    return Fault(name, how, SWEEP, codes, said, **given)


def small_disk(size: str) -> Fault:
    """A file system of this size for the results: it is full somewhere on the way."""
    return swept(
        f"a disk of {size} for the results",
        "tmpfs in a private mount namespace",
        (0, 1, 3),
        "No space left on device|the disk of the results has .* free| ok",
        namespace="-rm",
        script=f'mkdir "$D/results"; mount -t tmpfs -o size={size} none "$D/results"',
        look=exit_code,
    )


NO_SPACE = "No space left on device"
ALWAYS = [
    Fault(
        "a file size of 100 bytes",
        "RLIMIT_FSIZE",
        MARKDOWN,
        (3,),
        "cannot write",
        results,
        # Python would write truncated bytecode of what nobody has imported yet, and stumble over it.
        variables={"PYTHONDONTWRITEBYTECODE": "1"},
        limits={resource.RLIMIT_FSIZE: 100},
    ),
    Fault(
        "a report without home and TMPDIR",
        "variables",
        MARKDOWN,
        prepare=results,
        variables={"HOME": None, "TMPDIR": "/not/there"},
        leaves=("out.md",),
    ),
    Fault(
        "an ASCII terminal",
        "locale C, strict",
        TERMINAL,
        prepare=results,
        variables={**NO_LOCALE, "PYTHONIOENCODING": "ascii:strict"},
    ),
    full(
        "torchrun.log",
        r"torchrun\.log",
        (3,),
        r"cannot write .*torchrun\.log: No space left on device",
        prepare=catalogued,
    ),
    swept(
        "the wall clock goes back while a budget bounds a launch",
        "time.time replaced in every process",
        variables={"PYTHONPATH": injected(), "TORCHSCALE_TEST_CLOCK": "{soon}"},
        prepare=bounded,
        look=ended_by_its_budget,
    ),
    full("logs of ranks", r"stderr\.log", (1,), f"OSError: .*{NO_SPACE}", prepare=catalogued),
]
CAMPAIGN = [
    Fault(
        "a Latin-1 terminal",
        "variables",
        TERMINAL,
        prepare=results,
        variables={"PYTHONIOENCODING": "latin-1"},
    ),
    Fault(
        "a report with 32 descriptors",
        "RLIMIT_NOFILE",
        MARKDOWN,
        prepare=results,
        limits={resource.RLIMIT_NOFILE: 32},
        leaves=("out.md",),
    ),
    Fault(
        "a disk of 200k for what watch collects",
        "tmpfs in a private mount namespace",
        ("watch", "--output-dir", "disk/job", "--", sys.executable, "train.py"),
        (7,),
        "goodput at least .*No space left on device.*Wrote disk/job/watch.json",
        trained,
        variables={"TORCHINDUCTOR_CACHE_DIR": "{directory}/inductor"},  # torch makes it by itself
        namespace="-rm",
        script='mkdir "$D/disk"; mount -t tmpfs -o size=200k none "$D/disk"',
        leaves=("disk", "inductor"),
    ),
    Fault(
        "an argument that is no text",
        "locale C",
        ("report", "results/run", "--output", "b\u00e9richt.md"),
        (2,),
        "not text in the encoding of this terminal",
        results,
        variables=NO_LOCALE,
    ),
    *(
        Fault(
            f"full disk: {name}",
            "the file cannot be made",
            ("report", "results/run", "--format", kind, "--output", name),
            (3,),
            f"cannot write {name}: {NO_SPACE}",
            results,
            variables={"TORCHSCALE_TEST_FULL": rf"\.{name}\.", "PYTHONPATH": injected()},
        )
        for kind, name in (
            ("html", "out.html"),
            ("pdf", "out.pdf"),
            ("csv", "out.csv"),
            ("json", "out.json"),
        )
    ),
    Fault(
        "a working directory that is gone",
        "removed in the shell before the command",
        ("report", "results/run"),
        (2,),
        "the working directory cannot be used",
        results,
        namespace="-rm",
        script='mkdir "$D/gone"; cd "$D/gone"; rmdir "$D/gone"',
    ),
    Fault(
        "a report without /proc",
        "tmpfs over it",
        MARKDOWN,
        prepare=results,
        namespace="-rm",
        script="mount -t tmpfs none /proc",
        leaves=("out.md",),
    ),
    full("record.json", r"\.record\.json", (3,), rf"cannot write .*record\.json: {NO_SPACE}"),
    full(
        "experiment.json",
        r"\.experiment\.json",
        (3,),
        rf"cannot write .*experiment\.json: {NO_SPACE}",
    ),
    full("the lock", r"\.lock$", (3,), rf"cannot create results/run/\.lock: {NO_SPACE}"),
    full("cell.json", r"\.cell\.json", (3,), rf"cannot write .*cell\.json: {NO_SPACE}"),
    full("task.json", r"\.task\.json", (3,), rf"cannot write .*task\.json: {NO_SPACE}"),
    full("records of ranks", r"\.rank-0\.json", (1,), NO_SPACE),
    full("steps of ranks", "steps-rank-0", (1,), NO_SPACE),
    full("errors of ranks", "error-rank-0", (1,), "its log ends with .*Error: ", prepare=raising),
    full("progress", r"progress\.jsonl", (1,), NO_SPACE),
    full("telemetry", "telemetry", (0,), "", look=all_ok),
    full("summary.csv", r"summary\.csv", (0,), rf"cannot write .*summary\.csv: {NO_SPACE}"),
    *(
        small_disk(f"{size}k")
        for size in (4, 12, 20, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 4096)
    ),
    swept("no home and no TMPDIR", "variables", variables={"HOME": None, "TMPDIR": "/not/there"}),
    swept(
        "no /proc",
        "tmpfs over it",
        (3,),
        "/proc is not mounted",
        namespace="-rm",
        script="mount -t tmpfs none /proc",
        look=reasons,
    ),
    swept(
        "64 descriptors", "RLIMIT_NOFILE", limits={resource.RLIMIT_NOFILE: 64}, prepare=two_ranks
    ),
    swept(
        "32 descriptors",
        "RLIMIT_NOFILE",
        (0, 1),
        limits={resource.RLIMIT_NOFILE: 32},
        prepare=two_ranks,
    ),
    swept(
        "16 descriptors",
        "RLIMIT_NOFILE",
        (1, 3),
        "Too many open files|Failed to init uv loop",
        limits={resource.RLIMIT_NOFILE: 16},
        prepare=two_ranks,
    ),
    swept(
        "address space of 3.5 GiB",
        "RLIMIT_AS",
        (1,),
        "oom: .*rank 0: ",
        limits={resource.RLIMIT_AS: 7 * 2**29},
        prepare=growing,
    ),
    swept(
        "the wall clock goes back by two hours",
        "time.time replaced in every process",
        variables={"PYTHONPATH": injected(), "TORCHSCALE_TEST_CLOCK": "{soon}"},
        look=sound_times,
    ),
    swept("locale C", "variables", variables=NO_LOCALE),
    swept("locale POSIX", "variables", variables={**NO_LOCALE, "LC_ALL": "POSIX", "LANG": "POSIX"}),
    swept(
        "locale ISO-8859-1",
        "variables",
        variables={"LC_ALL": "en_US.ISO-8859-1", "PYTHONIOENCODING": "latin-1"},
    ),
    swept(
        "/dev/shm of 64 KiB with loaders",
        "tmpfs in a private mount namespace",
        (1,),
        "/dev/shm has .* of 64.0 KiB free",
        namespace="-rm",
        script="mount -t tmpfs -o size=64k none /dev/shm",
        prepare=loading,
        leaves=("results", "data"),
    ),
    swept(
        "a read-only working directory",
        "read-only bind mount",
        (3,),
        "cannot create results/run: Read-only file system",
        namespace="-rm",
        script='mount --bind "$D" "$D"; mount -o remount,ro,bind "$D"; mount -t tmpfs none '
        '"$D/tmp"; cd "$D"',
        leaves=(),
    ),
    swept(
        "localhost cannot be resolved",
        "empty /etc/hosts, a network of its own",
        namespace="-rmn",
        script="mount --bind /dev/null /etc/hosts; mount --bind /dev/null /etc/resolv.conf; ip "
        "link set lo up",
        prepare=two_ranks,
    ),
    swept(
        "the loopback interface is down",
        "a network of its own",
        (3,),
        "ranks cannot reach each other over 127.0.0.1",
        namespace="-rn",
        prepare=two_ranks,
    ),
]


@pytest.mark.parametrize("fault", cases(ALWAYS, CAMPAIGN), ids=lambda fault: fault.name)
def test_a_host_that_lacks_something(
    program: Program, fault: Fault, record_property: Callable[[str, object], None]
) -> None:
    if fault.namespace and not can_unshare(fault.namespace):
        tell_fault(
            record_property,
            fault.name,
            fault.how,
            fault.expected,
            "not possible here: no namespaces",
        )
        pytest.skip(f"no unshare {fault.namespace} here")
    tell_fault(record_property, fault.name, fault.how, fault.expected, fault.cause(program))


@pytest.mark.campaign
def test_the_kernel_runs_out_of_memory(
    program: Program, record_property: Callable[[str, object], None]
) -> None:
    """A memory cgroup of 900 MiB around the whole command."""
    row = (
        "the kernel's out-of-memory killer",
        "a memory cgroup of 900 MiB",
        "exit 1, oom: killed by the kernel",
    )
    group = CGROUP / f"torchscale-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        tell_fault(record_property, *row, f"not possible here: {error}")
        pytest.skip(f"no memory cgroup can be made: {error}")
    try:
        (group / "memory.limit_in_bytes").write_text(str(900 * 2**20))
        growing(program)
        joins = f'echo $$ > {group}/cgroup.procs; exec "$@"'
        done = subprocess.run(
            ["/bin/sh", "-c", joins, "sh", *program.argv(*SWEEP)],
            cwd=program.directory,
            env=program.env(),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        seen = reasons(program, done)
        tell_fault(record_property, *row, seen)
        assert done.returncode == 1, done.stderr
        assert "oom: rank 0 was killed by the kernel: the host ran out of memory" in seen
        assert program.leftovers() == []
    finally:
        group.rmdir()


@pytest.mark.campaign
def test_a_port_that_is_taken(
    program: Program, record_property: Callable[[str, object], None]
) -> None:
    results(program)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = program.run("report", "serve", "results/run", "--port", str(port))
    tell_fault(
        record_property,
        "report serve: the port is taken",
        "a server on it",
        "exit 3",
        f"exit {done.returncode}",
    )
    assert done.returncode == 3
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in done.stderr


@pytest.mark.campaign
def test_two_sweeps_on_the_same_devices(
    program: Program, record_property: Callable[[str, object], None]
) -> None:
    """Each measures what it gets; that another one computes there is flagged."""
    names = []
    for number in range(2):
        measures = {**FAST, "min_seconds": 3.0, "max_seconds": 4.0, "max_steps": 100_000}
        names.append(
            program.config(
                f"{number}.json",
                experiment_name=f"run-{number}",
                models="tiny-resnet",
                gpu_counts=[2],
                benchmark=measures,
            )
        )
    sweeps = [program.start("benchmark", name) for name in names]
    outputs = [sweep.communicate(timeout=180)[0] for sweep in sweeps]
    codes = [sweep.returncode for sweep in sweeps]
    flagged = sum("contended" in output for output in outputs)
    seen = f"exit {codes}, {flagged} flagged as contended"
    tell_fault(
        record_property,
        "two sweeps on the same devices",
        "both at once",
        "exit 0, flagged as contended",
        seen,
    )
    assert codes == [0, 0], outputs
    assert flagged >= 1
    assert program.leftovers() == []
