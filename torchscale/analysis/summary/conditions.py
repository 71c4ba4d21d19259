"""The conditions under which a run was measured: the machine and its software, at each time that
somebody measured."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torchscale.schema.run.experiment_file import ExperimentFile, Session
from torchscale.schema.run.result_set import LaunchFigures

DEVICE = "GPU "
"""What the names of devices begin with, before their index."""
_VARIABLE = "variable "
_NAMES_OF_A_JOB = (f"{_VARIABLE}SLURM_", f"{_VARIABLE}MASTER_")
"""Other at every start, and no condition of a measurement."""
_ABSENT = "absent"


@dataclass(frozen=True)
class MeasuredSession:
    """A session that figures are from.

    Attributes:
        session: The command and the machine.
        launches: Launches of it with figures.
        changed: Names of conditions that are not as in the session before.
    """

    session: Session
    launches: int
    changed: tuple[str, ...] = ()


def measured_sessions(
    experiment: ExperimentFile, launches: Iterable[LaunchFigures]
) -> tuple[MeasuredSession, ...]:
    """Sessions in which ``launches`` were measured, oldest first; the folder's first session where
    there are none."""
    sessions = experiment.sessions
    counts = Counter(session_numbers(sessions, launches)) or Counter({0: 0})
    measured: list[MeasuredSession] = []
    before: Mapping[str, str] | None = None
    for place, count in sorted(counts.items()):
        facts = session_facts(sessions[place])
        measured.append(MeasuredSession(sessions[place], count, _changed(before or facts, facts)))
        before = facts
    return tuple(measured)


def session_numbers(sessions: Sequence[Session], launches: Iterable[LaunchFigures]) -> list[int]:
    """The session of each launch, as its place in ``sessions`` (oldest first): the last that had
    begun by then; 0 for a launch before all of them, or where none is known."""
    begun = [session.started_at for session in sessions]  # ISO 8601 in UTC: sorts as text
    return [max(0, bisect_right(begun, launch.started_at) - 1) for launch in launches]


def unlike_before(sessions: Sequence[Session]) -> tuple[str, ...]:
    """Names of conditions of the last session that an earlier one had otherwise."""
    *earlier, last = map(session_facts, sessions)
    return tuple(dict.fromkeys(name for facts in earlier for name in _changed(facts, last)))


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    names = dict.fromkeys((*before, *after))
    return tuple(
        name
        for name in names
        if before.get(name) != after.get(name) and not name.startswith(_NAMES_OF_A_JOB)
    )


def session_facts(session: Session) -> dict[str, str]:
    """Everything of a machine and its software that can change a figure, by name; what is not there
    is left out."""
    environment, versions = session.environment, session.environment.versions
    memory = environment.memory_bytes
    facts = {
        "host": environment.hostname,
        "system": environment.system,
        "processor": environment.cpu,
        "usable cores": str(environment.cores),
        "memory": None if memory is None else f"{memory / 2**30:.0f} GiB",
        **{
            f"{DEVICE}{device.index}": f"{device.name} {device.uuid or ''}".strip()
            for device in environment.devices
        },
        "torchscale": session.tool_version,
        "Python": versions.python,
        "PyTorch": versions.torch,
        "CUDA": versions.cuda,
        "ROCm": versions.rocm,
        "cuDNN": versions.cudnn,
        "NCCL": versions.nccl,
        "driver": versions.driver,
        "transformers": versions.transformers,
        "torchao": versions.torchao,
        "git branch": environment.git_branch,
        "git commit": environment.git_commit,
        **{f"{_VARIABLE}{name}": value for name, value in environment.env.items()},
    }
    return {name: value for name, value in facts.items() if value}


def over_sessions(columns: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """One text for each name: ``550.54``, or ``550.54, then 560.28`` where it changed."""
    texts = {}
    for name in dict.fromkeys(name for column in columns for name in column):
        values = [column.get(name, _ABSENT) for column in columns]
        changes = [
            value for place, value in enumerate(values) if place == 0 or value != values[place - 1]
        ]
        texts[name] = ", then ".join(changes)
    return texts
