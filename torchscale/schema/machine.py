"""What a plan may use: devices and cores of the machine at hand."""

from __future__ import annotations

from dataclasses import dataclass

from torchscale.schema.environment import Environment


@dataclass(frozen=True)
class Machine:
    """The machine of a sweep.

    Attributes:
        environment: As a worker process sees it.
        cores: One logical CPU per usable physical core, in the order in which ranks get them.
    """

    environment: Environment
    cores: tuple[int, ...]
