"""What the collector of a rank says of itself (``worker/watch/rank_folder.py`` writes it, without
these models: it runs in Pythons that need not have pydantic)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from torchscale.schema.base import Count, EpochSeconds, Frozen, Name, NotNegative, Seconds

MOST_RANKS = 10_000_000
"""Numbers of ranks, and of attempts: no job has as many."""

RankNumber = Annotated[int, Field(ge=0, lt=MOST_RANKS, strict=True)]
"""As torch.distributed numbers ranks."""
WorldSize = Annotated[int, Field(ge=1, le=MOST_RANKS, strict=True)]
"""How many there are."""
Nanoseconds = Annotated[int, Field(ge=0, lt=1 << 62, strict=True)]
"""A moment or a length; the sum of two fits into eight bytes."""


class RankStartup(Frozen):
    """When a rank came to which point of its start, in nanoseconds since the epoch; ``None`` where
    that was not seen.

    Attributes:
        python_ns: Python had started, and reached the collector.
        import_ns, imported_ns: The import of torch began, and had ended.
        group_ns, grouped_ns: ``init_process_group`` was called first, and had returned.
    """

    python_ns: Nanoseconds | None = None
    import_ns: Nanoseconds | None = None
    imported_ns: Nanoseconds | None = None
    group_ns: Nanoseconds | None = None
    grouped_ns: Nanoseconds | None = None


class RankFacts(Frozen):
    """``rank.json``.

    Attributes:
        format: Version of the rank's files.
        rank, world_size: As torch.distributed numbers them.
        local_world_size: Ranks of this host.
        pid, host: Where it runs.
        start_ns: What its moments count from, on the wall clock.
        began: When the collector started, in seconds since the epoch.
        process_began: When the process did; 0 where not known.
        startup: When it came to which point of its start.
        restart: How often torchrun had restarted the job.
        torch, python: Versions.
        backend: Of torch.distributed; empty without.
        device: ``cpu`` or ``cuda``.
        has_recorder: Whether this torch has a flight recorder.
        is_timed: Whether torch measures the length of collectives on the device.
        is_in_thread: Whether the program is a thread of its process, which notes its end: a worker
            of Ray Train.
        threads: Of torch, as the rank started; ``None`` in files of earlier versions.
        cpus: Logical CPUs that it may use.
        state: ``ended`` where the program left it behind in order.
        problem: What ended the collection early, or could not be written.
    """

    format: Literal[1]
    rank: RankNumber
    world_size: WorldSize
    local_world_size: WorldSize
    pid: Count
    host: Name
    start_ns: Nanoseconds
    began: EpochSeconds
    process_began: EpochSeconds = 0.0
    startup: RankStartup = RankStartup()
    restart: Count
    torch: Name
    python: Name
    backend: Name
    device: Name
    has_recorder: bool
    is_timed: bool = False
    is_in_thread: bool = False
    threads: Count | None = None
    cpus: tuple[Count, ...] = ()
    state: Literal["running", "ended", "failed"]
    problem: str = ""


class ProgramLine(Frozen):
    """A line of the user's program at which a rank was seen.

    Attributes:
        file, line, function: Where.
        called: The function of a library that it was in; empty where in none.
        samples: How often.
    """

    file: str
    line: Count
    function: str
    called: str
    samples: Count


class NamedGroup(Frozen):
    """A line of ``names.jsonl``: a process group and its global ranks."""

    name: Name
    ranks: tuple[RankNumber, ...]


class NamedCall(Frozen):
    """A line of ``names.jsonl``: what the collectives of a key are.

    Attributes:
        number: By which the files of collectives refer to it.
        backend, group, operation: Names.
        bytes: Of the tensors that go in.
        p2p: Whether it is a send or receive.
    """

    number: Count = Field(alias="key")
    backend: Name
    group: Name
    operation: Name
    bytes: Count
    p2p: bool


class Partners(Frozen):
    """A line of ``names.jsonl``: ranks that this one sends to, and receives from."""

    sends: tuple[RankNumber, ...]
    receives: tuple[RankNumber, ...]


class NamedPlace(Frozen):
    """A line of ``names.jsonl``: a place of the user's program.

    Attributes:
        place: Number by which samples refer to it.
        file, line, function, called: As in :class:`ProgramLine`.
    """

    place: Count
    file: str
    line: Count
    function: str
    called: str


class CompiledFrame(Frozen):
    """A line of ``compiles.jsonl``: what torch.compile compiled.

    Attributes:
        began_ns: Nanoseconds since the epoch.
        seconds: How long it took.
        id: torch's number of the frame and of its compilation, ``0/1``.
        function, file, line: The frame; of torch's own code, from where it was called.
        reason: The guard that failed; empty for a first compilation.
        is_backward: Whether it is the backward graph of a compilation, made later.
        has_failed: Whether torch could not compile it, or would not again.
    """

    began_ns: Nanoseconds
    seconds: Seconds
    id: Name
    function: Name
    file: Name
    line: Count
    reason: Name
    is_backward: bool
    has_failed: bool


class RankUse(Frozen):
    """``use.json``: what a rank's process used since its start.

    Attributes:
        cpu_seconds: Of the process, all threads.
        peak_memory_bytes: Resident.
        major_faults, minor_faults: Page faults.
        lost_calls: Collectives that the flight recorders had overwritten before they were read, or
            held in an unknown form.
        recorders: Name of each flight recorder → its collectives that were read.
        failed_recorders: Name of each that failed → how.
        peak_allocated_bytes, peak_reserved_bytes: Of the CUDA allocator; ``None`` without CUDA.
        device_memory_bytes: That the device has.
        device_index, device_name, device_uuid: The CUDA device in use.
    """

    cpu_seconds: NotNegative = 0.0
    peak_memory_bytes: Count = 0
    major_faults: Count = 0
    minor_faults: Count = 0
    lost_calls: Count = 0
    recorders: dict[str, Count] = Field(default_factory=dict)
    failed_recorders: dict[str, str] = Field(default_factory=dict)
    peak_allocated_bytes: Count | None = None
    peak_reserved_bytes: Count | None = None
    device_memory_bytes: Count | None = None
    device_index: Count | None = None
    device_name: Name = ""
    device_uuid: Name = ""
