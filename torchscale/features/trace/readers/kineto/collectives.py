"""Communication of a rank: from events to collectives with start, end and payload.

Kernels that communicate are the collectives. gloo leaves a call on the training thread and an annotation on
its own thread, which are matched here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeGuard

import msgspec
import numpy as np
from numpy.typing import NDArray

from torchscale.catalog.communication import function_of, is_known_op, op_of
from torchscale.features.trace.readers.columns import CollectiveRow, direction_of
from torchscale.features.trace.readers.kineto.forms import EventArgs
from torchscale.features.trace.readers.soundness import MAX_NS, bounded_ns, whole_number
from torchscale.features.trace.span import SEND_RECV

_GLOO_STAND_INS = {"reduce_scatter": "all_reduce"}
"""What gloo records where it has no operation of its own: it implements reduce-scatter by an
all-reduce."""
_ELEMENT_BYTES = {
    "float": 4, "float32": 4, "double": 8, "float64": 8, "half": 2, "float16": 2, "bfloat16": 2, "int": 4, "int32": 4,
    "long": 8, "long int": 8, "int64": 8, "short": 2, "int16": 2, "char": 1, "int8": 1, "byte": 1,
    "unsigned char": 1, "uint8": 1, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "c10::bfloat16": 2,
    "c10::half": 2, "signed char": 1,
}  # fmt: skip
_MAX_DIMENSIONS = 64
"""Maximum number of dimensions of a tensor in torch. The product of many numbers takes time without
end."""


class CommunicationKernel(NamedTuple):
    """A kernel that communicates; times in microseconds, as the trace has them."""

    ts: float
    dur: float
    name: str
    args: EventArgs
    stream: int
    device: int = -1


class GlooCall(NamedTuple):
    """The call of a collective on the training thread."""

    ts: float
    op: str
    args: EventArgs
    thread: int
    direction: int = 0


class GlooCompletion(NamedTuple):
    """gloo's own annotation of a collective, on the thread that runs it, from its start to its end;
    that of a send or a receive begins with the call and ends with the wait for it."""

    ts: float
    dur: float
    op: str
    args: EventArgs
    direction: int = 0
    thread: int = -1


def kernel_rows(kernels: Sequence[CommunicationKernel], base: int) -> Iterator[CollectiveRow]:
    """One collective a kernel; ``base`` is what makes its times nanoseconds since the epoch."""
    for kernel in kernels:
        start, end = interval(kernel.ts, kernel.dur, base)
        args = kernel.args
        # Sends and receives that are started together are called "coalesced"; the kernel's name
        # says what they are.
        name = function_of(kernel.name)
        if is_known_op(args.collective):
            name = args.collective
        peer = _rank_number(args.target), _rank_number(args.source)
        yield CollectiveRow(
            start,
            end,
            op_of(name),
            _group_name(args),
            payload_bytes(args),
            whole_number(args.sequence),
            kernel.stream,
            max(peer),
            direction_of(name),
            queue=kernel.stream,
            link=whole_number(args.correlation, 0),
        )


def gloo_rows(
    calls: Sequence[GlooCall], completions: Sequence[GlooCompletion], base: int
) -> Iterator[CollectiveRow]:
    """The n-th call of an operation until the n-th completion of it; sends and receives apart."""
    completed_ops = {completion.op for completion in completions}
    completed_as = {
        call.op: call.op if call.op in completed_ops else _GLOO_STAND_INS.get(call.op, call.op)
        for call in calls
    }
    for op, direction in sorted({(completed_as[call.op], call.direction) for call in calls}):
        called = [
            call for call in calls if (completed_as[call.op], call.direction) == (op, direction)
        ]
        called.sort(key=lambda call: call.ts)
        done = [
            completion
            for completion in completions
            if (completion.op, completion.direction) == (op, direction)
        ]
        done.sort(key=lambda completion: completion.ts)
        # A recording that began between a call and its completion has a completion too many at its
        # start.
        while done and called and done[0].ts < called[0].ts:
            del done[0]
        for call, completion in zip(called, done, strict=False):
            start, _ = interval(call.ts, 0.0, base)
            began, end = interval(completion.ts, completion.dur, base)
            size = payload_bytes(completion.args)
            if size < 0:
                size = payload_bytes(call.args)
            yield CollectiveRow(
                start,
                max(start, end),
                call.op,
                _group_name(call.args),
                size,
                -1,
                call.thread,
                _called_peer(call),
                call.direction,
                began=began,
                queue=-1 if op == SEND_RECV else completion.thread,
            )


def _group_name(args: EventArgs) -> str:
    """Name of a process group, with its ranks where they are recorded: groups along one dimension
    of a mesh can share a name."""
    ranks = bytes(args.group_ranks).decode(errors="replace").strip('"')
    if args.group and ranks.startswith("["):
        return f"{args.group} {ranks}".strip()
    return args.group


def _rank_number(text: msgspec.Raw) -> int:
    """A rank, written as a number or as text; -1 where there is none."""
    digits = bytes(text).strip(b'" ')
    if digits.isdigit() and len(digits) < 7:
        return int(digits)
    return -1


def _called_peer(call: GlooCall) -> int:
    """The rank within its group that a send or a receive is called with: after tensors and group,
    the first of its values; -1 where values were not recorded."""
    if call.op != SEND_RECV or not bytes(call.args.values):
        return -1
    try:
        values: object = msgspec.json.decode(call.args.values)
    except msgspec.DecodeError:
        return -1
    texts = []
    if isinstance(values, list):
        texts = [str(value)[:20] for value in values]
    numbers = [int(text) for text in texts if text.isascii() and text.isdigit()]
    if numbers and numbers[0] < 1 << 20:
        return numbers[0]
    return -1


def nanoseconds(microseconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Exact: microseconds since the epoch times 1,000 do not fit a float's 53 bits. Times that no
    recording has are cut to :data:`~torchscale.features.trace.readers.soundness.MAX_NS`."""
    limit = MAX_NS / 1000
    microseconds = np.clip(microseconds, -limit, limit)
    whole = np.floor(microseconds)
    return whole.astype(np.int64) * 1000 + np.rint((microseconds - whole) * 1000).astype(np.int64)


