"""One class per collective: its buffers, the call that is timed, and an exact check of its result.

Every element is a small integer that encodes its rank and its index, so that any difference is an
error and not rounding, and an element from the wrong rank or index is detected.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from torchscale.config.choices import ElementType, Operation
from torchscale.worker.process_group import Ranks

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
"""The largest n such that every integer from 0 to n is exact in that dtype. Dtypes that are not
listed reach at least 2**24."""
_MODULUS = 97
"""A prime, so that values do not repeat at the powers of two at which buffers are cut; below the
2**8 of bf16."""
_CHUNK = 1 << 24
"""Elements that are filled or compared at once: int64 copies of a whole buffer would take eight
times its memory."""


class Collective(ABC):
    """One operation on one payload. ``elements`` is rounded so that every rank's part is equal.

    Attributes:
        payload_bytes: Payload as nccl-tests counts it.
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
        # Sums stay exact: small numbers, and where even ones are too many, nothing from the ranks
        # beyond.
        self._modulus = (
            min(_MODULUS, max(2, exact // ranks.world_size + 1)) if self.adds else _MODULUS
        )
        self._adding = exact if self.adds else ranks.world_size
        self.input, self.output = self.allocate(kind)

    def allocate(self, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        """The input and the output buffer: one and the same where the operation is in place."""
        buffer = self.empty(self.elements, kind)
        return buffer, buffer

    def empty(self, elements: int, kind: torch.dtype) -> Tensor:
        """An uninitialized buffer of ``elements`` values on this rank's device."""
        return torch.empty(elements, dtype=kind, device=self.ranks.device)

    @abstractmethod
    def call(self) -> None:
        """Run the collective once: this call is what is timed."""

    @abstractmethod
    def expected(self, start: int, stop: int) -> Tensor | None:
        """The correct values of ``output[start:stop]`` as int64; ``None`` where this rank receives
        nothing."""

    def fill(self) -> None:
        """Fill the input with this rank's values, and an output that is not the input with a value
        that no rank sends."""
        self.output.fill_(_MODULUS + 1)
        for start in range(0, len(self.input), _CHUNK):
            stop = min(start + _CHUNK, len(self.input))
            self.input[start:stop] = self.values(self.ranks.rank, start, stop).to(self.input.dtype)

    def clear(self) -> None:
        """Set the input to zeros, which do not overflow however often they are summed in place."""
        self.input.zero_()

    def wrong_elements(self) -> int:
        """Number of elements of the output that differ from :meth:`expected`."""
        wrong = 0
        for start in range(0, len(self.output), _CHUNK):
            stop = min(start + _CHUNK, len(self.output))
            expected = self.expected(start, stop)
            if expected is not None:
                wrong += int((self.output[start:stop] != expected.to(self.output.dtype)).sum())
        return wrong

    def values(self, rank: int, start: int, stop: int) -> Tensor:
        """The values of ``rank`` at indices ``start`` to ``stop``, int64; their sum over ranks is
        exact in the dtype."""
        indices = torch.arange(start, stop, dtype=torch.int64, device=self.ranks.device)
        if rank >= self._adding:
            return torch.zeros_like(indices)
        return indices.mul_(7).add_(13 * rank + 1).remainder_(self._modulus)

    def sums(self, start: int, stop: int) -> Tensor:
        """The sum over all ranks of their values at indices ``start`` to ``stop``, int64."""
        total = self.values(0, start, stop)
        for rank in range(1, self.ranks.world_size):
            total += self.values(rank, start, stop)
        return total


class AllReduce(Collective):
    """Every rank gets the sum."""

    in_place = adds = True

    def call(self) -> None:
        """All-reduce the buffer in place."""
        dist.all_reduce(self.input)

    def expected(self, start: int, stop: int) -> Tensor | None:
        """The sum over all ranks."""
        return self.sums(start, stop)


class Reduce(AllReduce):
    """Rank 0 gets the sum; what the others hold afterwards is undefined."""

    def call(self) -> None:
        """Reduce the buffer to rank 0, in place."""
        dist.reduce(self.input, dst=0)

    def expected(self, start: int, stop: int) -> Tensor | None:
        """The sum over all ranks on rank 0; ``None`` elsewhere."""
        if self.ranks.rank == 0:
            return self.sums(start, stop)
        return None


class Broadcast(Collective):
    """Every rank gets rank 0's buffer."""

    in_place = True

    def call(self) -> None:
        """Broadcast the buffer from rank 0, in place."""
        dist.broadcast(self.input, src=0)

    def expected(self, start: int, stop: int) -> Tensor | None:
        """The values of rank 0."""
        return self.values(0, start, stop)


class AllGather(Collective):
    """Every rank gets all parts."""

    splits = True

    def allocate(self, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        """One part as input, the parts of all ranks as output."""
        return self.empty(self.part, kind), self.empty(self.elements, kind)

    def call(self) -> None:
        """Gather the parts of all ranks."""
        dist.all_gather_into_tensor(self.output, self.input)

    def expected(self, start: int, stop: int) -> Tensor | None:
        """The ranks' parts in the order of ranks."""
        return _by_part(start, stop, self.part, self.values)


class ReduceScatter(Collective):
    """Every rank gets its part of the sum."""

    splits = adds = True

    def allocate(self, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        """The parts for all ranks as input, one part as output."""
        return self.empty(self.elements, kind), self.empty(self.part, kind)

    def call(self) -> None:
        """Reduce all parts, and keep this rank's."""
        dist.reduce_scatter_tensor(self.output, self.input)

    def expected(self, start: int, stop: int) -> Tensor | None:
        """The sum over all ranks of this rank's part."""
        offset = self.ranks.rank * self.part
        return self.sums(offset + start, offset + stop)


class AllToAll(Collective):
    """Every rank sends a different part to every rank."""

    splits = True

    def allocate(self, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        """Two buffers of the whole payload."""
        return self.empty(self.elements, kind), self.empty(self.elements, kind)

    def call(self) -> None:
        """Send part i to rank i, for every i."""
        dist.all_to_all_single(self.output, self.input)

    def expected(self, start: int, stop: int) -> Tensor | None:
        """The parts that the ranks hold for this one, in the order of ranks."""
        offset = self.ranks.rank * self.part
        return _by_part(
            start,
            stop,
            self.part,
            lambda rank, first, last: self.values(rank, offset + first, offset + last),
        )


class Ring(Collective):
    """Every rank sends its buffer to the next rank and receives that of the previous one."""

    def allocate(self, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        """Two buffers of the whole payload."""
        return self.empty(self.elements, kind), self.empty(self.elements, kind)

    def call(self) -> None:
        """Send to the next rank and receive from the previous one at the same time."""
        rank, count = self.ranks.rank, self.ranks.world_size
        both = [
            dist.P2POp(dist.isend, self.input, (rank + 1) % count),
            dist.P2POp(dist.irecv, self.output, (rank - 1) % count),
        ]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    def expected(self, start: int, stop: int) -> Tensor | None:
        """The values of the previous rank."""
        return self.values((self.ranks.rank - 1) % self.ranks.world_size, start, stop)


class Message(Collective):
    """One rank sends its buffer to another, and both alone take part: in ``group``, or among all
    ranks."""

    def __init__(
        self,
        ranks: Ranks,
        payload_bytes: int,
        source: int,
        target: int,
        group: ProcessGroup | None = None,
    ) -> None:
        self._source, self._target, self._group = source, target, group
        super().__init__(ranks, "fp32", payload_bytes)

    def call(self) -> None:
        """Send on the source rank, receive on the target rank."""
        if self.ranks.rank == self._source:
            dist.send(self.input, self._target, self._group)
        else:
            dist.recv(self.output, self._source, self._group)

    def expected(self, start: int, stop: int) -> Tensor | None:
        """The values of the source rank."""
        return self.values(self._source, start, stop)


def _by_part(start: int, stop: int, part: int, values: Callable[[int, int, int], Tensor]) -> Tensor:
    """``values(rank, first, last)`` of every rank's part that ``start`` to ``stop`` overlaps,
    concatenated."""
    pieces = []
    for rank in range(start // part, (stop - 1) // part + 1):
        first, last = max(start, rank * part), min(stop, (rank + 1) * part)
        pieces.append(values(rank, first - rank * part, last - rank * part))
    return torch.cat(pieces)


COLLECTIVES: dict[Operation, type[Collective]] = {
    "all_reduce": AllReduce,
    "all_gather": AllGather,
    "reduce_scatter": ReduceScatter,
    "all_to_all": AllToAll,
    "broadcast": Broadcast,
    "reduce": Reduce,
    "send_recv": Ring,
}
"""Collective of each operation, but for barriers (no payload) and pairs (:class:`Message`)."""
