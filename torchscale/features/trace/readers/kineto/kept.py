"""Events that are few and carry more than a span does; they are kept one by one."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from torchscale.catalog.communication import op_of
from torchscale.features.trace.readers.columns import direction_of
from torchscale.features.trace.readers.kineto.collectives import (
    CommunicationKernel,
    GlooCall,
    GlooCompletion,
)
from torchscale.features.trace.readers.kineto.forms import NO_ARGS, Event
from torchscale.features.trace.readers.kineto.processes import device_of, number_of
from torchscale.features.trace.readers.soundness import whole_number

STEP = re.compile(r"ProfilerStep#(\d{1,15})$", re.ASCII)
GLOO_PREFIX = "gloo:"
CPU, CUDA = 0, 1
"""Device types as torch numbers them."""


class Kept(Enum):
    """What such an event is."""

    COMMUNICATION_KERNEL = auto()
    GLOO_CALL = auto()
    GLOO_COMPLETION = auto()
    MEMORY = auto()
    STEP = auto()
    UNTITLED = auto()
    """Without a category."""


class RecordedStep(NamedTuple):
    """An annotated step; times in microseconds."""

    ts: float
    dur: float
    number: int


@dataclass
class KeptEvents:
    """Events of one rank that are kept one by one.

    Attributes:
        label: What a merged file puts before the numbers of its processes; empty where it does not.
        pids: How many operators, steps and calls of the driver each process of the host has.
        peaks: Most that was allocated, by type of device; below 0 where that was not recorded.
    """

    label: str
    pids: Counter[int | str] = field(default_factory=Counter)
    steps: list[RecordedStep] = field(default_factory=list)
    calls: list[GlooCall] = field(default_factory=list)
    completions: list[GlooCompletion] = field(default_factory=list)
    kernels: list[CommunicationKernel] = field(default_factory=list)
    peaks: dict[int, int] = field(default_factory=lambda: {CPU: -1, CUDA: -1})
    pid: int = 0
    on_device: bool = False

    def keep(self, kept: Kept, event: Event, lane: int) -> None:
        """Add an event; ``lane`` is the number of its thread or stream."""
        args = event.args or NO_ARGS
        match kept:
            case Kept.COMMUNICATION_KERNEL:
                self.kernels.append(
                    CommunicationKernel(
                        event.ts,
                        event.dur,
                        event.name,
                        args,
                        lane,
                        args.device if args.device >= 0 else device_of(event.pid),
                    )
                )
            case Kept.GLOO_CALL:
                self.calls.append(
                    GlooCall(event.ts, op_of(event.name), args, lane, direction_of(event.name))
                )
            case Kept.GLOO_COMPLETION:
                name = event.name.removeprefix(GLOO_PREFIX)
                done = GlooCompletion(
                    event.ts,
                    event.dur,
                    op_of(name),
                    args,
                    direction_of(name),
                    lane,
                )
                self.completions.append(done)
            case Kept.MEMORY:
                if (device := args.device_type) in self.peaks:
                    allocated = whole_number(args.allocated)
                    self.peaks[device] = max(self.peaks[device], allocated)
            case Kept.STEP:
                if (match := STEP.match(event.name)) is not None:
                    self.steps.append(RecordedStep(event.ts, event.dur, int(match[1])))
                    self.pid = number_of(event.pid)