def interval(ts: float, dur: float, base: int) -> tuple[int, int]:
    """Start and end in nanoseconds since the epoch, from microseconds since ``base``."""
    start = base + int(nanoseconds(np.array([ts]))[0])
    return start, start + max(0, bounded_ns(dur))


def payload_bytes(args: EventArgs) -> int:
    """Bytes as nccl-tests counts them: the larger of input and output; -1 where the event has no
    size."""
    elements = max(args.in_elements, args.out_elements)
    if elements >= 0:
        size = _ELEMENT_BYTES.get(args.dtype.lower())
        if size is None:
            return -1
        return whole_number(elements * size)
    return _bytes_of_shapes(args)


def _bytes_of_shapes(args: EventArgs) -> int:
    if not bytes(args.shapes):
        return -1
    try:
        shapes: object = msgspec.json.decode(args.shapes)
        types: object = msgspec.json.decode(args.types) if bytes(args.types) else []
    except msgspec.DecodeError:
        return -1
    total, has_size = 0, False
    if isinstance(shapes, list) and isinstance(types, list):
        for shape, kind in zip(shapes, types, strict=False):
            size = _ELEMENT_BYTES.get(str(kind).lower())
            if size is not None and _is_shape(shape):
                total += size * math.prod(shape)
                has_size = True
    if has_size and total >= 0:
        return whole_number(total)
    return -1


def _is_shape(value: object) -> TypeGuard[list[int]]:
    if not isinstance(value, list) or not 0 < len(value) <= _MAX_DIMENSIONS:
        return False
    return all(isinstance(size, int) for size in value)
