"""Slurm: the batch script of a benchmark."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torchscale.errors import UsageError
from torchscale.features.cluster.submit.slurm_script import (
    JOINED_END,
    JOINED_START,
    LED_END,
    LED_START,
    SCRIPT,
)
from torchscale.util.optional import optional

_TIME = re.compile(
    r"\d{1,7}|\d{1,7}:\d{1,2}|\d{1,5}:\d{1,2}:\d{1,2}|\d{1,4}-\d{1,2}(:\d{1,2}){0,2}", re.ASCII
)
"""Times as sbatch reads ``--time``: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S."""
_NAME = re.compile(r"[A-Za-z0-9_.][\w.,+@-]*", re.ASCII)
"""Names of accounts, partitions, QOS and jobs."""
_OPTION = re.compile(r"[a-z][a-z0-9-]+")
# fmt: off
_SET_BY_SUBMIT = frozenset({
    "account", "array", "batch", "chdir", "cpus-per-task", "export", "export-file", "gpus-per-node", "job-name",
    "no-kill", "no-requeue", "nodes", "nodelist-file", "ntasks", "ntasks-per-node", "open-mode", "output", "parsable",
    "partition", "qos", "requeue", "signal", "test-only", "time", "wait", "wrap",
})
# fmt: on
_END_MARK = "TORCHSCALE_CONFIG"
_WAIT_SECONDS = 60
"""Seconds to wait for the other nodes, after the first task has ended."""
_SIGNAL_SECONDS = 120
"""Seconds before the time limit: a launch ends within its grace period, and the report is
written."""
_MOST_REQUEUES = 50
"""A job whose time does not suffice for a single launch must not come back forever."""


@dataclass(frozen=True)
class SlurmJob:
    """What a batch script is made from.

    Attributes:
        config: The experiment as YAML, which the script carries.
        directory: The run folder, absolute; all nodes see it.
        working_directory: Where the job runs, so that relative paths of the config hold.
        command: argv that runs torchscale, unless in a container; an interpreter comes first.
        nodes: How many.
        time: Limit, as sbatch reads it.
        job_name: Name of the job.
        container: Image for the steps (``srun --container-image`` of the pyxis plugin): then every
            node's torchscale joins that of the first one.
        options: Further options of sbatch; a value of ``None`` is a flag.
    """

    config: str
    directory: Path
    working_directory: Path
    command: tuple[str, ...]
    nodes: int
    time: str
    job_name: str
    gpus_per_node: int | None = None
    cpus_per_task: int | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    container: str | None = None
    options: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def state_directory(self) -> Path:
        """Directory beside the run folder with script, log, config, token and exit code of each
        job."""
        return self.directory.with_name(f"{self.directory.name}.submit")


def parse_options(texts: list[str]) -> dict[str, str | None]:
    """Options of sbatch from ``NAME=VALUE``, or ``NAME`` for a flag.

    Raises:
        UsageError: an option is none, or is set by the script itself.
    """
    options: dict[str, str | None] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.removeprefix("--")
        if not _OPTION.fullmatch(key):
            raise UsageError(
                f"--sbatch-option {text!r}: expected NAME=VALUE, or NAME",
                hint="for example --sbatch-option exclusive",
            )
        if key in _SET_BY_SUBMIT:
            raise UsageError(
                f"--sbatch-option {key}: set by the script itself",
                hint="see `torchscale submit --help`",
            )
        options[key] = value if equals else None
    return options


def check_job(job: SlurmJob) -> None:
    """Refuse what would not reach sbatch, srun or bash as it was written.

    Raises:
        UsageError: one line that names the option and the value.
    """
    if not _TIME.fullmatch(job.time):
        raise UsageError(
            f"--time {job.time!r}: expected H:M:S, D-H:M:S or minutes",
            hint="for example --time 2:00:00",
        )
    names = {
        "--job-name": job.job_name,
        "--account": job.account,
        "--partition": job.partition,
        "--qos": job.qos,
    }
    for option, name in names.items():
        if name is not None and not _NAME.fullmatch(name):
            raise UsageError(
                f"{option} {name!r}: expected letters, digits and . _ , + @ -, not beginning with "
                "-",
            )
    _check_text("--container", job.container, "\"'\\#")
    for key, value in job.options.items():
        _check_text(f"--sbatch-option {key}", value, "\"'\\#")
    # % begins a placeholder in sbatch's --output.
    _check_text("--output-dir", str(job.directory), "\"'\\#%")
    _check_text("the working directory", str(job.working_directory), "")
    if job.container is not None:
        for directory in (job.directory, job.working_directory):
            # They separate mounts.
            _check_text("with --container, the directory", str(directory), ":,")


def _check_text(what: str, text: str | None, refused: str) -> None:
    if text is None:
        return
    if not text or text.startswith("-") or not text.isprintable():
        raise UsageError(f"{what} {text!r}: expected printable text that does not begin with -")
    wrong = sorted(set(text) & set(refused))
    if wrong:
        raise UsageError(
            f"{what} {text!r}: {wrong[0]} cannot be used here", hint="choose another name"
        )


def render_script(job: SlurmJob) -> str:
    """The batch script; it needs nothing beside itself but its log's directory, which sbatch does
    not make.

    Raises:
        UsageError: as :func:`check_job`.
    """
    check_job(job)
    mark = f"{_END_MARK}_{hashlib.sha256(job.config.encode()).hexdigest()[:12]}"
    state = shlex.quote(str(job.state_directory))
    start, end = LED_START, LED_END
    if job.container is not None:  # no srun in a container: its nodes join by themselves
        start, end = JOINED_START, JOINED_END
    start = start.format(
        python=shlex.quote(job.command[0]),
        command=shlex.join(job.command),
        nodes="--nnodes 1" if job.nodes == 1 else f"--engine slurm --nnodes {job.nodes}",
        srun=" ".join(_srun(job)),
        signal_seconds=_SIGNAL_SECONDS,
    )
    return SCRIPT.format(
        directives="\n".join(_directives(job)),
        state=state,
        directory=shlex.quote(str(job.directory)),
        working_directory=shlex.quote(str(job.working_directory)),
        config=job.config if job.config.endswith("\n") else f"{job.config}\n",
        mark=mark,
        start=start,
        end=end,
        requeues=_MOST_REQUEUES,
    )


def _directives(job: SlurmJob) -> list[str]:
    given: dict[str, str | None] = {
        "job-name": job.job_name,
        "nodes": str(job.nodes),
        "ntasks-per-node": "1",
        "time": job.time,
        "gpus-per-node": optional(str, job.gpus_per_node),
        "cpus-per-task": optional(str, job.cpus_per_task),
        "account": job.account,
        "partition": job.partition,
        "qos": job.qos,
        "output": str(job.state_directory / "slurm-%j.out"),
        "open-mode": "append",
        "export": "ALL",
        "signal": f"B:TERM@{_SIGNAL_SECONDS}",
    }
    options = (
        {key: value for key, value in given.items() if value is not None}
        | {"requeue": None, "no-kill": None}
        | dict(job.options)
    )
    texts = [
        f"--{key}" if value is None else f"--{key}={_directive_value(value)}"
        for key, value in options.items()
    ]
    return [f"#SBATCH {text}" for text in texts]


def _directive_value(value: str) -> str:
    """The value of a directive, in quotes where it has spaces; quotes in it were refused."""
    if " " in value:
        return f'"{value}"'
    return value


def _srun(job: SlurmJob) -> list[str]:
    words = [
        "--ntasks-per-node=1",
        f"--wait={_WAIT_SECONDS}",
        "--kill-on-bad-exit=1",
        "--export=ALL",
    ]
    if job.cpus_per_task is not None:  # srun does not take it over from sbatch since Slurm 22.05
        words.append('--cpus-per-task="$SLURM_CPUS_PER_TASK"')
    if job.container is not None:
        mounts = dict.fromkeys((str(job.working_directory), str(job.directory.parent)))
        words += [
            shlex.quote(f"--container-image={job.container}"),
            shlex.quote("--container-mounts=" + ",".join(f"{path}:{path}" for path in mounts)),
            shlex.quote(f"--container-workdir={job.working_directory}"),
        ]
    return words
