"""The sections of a config that say how launches are started, and which cells are recorded."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from torchscale.config.base import ConfigSection, PositiveInt, PositiveSeconds, as_tuple
from torchscale.config.choices import MAX_NODES, Isolation, Malloc, Placement

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class LaunchSettings(ConfigSection):
    """Devices, placement, processes and timeouts of a launch."""

    nodes: Annotated[int, Field(ge=1, le=MAX_NODES)] = Field(
        1,
        description="Nodes of the sweep. --nnodes sets it.",
    )
    devices_per_node: PositiveInt | None = Field(
        None,
        description="Ranks on each node of a launch over several nodes; default: as many as each "
        "node has devices.",
    )
    join_timeout_seconds: PositiveSeconds = Field(
        300.0, description="The first node waits this long for the others, and they for it."
    )
    node_timeout_seconds: Annotated[float, Field(ge=1)] = Field(
        30.0,
        description="A node that is silent for this long is lost: its launch ends on every node.",
    )
    devices: (
        Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(as_tuple)]
        | Literal["auto"]
    ) = Field(
        "auto",
        description="GPU indices (or CPU core indices) to use, in this order; auto uses all, "
        "ordered by placement.",
    )
    placement: Placement = Field(
        "packed",
        description="GPUs used by a smaller count: packed fills one NUMA node first, spread "
        "alternates between nodes.",
    )
    numa_binding: bool = Field(
        True, description="Bind each rank to the cores of its GPU's NUMA node, if known."
    )
    oversubscribe: bool = Field(
        False,
        description="Let ranks share devices (over gloo): for correctness tests, not speed; every "
        "result is flagged.",
    )
    isolation: Isolation = Field(
        "auto",
        description="cell: a torchrun command for each launch; group: on CPUs torchrun's agent "
        "for each launch in a fork of one process that has imported PyTorch, on other devices one "
        "torchrun whose ranks run all cells in turn, those of fewer ranks in a part of them; a "
        "cell that fails is run again in new processes; auto: group on CPUs, else cell.",
    )
    threads_per_rank: PositiveInt | None = Field(
        None,
        description="CPU threads of each rank; default: cores ÷ the largest device count that "
        "fits, at every count (÷ the largest where none fits).",
    )
    malloc: Malloc = Field(
        "keep",
        description="keep: glibc keeps the memory that a step frees for the next step; system: "
        "its own defaults, which may return it in every step. Variables (MALLOC_*, GLIBC_TUNABLES) "
        "and other allocators (LD_PRELOAD) win.",
    )
    env: dict[str, str] = Field(
        default_factory=dict, description="Environment variables of the worker processes."
    )
    timeout_seconds: PositiveSeconds = Field(
        1800.0, description="A launch that takes longer is terminated (state timeout)."
    )
    stall_timeout_seconds: PositiveSeconds = Field(
        300.0,
        description="A launch that reports no progress for this long is terminated (state "
        "timeout).",
    )

    @field_validator("env")
    @classmethod
    def _env_names(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if not _ENV_NAME.fullmatch(name) or "\0" in value:
                raise ValueError(f"{name!r} is not a valid environment variable")
        return env

    @field_validator("devices")
    @classmethod
    def _distinct(cls, devices: tuple[int, ...] | str) -> tuple[int, ...] | str:
        if not devices or len(set(devices)) != len(devices):
            raise ValueError("list each device once")
        return devices


class ProfilingSettings(ConfigSection):
    """Which cells are profiled: after all measurements, each in a separate launch that is excluded
    from throughput."""

    enabled: bool = Field(False, description="Profile cells.")
    tool: Literal["auto", "nsys", "kineto"] = Field(
        "auto",
        description="auto: nsys on CUDA if it can record and export, else torch.profiler (kineto).",
    )
    trigger: Annotated[
        Literal["sync_stall_detection", "always", "never"] | tuple[str, ...],
        BeforeValidator(as_tuple),
    ] = Field(
        "sync_stall_detection",
        description="sync_stall_detection: cells in which a bottleneck was found, and all cells "
        "of a run on single devices; always; never; or a list of cell ids, where * matches any "
        "text.",
    )
    target: Literal["sync_stalls", "kernels", "memory", "input", "all"] = Field(
        "sync_stalls", description="What is recorded: memory and all also record allocations."
    )
    seconds: PositiveSeconds = Field(10.0, description="Record for this long, in whole steps.")
    max_steps: Annotated[int, Field(ge=2)] | None = Field(
        None,
        description="Record at most this many steps; not set: 200 with torch.profiler, 1000 with "
        "nsys.",
    )
