"""Lines as NCCL's watchdog writes them, in the forms of several versions of torch."""

from __future__ import annotations

from typing import Literal

Version = Literal["2.1", "2.2", "2.3", "2.4", "2.6", "2.8", "2.13"]
VERSIONS: tuple[Version, ...] = ("2.1", "2.2", "2.3", "2.4", "2.6", "2.8", "2.13")


def prefix(rank: int, version: Version, time: str = "09:29:06.5") -> str:
    if version == "2.1":
        return f"[E ProcessGroupNCCL.cpp:474] [Rank {rank}]"
    if version in ("2.2", "2.3"):
        return f"[rank{rank}]:[E ProcessGroupNCCL.cpp:574]"
    return f"[rank{rank}]:[E624 {time} ProcessGroupNCCL.cpp:616]"


def of_group(version: Version, place: int, name: str = "0", description: str = "default_pg") -> str:
    told = f"({description})" if description else ""
    if version == "2.2":
        return f"[Rank {place}]"
    if version == "2.3":
        return f"[PG {name} Rank {place}]"
    if version == "2.4":
        return f"[PG {name} {told} Rank {place}]" if told else f"[PG {name} Rank {place}]"
    return f"[PG ID {name} PG GUID {name}{told} Rank {place}]"


def timed_out(
    rank: int,
    number: int,
    enqueued: int,
    completed: int,
    *,
    version: Version = "2.8",
    operation: str = "ALLREDUCE",
    elements: int = 6400,
    place: int | None = None,
    group: str = "0",
    description: str = "default_pg",
    time: str = "09:29:06.5",
) -> str:
    """What a rank writes whose collective timed out after 600 s."""
    place = rank if place is None else place
    start, whose = prefix(rank, version, time), of_group(version, place, group, description)
    size = f"NumelIn={elements}, NumelOut={elements}"
    if version == "2.1":
        size = f"TensorShape=[{elements}]"
        start = start.removesuffix(f" [Rank {rank}]")
    caught = (
        f"{start} [Rank {place}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={number}, OpType={operation}, {size}, Timeout(ms)=600000) ran for 600011 "
        "milliseconds before timing out."
    )
    old = f"last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}."
    new = f"last enqueued work: {enqueued}, last completed work: {completed}"
    if version == "2.13":
        new = (
            f"last enqueued work: {enqueued}, last started work: {completed + 1} (ALLREDUCE), "
            f"last completed work: {completed}"
        )
    lines = {
        "2.1": [],
        "2.2": [f"{start} {whose} Timeout at NCCL work: {number}, {old}"],
        "2.3": [f"{start} {whose} Timeout at NCCL work: {number}, {old}"],
        "2.4": [
            f"{start} {whose} Exception (either an error or timeout) detected by watchdog at work: "
            f"{number}, {old}"
        ],
        "2.6": [
            f"{start} {whose} Exception (either an error or timeout) detected by watchdog at work: "
            f"{number}, {old}"
        ],
    }.get(
        version,
        [
            f"{start} {whose}  failure detected by watchdog at work sequence id: {number} PG "
            f"status: {new}"
        ],
    )
    return "\n".join([caught, *lines]) + "\n"


def asked_to_dump(
    rank: int,
    enqueued: int,
    completed: int,
    *,
    of: int = 0,
    version: Version = "2.8",
    time: str = "09:29:07.1",
) -> str:
    """What a rank writes that another one tells of a timeout."""
    return (
        f"{prefix(rank, version, time)} {of_group(version, rank)} Received a dump signal due to a "
        f"collective timeout from  rank {of} and we will try our best to dump the debug info. Last "
        f"enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.This is most likely "
        "caused by incorrect usages of collectives\n"
    )


def broken(rank: int, number: int, *, time: str = "09:29:06.5") -> str:
    """What a rank writes whose peer has gone."""
    start = prefix(rank, "2.8", time)
    return (
        f"{start} [Rank {rank}] Collective WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, "
        "NumelIn=6400, NumelOut=6400, Timeout(ms)=600000) raised the following async exception: "
        "NCCL error: remote process exited or there was a network error, NCCL version 2.28.9\n"
        "ncclRemoteError: A call failed possibly due to a network error.\n"
        f"{start} {of_group('2.8', rank)}  failure detected by watchdog at work sequence id: "
        f"{number} PG status: last enqueued work: {number}, last completed work: {number - 1}\n"
    )


def ended(rank: int, *, time: str = "09:29:05.0") -> str:
    """What a rank writes that ends without leaving the group."""
    return (
        f"[rank{rank}]:[W624 {time} ProcessGroupNCCL.cpp:1575] Warning: WARNING: "
        "destroy_process_group() was not called before program exit, which can leak resources.\n"
    )
