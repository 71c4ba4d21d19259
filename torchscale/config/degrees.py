"""How the devices of a cell share the work: the one place where degrees are multiplied."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Coordinate:
    """A rank's place in the mesh of :class:`Degrees`."""

    pipeline: int
    replicate: int
    shard: int
    tensor: int
    expert: int = 0
    context: int = 0


@dataclass(frozen=True)
class Degrees:
    """Degrees of every kind of parallelism. Ranks lie in the order pipeline, replicate, shard,
    context, expert, tensor, the last one innermost: neighbouring ranks communicate most.

    Attributes:
        world_size: Devices; the product of the others.
        replicate: Copies of the model, each with its share of the batch, that average their
            gradients.
        shard: Devices that a copy's parameters, gradients and optimizer state are split over
            (FSDP), each with its share of the batch.
        tensor: Devices that share the matrices of every layer, and see the same samples.
        pipeline: Devices that hold different layers, and see the same samples.
        expert: Devices that the experts of every layer are spread over, each with its share of the
            batch.
        context: Devices that each have a part of the tokens of the same samples.

    Raises:
        ValueError: a degree is below 1, or their product is not the world size; the text prints
            them all.
    """

    world_size: int
    replicate: int = 1
    shard: int = 1
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    context: int = 1

    def __post_init__(self) -> None:
        beside_copies = (self.shard, self.tensor, self.pipeline, self.expert, self.context)
        degrees = (self.replicate, *beside_copies)
        if min(degrees) < 1 or math.prod(degrees) != self.world_size:
            raise ValueError(
                f"{self} does not multiply to {self.world_size} "
                f"device{'s' * (self.world_size != 1)}"
            )

    def __str__(self) -> str:
        text = (
            f"replicate {self.replicate} × shard {self.shard} × tensor {self.tensor} × pipeline "
            f"{self.pipeline}"
        )
        further = {"expert": self.expert, "context": self.context}
        named = [f" × {name} {degree}" for name, degree in further.items() if degree != 1]
        return text + "".join(named)

    @classmethod
    def filled(
        cls,
        world_size: int,
        *,
        shard: int = 1,
        tensor: int = 1,
        pipeline: int = 1,
        expert: int = 1,
        context: int = 1,
    ) -> Degrees:
        """Degrees with as many replicas as fit into ``world_size`` beside the other degrees.

        Raises:
            ValueError: they do not divide it.
        """
        replicate = max(1, world_size // (shard * tensor * pipeline * expert * context))
        return cls(world_size, replicate, shard, tensor, pipeline, expert, context)

    def beside_experts(self, *, sharded: bool) -> Degrees:
        """How the parameters that are not of experts are shared: to them, the devices that experts
        are spread over are further copies, or with ``sharded`` further shards."""
        if sharded:
            return replace(self, shard=self.shard * self.expert, expert=1)
        return replace(self, replicate=self.replicate * self.expert, expert=1)

    def beside_context(self, *, sharded: bool) -> Degrees:
        """How parameters are shared where sequences are split: to them, the devices that share a
        sequence are further copies, or with ``sharded`` further shards."""
        if sharded:
            return replace(self, shard=self.shard * self.context, context=1)
        return replace(self, replicate=self.replicate * self.context, context=1)

    @property
    def data(self) -> int:
        """Devices, or groups of them, that each have a share of the batch of their own."""
        return self.replicate * self.shard * self.expert

    @property
    def model(self) -> int:
        """Devices that work on the same samples."""
        return self.tensor * self.pipeline * self.context

    def coordinate(self, rank: int) -> Coordinate:
        """The coordinate of a rank in the mesh."""
        rest, tensor = divmod(rank, self.tensor)
        rest, expert = divmod(rest, self.expert)
        rest, context = divmod(rest, self.context)
        rest, shard = divmod(rest, self.shard)
        pipeline, replicate = divmod(rest, self.replicate)
        return Coordinate(pipeline, replicate, shard, tensor, expert, context)

    def data_index(self, rank: int) -> int:
        """Which share of the batch a rank works on, from 0 to ``data`` - 1."""
        place = self.coordinate(rank)
        return (place.replicate * self.shard + place.shard) * self.expert + place.expert

    def tokens_index(self, rank: int) -> int:
        """Which tokens of a step a rank works on, from 0 to ``data`` · ``context`` - 1: its part of
        the samples of its share."""
        return self.data_index(rank) * self.context + self.coordinate(rank).context
