"""Collectives one by one: their buffers, the call that is timed, and an exact check of what it brings.

Every element is a small whole number that says which rank it comes from and where it stood, so that any difference is
an error and not rounding, and no element can pass for another's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from torchscale.schema.ceilings import ElementType, Operation
from torchscale.worker.ranks import Ranks

DTYPES: dict[ElementType, torch.dtype] = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "int64": torch.int64,
    "int32": torch.int32,
    "uint8": torch.uint8,
}
_LARGEST_EXACT: dict[ElementType, int] = {"fp16": 2**11, "bf16": 2**8, "uint8": 2**8 - 1}
"""Up to here every whole number is one of that dtype; those left out reach far beyond what is needed."""
_MODULUS = 97
_CHUNK = 1 << 24


class Exchange(ABC):
    """One operation on one payload. ``elements`` is rounded so that every rank's part is equal.

    Attributes:
        payload_bytes: As nccl-tests counts it.
        in_place: Whether the result overwrites the input.
    """

    splits = False
    in_place = False
    adds = False

    def __init__(self, ranks: Ranks, dtype: ElementType, payload_bytes: int) -> None:
        self.ranks = ranks
        kind = DTYPES[dtype]
        part = ranks.world_size if self.splits else 1
        self.elements = max(payload_bytes // kind.itemsize // part, 1) * part
        self.payload_bytes = self.elements * kind.itemsize
        self.part = self.elements // part
        exact = _LARGEST_EXACT.get(dtype, 2**24)
        # Sums stay exact: small numbers, and where even ones are too many, nothing from the ranks beyond.
        self._modulus = min(_MODULUS, max(2, exact // ranks.world_size + 1)) if self.adds else _MODULUS
        self._adding = exact if self.adds else ranks.world_size
        self.input, self.output = self.allocate(kind)

    def allocate(self, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        """Input and output; the same where the operation is in place."""
        buffer = self.empty(self.elements, kind)
        return buffer, buffer

    def empty(self, elements: int, kind: torch.dtype) -> Tensor:
        """A buffer on this rank's device."""
        return torch.empty(elements, dtype=kind, device=self.ranks.device)

    @abstractmethod
    def call(self) -> None:
        """The operation itself: this is what is timed."""

    @abstractmethod
    def expected(self, start: int, stop: int) -> Tensor | None:
        """What these elements of the output should be, as whole numbers; ``None`` where this rank gets nothing."""

    def fill(self) -> None:
        """Put every rank's own numbers into its input, and what no rank sends into its output."""
        self.output.fill_(_MODULUS + 1)
        for start in range(0, len(self.input), _CHUNK):
            stop = min(start + _CHUNK, len(self.input))
            self.input[start:stop] = self.values(self.ranks.rank, start, stop).to(self.input.dtype)

    def rest(self) -> None:
        """Zeros, which stay what they are however often they are added up."""
        self.input.zero_()

    def wrong_elements(self) -> int:
        """Elements of the output that are not exactly what they should be."""
        wrong = 0
        for start in range(0, len(self.output), _CHUNK):
            stop = min(start + _CHUNK, len(self.output))
            expected = self.expected(start, stop)
            if expected is not None:
                wrong += int((self.output[start:stop] != expected.to(self.output.dtype)).sum())
        return wrong

    def values(self, rank: int, start: int, stop: int) -> Tensor:
        """The numbers of a rank at these places: sums of all ranks' are exact in the dtype."""
        places = torch.arange(start, stop, dtype=torch.int64, device=self.ranks.device)
        if rank >= self._adding:
            return torch.zeros_like(places)
        return places.mul_(7).add_(13 * rank + 1).remainder_(self._modulus)

    def sums(self, start: int, stop: int) -> Tensor:
        """Of all ranks' numbers at these places."""
        total = self.values(0, start, stop)
        for rank in range(1, self.ranks.world_size):
            total += self.values(rank, start, stop)
        return total


class AllReduce(Exchange):
    """Every rank gets the sum."""

    in_place = adds = True

    def call(self) -> None:
        """In place, as torch offers it."""
        dist.all_reduce(self.input)

    def expected(self, start: int, stop: int) -> Tensor | None:
        """The sum."""
        return self.sums(start, stop)


