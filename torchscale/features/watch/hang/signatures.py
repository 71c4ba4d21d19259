"""What ranks pass to a collective: what must be equal between them, part by part, and how much it
is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torchscale.catalog.backends import is_nccl
from torchscale.features.watch.hang.collective_log import CollectiveCall
from torchscale.util.optional import complete, optional, sole

COALESCED = "coalesced"
"""End of the names of operations that torch carries out several collectives in."""
_DTYPE_BYTES = {"bfloat16": 2, "complex64": 8, "complex128": 16, "bool": 1}
_MAX_BYTES = 1 << 62
"""More than any memory: the shapes of a damaged dump."""
_SAME_INPUTS = ("allreduce", "broadcast", "reduce", "allgather")
"""Beginnings of names, without underscores, of operations whose ranks pass equal inputs. Gathers and
scatters differ at the root; an all-to-all may be uneven."""
_UNEVEN = ("all_gather_v", "reduce_scatter_v")
"""Operations that torch offers for inputs that differ between ranks."""
_UNEVEN_OVER_NCCL = ("all_gather", "reduce_scatter")
"""Over NCCL their lists of tensors may differ in size between ranks."""

CallSignature = tuple[str, tuple[int, ...], tuple[str, ...]]
"""Operation, elements of its tensors, dtypes; of one call. Its bytes where only those are known."""
Signature = tuple[CallSignature, ...]
"""What must be equal between ranks, of each call under one number."""


def signature_of(calls: Sequence[CollectiveCall]) -> Signature | None:
    """What must be equal between ranks of the calls under one number; in any order where it is not
    NCCL that carries them out. ``None`` where it is not known what was called."""
    if not all(call.operation for call in calls):
        return None
    signatures = map(call_signature, calls)
    if all(is_nccl(call.backend) for call in calls):
        return tuple(signatures)
    return tuple(sorted(signatures))


def call_signature(call: CollectiveCall) -> CallSignature:
    """What must be equal between ranks of one call."""
    operation = call.operation
    uneven = operation in _UNEVEN or (is_nccl(call.backend) and operation in _UNEVEN_OVER_NCCL)
    if uneven or not operation.replace("_", "").startswith(_SAME_INPUTS):
        return operation, (), ()
    if call.size is not None:
        return operation, (call.size,), ()
    elements = tuple(math.prod(shape) for shape in call.input_sizes)
    return operation, elements, call.input_dtypes


def parts_of(calls: Sequence[CollectiveCall]) -> tuple[CollectiveCall, ...]:
    """The collectives that were coalesced under one number, in the order of the calls; without the
    entry that torch writes when it ends them."""
    inner = [call for call in calls if not call.operation.endswith(COALESCED)]
    if inner:
        return tuple(inner)
    return tuple(part for call in calls for part in _tensors_of(call))


def differing_parts(
    called: Mapping[int, Sequence[CollectiveCall]],
) -> tuple[list[int], dict[int, tuple[CollectiveCall, ...]]]:
    """Positions of the parts in which ranks differ, from 0 on, and the parts of each rank. No
    position where ranks called one part each, or not as many."""
    parts = {rank: parts_of(calls) for rank, calls in called.items()}
    count = sole({len(of_rank) for of_rank in parts.values()})
    if count is None or count == 1:
        return [], parts
    return [
        position
        for position in range(count)
        if len({call_signature(of_rank[position]) for of_rank in parts.values()}) > 1
    ], parts


def payload_of(calls: Sequence[CollectiveCall]) -> int | None:
    """Bytes that a rank passes under one number; ``None`` where those of a part are not known."""
    parts = complete(map(payload_bytes, parts_of(calls)))
    return optional(sum, parts)


def payload_bytes(call: CollectiveCall) -> int | None:
    """Bytes of the tensors that a rank passes; ``None`` for a dtype of unknown size or without
    tensors."""
    if call.size is not None:
        return call.size
    sizes, dtypes = _payload(call)
    widths = [_width(dtype) for dtype in dtypes]
    if not sizes or len(sizes) != len(widths) or None in widths:
        return None
    total = sum(math.prod(shape) * (width or 0) for shape, width in zip(sizes, widths, strict=True))
    if not 0 <= total < _MAX_BYTES:
        return None
    return total


def payload_elements(call: CollectiveCall) -> int | None:
    """Elements of the tensors that a rank passes, where their types are not known; else ``None``."""
    sizes, dtypes = _payload(call)
    total = sum(math.prod(shape) for shape in sizes)
    if not sizes or dtypes or not 0 <= total < _MAX_BYTES:
        return None
    return total


def payload_dtype(call: CollectiveCall) -> str | None:
    """The dtype of the tensors that a rank passes; ``None`` for none or several."""
    return sole(set(call.input_dtypes or call.output_dtypes))


def _payload(call: CollectiveCall) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]:
    """Shapes and types of the tensors that a rank passes; of those that it receives where it passes
    none."""
    if call.input_sizes:
        return call.input_sizes, call.input_dtypes
    return call.output_sizes, call.output_dtypes


def _tensors_of(call: CollectiveCall) -> list[CollectiveCall]:
    """A call for each of the tensors that one call passes."""
    if len(call.input_sizes) < 2 or len(call.input_sizes) != len(call.input_dtypes):
        return [call]
    return [
        replace(call, input_sizes=(shape,), input_dtypes=(dtype,))
        for shape, dtype in zip(call.input_sizes, call.input_dtypes, strict=True)
    ]


def _width(dtype: str) -> int | None:
    """Bytes of an element: the digits of its name give the bits."""
    if dtype in _DTYPE_BYTES:
        return _DTYPE_BYTES[dtype]
    digits = "".join(character for character in dtype.partition("_")[0] if character.isdigit())
    if digits not in ("8", "16", "32", "64"):
        return None
    return int(digits) // 8
