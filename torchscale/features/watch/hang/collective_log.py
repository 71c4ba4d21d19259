"""What a rank's flight recorders hold, in one form for all backends and versions of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torchscale.schema.launch.hang import StackFrame

DEFAULT_GROUP_DESCRIPTION = "default_pg"
"""torch's, of the group that ``init_process_group`` makes."""
SCHEDULED, STARTED, COMPLETED = "scheduled", "started", "completed"
"""What a recorder says of a call's device."""


@dataclass(frozen=True)
class CollectiveCall:
    """One collective (or send or receive) that a rank called.

    Attributes:
        group: Name of the process group.
        sequence: Number of the call in the group, counted by each backend; the same on every rank
            that calls it.
        operation: Name without the backend's prefix: ``all_reduce``, ``recv 0<-1``; empty where it
            is not known.
        is_p2p: Whether it is a send or a receive.
        is_done: Whether it has completed on this rank.
        created_ns: When it was called, in nanoseconds since the epoch.
        input_sizes, output_sizes: Shapes of the tensors.
        input_dtypes, output_dtypes: Types as torch writes them: ``float32``.
        backend: ``gloo``, ``nccl``; empty where the recorder does not say.
        frames: Python frames of the call, outermost first, where the recorder kept them.
        state: What the recorder says of the device: ``scheduled``, ``started`` or ``completed``;
            empty where it does not say.
        size: Bytes that go in, of a call whose shapes and types may not be known; else ``None``.
    """

    group: str
    sequence: int
    operation: str
    is_p2p: bool
    is_done: bool
    created_ns: int
    input_sizes: tuple[tuple[int, ...], ...] = ()
    input_dtypes: tuple[str, ...] = ()
    output_sizes: tuple[tuple[int, ...], ...] = ()
    output_dtypes: tuple[str, ...] = ()
    backend: str = ""
    frames: tuple[StackFrame, ...] = ()
    state: str = ""
    size: int | None = None


@dataclass(frozen=True)
class ProcessGroup:
    """A process group that a recorder knows: its description (``default_pg``, ``mesh_dp``) and its
    global ranks. It ``is_inferred`` where nothing proves that these are of one group."""

    description: str = ""
    ranks: tuple[int, ...] = ()
    is_inferred: bool = False


@dataclass(frozen=True)
class CollectiveLog:
    """The latest collectives of a rank, oldest first, and its process groups by name.

    Attributes:
        calls: Of all recorders.
        groups: By name; backends of one group share it.
        truncated: Backends whose recorder has no longer all calls since the groups were made: each
            keeps its latest alone.
        untold: Backends whose recorder does not say when a call has completed; all of their calls
            count as done here.
        recorders: Name of each recorder that was read → number of calls that it had; empty where
            that is not known.
        tells_starts: Backend → whether its recorder says when a device begins a call, by the calls
            that have completed; none where no call has.
        is_partial: Whether it is what a watchdog says: it tells of the listed groups alone, and of
            few calls, of which the operation may be empty.
        unread: Fields of another type than torch writes → how many; they are unknown.
    """

    calls: tuple[CollectiveCall, ...] = ()
    groups: Mapping[str, ProcessGroup] = field(default_factory=dict)
    truncated: frozenset[str] = frozenset()
    untold: frozenset[str] = frozenset()
    recorders: Mapping[str, int] = field(default_factory=dict)
    tells_starts: Mapping[str, bool] = field(default_factory=dict)
    is_partial: bool = False
    unread: Mapping[str, int] = field(default_factory=dict)