class Reduce(AllReduce):
    """Rank 0 gets the sum; what the others hold afterwards is undefined."""

    def call(self) -> None:
        """In place, as torch offers it."""
        dist.reduce(self.input, dst=0)

    def expected(self, start: int, stop: int) -> Tensor | None:
        """The sum, on rank 0."""
        return self.sums(start, stop) if self.ranks.rank == 0 else None


class Broadcast(Exchange):
    """Every rank gets rank 0's buffer."""

    in_place = True

    def call(self) -> None:
        """In place, as torch offers it."""
        dist.broadcast(self.input, src=0)

    def expected(self, start: int, stop: int) -> Tensor | None:
        """Rank 0's."""
        return self.values(0, start, stop)


class AllGather(Exchange):
    """Every rank gets all parts."""

    splits = True

    def allocate(self, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        """A part, and all of them."""
        return self.empty(self.part, kind), self.empty(self.elements, kind)

    def call(self) -> None:
        """Out of place."""
        dist.all_gather_into_tensor(self.output, self.input)

    def expected(self, start: int, stop: int) -> Tensor | None:
        """Each rank's part where it belongs."""
        return _by_part(start, stop, self.part, self.values)


class ReduceScatter(Exchange):
    """Every rank gets its part of the sum."""

    splits = adds = True

    def allocate(self, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        """All parts, and one."""
        return self.empty(self.elements, kind), self.empty(self.part, kind)

    def call(self) -> None:
        """Out of place."""
        dist.reduce_scatter_tensor(self.output, self.input)

    def expected(self, start: int, stop: int) -> Tensor | None:
        """The sum of this rank's part."""
        offset = self.ranks.rank * self.part
        return self.sums(offset + start, offset + stop)


class AllToAll(Exchange):
    """Every rank sends each its part."""

    splits = True

    def allocate(self, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        """Two whole buffers."""
        return self.empty(self.elements, kind), self.empty(self.elements, kind)

    def call(self) -> None:
        """Out of place."""
        dist.all_to_all_single(self.output, self.input)

    def expected(self, start: int, stop: int) -> Tensor | None:
        """From each rank, its part for this one."""
        offset = self.ranks.rank * self.part
        return _by_part(
            start, stop, self.part, lambda rank, first, last: self.values(rank, offset + first, offset + last)
        )


class Ring(Exchange):
    """Every rank sends its buffer to the next and receives the one before's."""

    def allocate(self, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        """Two whole buffers."""
        return self.empty(self.elements, kind), self.empty(self.elements, kind)

    def call(self) -> None:
        """Both at once."""
        rank, count = self.ranks.rank, self.ranks.world_size
        both = [
            dist.P2POp(dist.isend, self.input, (rank + 1) % count),
            dist.P2POp(dist.irecv, self.output, (rank - 1) % count),
        ]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    def expected(self, start: int, stop: int) -> Tensor | None:
        """The one before's."""
        return self.values((self.ranks.rank - 1) % self.ranks.world_size, start, stop)


class Message(Exchange):
    """One rank sends its buffer to another, and both alone take part."""

    def __init__(self, ranks: Ranks, payload_bytes: int, source: int, target: int) -> None:
        self._source, self._target = source, target
        super().__init__(ranks, "fp32", payload_bytes)

    def call(self) -> None:
        """Sent by one, received by the other."""
        if self.ranks.rank == self._source:
            dist.send(self.input, self._target)
        else:
            dist.recv(self.output, self._source)

    def expected(self, start: int, stop: int) -> Tensor | None:
        """The sender's."""
        return self.values(self._source, start, stop)


def _by_part(start: int, stop: int, part: int, values: Callable[[int, int, int], Tensor]) -> Tensor:
    """``values(rank, first, last)`` of every rank's part that the range touches, one behind the other."""
    pieces = []
    for rank in range(start // part, (stop - 1) // part + 1):
        first, last = max(start, rank * part), min(stop, (rank + 1) * part)
        pieces.append(values(rank, first - rank * part, last - rank * part))
    return torch.cat(pieces)


EXCHANGES: dict[Operation, type[Exchange]] = {
    "all_reduce": AllReduce,
    "all_gather": AllGather,
    "reduce_scatter": ReduceScatter,
    "all_to_all": AllToAll,
    "broadcast": Broadcast,
    "reduce": Reduce,
    "send_recv": Ring,
}
"""By operation; a barrier has no payload, and pairs are messages."""
