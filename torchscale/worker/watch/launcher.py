"""What torchrun knows of its ranks: the exit code or signal of each that failed, and that it waits
for other nodes."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from . import ends
from .guard import guarded, unseen
from .imports import after_import
from .waits import Waiting

_CALLERS = 4
"""Functions of torch between the process that failed and who knows its variables: three."""


def watch_launcher() -> None:
    """Note what this process, if it is torchrun, sees of its ranks. A rank is no launcher."""
    if "LOCAL_RANK" in os.environ:
        return
    after_import("torch.distributed.elastic.multiprocessing.errors", _watch_failures)
    after_import("torch.distributed.elastic.agent.server.api", _watch_rendezvous)


def _watch_failures(module: Any) -> None:  # noqa: ANN401 - a module
    failure = module.ProcessFailure
    original = failure.__post_init__

    @functools.wraps(original)
    def noting(self: Any) -> None:  # noqa: ANN401 - a ProcessFailure
        guarded(_leave_exit, self)
        try:
            original(self)
        except BaseException as error:
            unseen(error)
            raise

    failure.__post_init__ = noting


def _leave_exit(failure: Any) -> None:  # noqa: ANN401 - a ProcessFailure
    local_rank = int(failure.local_rank)
    variables = _variables(local_rank)
    ends.leave(
        "exited",
        {
            "pid": int(failure.pid),
            "host": os.uname().nodename,
            "rank": ends.number(variables.get("RANK")),
            "local_rank": local_rank,
            "world_size": ends.number(variables.get("WORLD_SIZE")),
            "attempt": ends.attempt_of({**os.environ, **variables}),
            "exit_code": int(failure.exitcode),
        },
    )


def _variables(local_rank: int) -> dict[str, str]:
    """Those that a rank was started with: what makes the failure holds them."""
    for depth in range(2, 2 + _CALLERS * 2):
        try:
            caller = sys._getframe(depth).f_locals.get("self")
        except ValueError:
            break
        envs = getattr(caller, "envs", None)
        if isinstance(envs, dict) and isinstance(envs.get(local_rank), dict):
            return dict(envs[local_rank])
    return {}


def _watch_rendezvous(module: Any) -> None:  # noqa: ANN401 - a module
    """Note while the agent waits for the agents of other nodes."""
    agent = module.SimpleElasticAgent
    original = agent._rendezvous

    @functools.wraps(original)
    def noting(self: Any, group: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as torch's
        waiting = Waiting()
        guarded(_begin, waiting, group)
        try:
            return original(self, group, *args, **options)
        except BaseException as error:
            unseen(error)
            raise
        finally:
            guarded(waiting.end)
            guarded(_count_no_more, group)

    agent._rendezvous = noting


def _begin(waiting: Waiting, group: Any) -> None:  # noqa: ANN401 - a WorkerGroup
    handler = group.spec.rdzv_handler
    settings = getattr(handler, "_settings", None)
    nodes = getattr(handler, "world_size", None)
    waiting.begin(
        "rendezvous",
        {
            "rank": None,
            "world_size": None,
            "address": _endpoint(handler),
            "least_nodes": _whole(getattr(settings, "min_nodes", nodes)),
            "most_nodes": _whole(getattr(settings, "max_nodes", nodes)),
            "node": _whole(getattr(handler, "rank", None)),
            "local_world_size": _whole(getattr(group.spec, "local_world_size", None)),
        },
    )
    holder = _state_holder(group)
    if holder is not None:
        _count_joined(waiting, holder)


def _state_holder(group: Any) -> Any:  # noqa: ANN401 - of a WorkerGroup
    """What holds the state that all nodes share; ``None`` in a rendezvous without."""
    return getattr(group.spec.rdzv_handler, "_state_holder", None)


def _count_no_more(group: Any) -> None:  # noqa: ANN401 - a WorkerGroup
    holder = _state_holder(group)
    if holder is not None:
        vars(holder).pop("sync", None)


def _endpoint(handler: Any) -> str:  # noqa: ANN401 - a RendezvousHandler
    """``host:port``; empty where the handler does not say."""
    host, port = getattr(handler, "master_addr", None), getattr(handler, "master_port", None)
    if host is None:
        store = getattr(handler, "_store", None)
        for _ in range(_CALLERS):  # a store within stores that put a prefix to keys
            inner = getattr(store, "underlying_store", None)
            if inner is None:
                break
            store = inner
        host, port = getattr(store, "host", None), getattr(store, "port", None)
    return f"{host}:{port}" if host else ""


def _count_joined(waiting: Waiting, holder: Any) -> None:  # noqa: ANN401 - of the rendezvous' state
    """Note how many nodes have joined, each time that the agent looks at what all share."""
    original = holder.sync

    def noting() -> Any:  # noqa: ANN401 - as torch's
        try:
            return original()
        except BaseException as error:
            unseen(error)
            raise
        finally:
            guarded(_note_joined, waiting, holder)

    holder.sync = noting


def _note_joined(waiting: Waiting, holder: Any) -> None:  # noqa: ANN401 - of the rendezvous' state
    waiting.change({"joined_nodes": len(holder.state.participants)})


def _whole(value: object) -> int | None:
    return value if type(value) is int else None
