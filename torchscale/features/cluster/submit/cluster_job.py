"""How a job and its pods are, by the objects that kubectl shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from torchscale.features.cluster.submit.manifests import CONTAINER
from torchscale.features.cluster.submit.pod_parts import INDEX_ANNOTATION

_LONGEST_REASON = 200
"""Messages of schedulers name every node that does not fit."""
JobEnd = Literal["Complete", "Failed"]
_ENDS: Mapping[str, JobEnd] = {"Complete": "Complete", "Failed": "Failed"}
"""Conditions of Jobs and of TrainJobs after which nothing starts any more."""


class _Object(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True
    )


class _Metadata(_Object):
    name: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    annotations: dict[str, str] = Field(default_factory=dict)


class _Condition(_Object):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _Waiting(_Object):
    reason: str = ""
    message: str = ""


class _Terminated(_Object):
    exit_code: int | None = None
    message: str = ""


class _ContainerState(_Object):
    waiting: _Waiting | None = None
    terminated: _Terminated | None = None


class _ContainerStatus(_Object):
    name: str = ""
    state: _ContainerState = _ContainerState()
    last_state: _ContainerState = _ContainerState()


class _Status(_Object):
    phase: str = ""
    conditions: tuple[_Condition, ...] = ()
    container_statuses: tuple[_ContainerStatus, ...] = ()


class _Item(_Object):
    """A job or a pod: of each, what is read here."""

    kind: str
    metadata: _Metadata = _Metadata()
    status: _Status = _Status()


class ObjectList(_Object):
    """What ``kubectl get`` writes."""

    items: tuple[_Item, ...]


@dataclass(frozen=True)
class ClusterJob:
    """How a job is.

    Attributes:
        text: State for people: its end, else its pods and what they wait for.
        end: How it ended; ``None`` while it has not.
        exists: Whether it is there at all.
        exit_code: Exit code that node 0's benchmark left; ``None`` without one.
    """

    text: str
    end: JobEnd | None
    exists: bool
    exit_code: int | None


def cluster_job(name: str, items: Sequence[_Item]) -> ClusterJob:
    """How the job ``name`` is, by itself and its pods."""
    pods = [item for item in items if item.kind == "Pod"]
    job = next((item for item in items if item.kind != "Pod" and item.metadata.name == name), None)
    exit_code = _exit_code(pods)
    if job is None:
        return ClusterJob("deleted", None, False, exit_code)
    for condition in job.status.conditions:
        end = _ENDS.get(condition.type)
        if condition.status == "True" and end is not None:
            told = ": ".join(filter(None, (condition.reason, shortened(condition.message))))
            text: str = end
            if told and end == "Failed":
                text = f"{end} ({told})"
            return ClusterJob(text, end, True, exit_code)
    suspended = any(
        each.type == "Suspended" and each.status == "True" for each in job.status.conditions
    )
    if suspended:
        return ClusterJob("Suspended", None, True, exit_code)
    return ClusterJob(_pods_text(pods), None, True, exit_code)


def _pods_text(pods: Sequence[_Item]) -> str:
    """``pods: 2 Running, 2 Pending (ImagePullBackOff: …)``."""
    alive = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
    phases = sorted({pod.status.phase or "Unknown" for pod in alive})
    counts = [
        f"{sum((pod.status.phase or 'Unknown') == phase for pod in alive)} {phase}"
        for phase in phases
    ]
    reason = next(
        filter(None, map(_waits_for, sorted(alive, key=lambda pod: pod.metadata.name))), ""
    )
    text = f"pods: {', '.join(counts) or 'none yet'}"
    if reason:
        text += f" ({reason})"
    return text


def _waits_for(pod: _Item) -> str:
    """Why a pod does not run; empty where nothing is said."""
    if pod.status.phase not in ("Pending", "Running"):
        return ""
    for status in pod.status.container_statuses:
        waiting = status.state.waiting
        if waiting is not None and waiting.reason not in (
            "",
            "ContainerCreating",
            "PodInitializing",
        ):
            return ": ".join(filter(None, (waiting.reason, shortened(waiting.message))))
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return ": ".join(filter(None, (condition.reason, shortened(condition.message))))
    return ""


def _exit_code(pods: Sequence[_Item]) -> int | None:
    """What node 0 left as its container's message; of several pods, the newest that left one."""
    first = [pod for pod in pods if pod.metadata.annotations.get(INDEX_ANNOTATION) == "0"]
    for pod in sorted(first, key=lambda pod: pod.metadata.creation_timestamp, reverse=True):
        for status in pod.status.container_statuses:
            if status.name != CONTAINER:
                continue
            for state in (status.state, status.last_state):
                text = "" if state.terminated is None else state.terminated.message.strip()
                if text.isascii() and text.isdigit() and int(text) < 256:
                    return int(text)
    return None


def shortened(text: str) -> str:
    """A message in one line of bounded length."""
    text = " ".join(text.split())
    if len(text) <= _LONGEST_REASON:
        return text
    return f"{text[: _LONGEST_REASON - 1]}…"
