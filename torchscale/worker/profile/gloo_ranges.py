"""Collectives of CPU ranks as NVTX ranges, from the call to the completion, for recordings by nsys.

Every collective passes torch's dispatcher, whoever calls it: as an operator of ``c10d`` (DDP's
reducer in C++, FSDP2, a pipeline's schedule, a loop of one's own) or of ``_c10d_functional``
(tensor parallelism). Kernels of our own, in front of torch's, mark the call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup, Work, distributed_c10d

from torchscale.schema.profiles.nvtx_names import CollectiveName
from torchscale.worker.profile.nvtx import Nvtx
from torchscale.worker.profile.phase_ranges import PhaseRanges

_COLLECTIVES = (
    "allreduce_", "allreduce_coalesced_", "allgather_", "allgather_coalesced_", "_allgather_base_",
    "allgather_into_tensor_coalesced_", "reduce_scatter_", "_reduce_scatter_base_",
    "reduce_scatter_tensor_coalesced_", "broadcast_", "reduce_", "gather_", "scatter_", "alltoall_", "alltoall_base_",
    "barrier",
)  # fmt: skip
_POINT_TO_POINT = {"send": 2, "recv_": 2}
"""Operators, each with the place of the other rank (within the group) among its arguments."""
_resolve: Callable[[str], ProcessGroup] = getattr(distributed_c10d, "_resolve_process_group")  # noqa: B009 - not public
_FUNCTIONAL = (
    "all_reduce", "all_reduce_", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single", "broadcast",
    "broadcast_",
)  # fmt: skip
"""They return tensors that are to be waited for by ``wait_tensor``; the group's name is their last
text."""


@contextmanager
def gloo_ranges(nvtx: Nvtx, phases: PhaseRanges) -> Iterator[None]:
    """Mark collectives until the context ends, and interrupt ``phases`` while this rank waits for
    one."""
    marker = _Marker(nvtx, phases)
    libraries: list[Any] = [
        torch.library.Library(name, "IMPL")  # type: ignore[no-untyped-call]
        for name in ("c10d", "_c10d_functional")
    ]
    for name in (*_COLLECTIVES, *_POINT_TO_POINT):
        libraries[0].impl(name, marker.kernel(name), "AutogradCPU", with_keyset=True)
    for name in _FUNCTIONAL:
        libraries[1].impl(name, marker.functional_kernel(name), "CPU")
    libraries[1].impl("wait_tensor", marker.wait_for_tensor, "CPU")
    work_class: Any = Work
    wait = work_class.wait

    def waiting(work: Work, *arguments: Any, **options: Any) -> bool:  # noqa: ANN401 - passed on
        with phases.interrupted():
            result = wait(work, *arguments, **options)
            marker.end(id(work))
        return bool(result)

    work_class.wait = waiting
    try:
        yield
    finally:
        work_class.wait = wait
        for library in libraries:
            library._destroy()


class _Marker:
    """Begins a range at each call, and ends it when the collective is complete."""

    def __init__(self, nvtx: Nvtx, phases: PhaseRanges) -> None:
        self._nvtx, self._phases = nvtx, phases
        self._called: Counter[str] = Counter()
        self._running: dict[int, tuple[object, object]] = {}
        self._is_within = False

    def kernel(self, name: str) -> Callable[..., object]:
        """A kernel that replaces an operator of ``c10d``: it marks the call, and calls the
        operator's next kernel."""
        operator = getattr(torch.ops.c10d, name).default
        below = torch._C._after_autograd_keyset

        def marked(keys: Any, *arguments: object) -> object:  # noqa: ANN401 - of torch's dispatcher
            if self._is_within:
                return operator.redispatch(keys & below, *arguments)
            group = next(group for group in map(_group, arguments) if group is not None)
            peer = arguments[_POINT_TO_POINT[name]] if name in _POINT_TO_POINT else None
            handle = self._begin(name, group, max(map(_bytes, arguments)), peer)
            result = operator.redispatch(keys & below, *arguments)
            if isinstance(result, tuple | list):
                self._end_with(result[-1], handle)
            else:
                self._end_with(result, handle)
            return result

        return marked

    def functional_kernel(self, name: str) -> Callable[..., object]:
        """A kernel that marks an operator of ``_c10d_functional`` with a range."""
        operator = getattr(torch.ops._c10d_functional, name).default

        def marked(*arguments: object) -> object:
            name_of_group = next(text for text in reversed(arguments) if isinstance(text, str))
            group = _resolve(name_of_group)
            parts = group.size() if name == "all_gather_into_tensor" else 1
            handle = self._begin(name, group, max(map(_bytes, arguments)) * parts, None)
            with self._within():
                result = operator._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *arguments)
            self._running[result.data_ptr()] = result, handle
            return result

        return marked

    def wait_for_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """``wait_tensor``; the collective is complete when it returns."""
        operator = torch.ops._c10d_functional.wait_tensor.default
        with self._phases.interrupted():
            result: torch.Tensor = operator._op_dk(
                torch._C.DispatchKey.CompositeExplicitAutograd, tensor
            )
            self.end(tensor.data_ptr())
        return result

    def end(self, key: int) -> None:
        """End the range of a collective that tells of its completion by a wait alone."""
        _, handle = self._running.pop(key, (None, None))
        if handle is not None:
            self._nvtx.end(handle)

    def _begin(self, name: str, group: ProcessGroup, payload_bytes: int, peer: object) -> object:
        ranks = dist.get_process_group_ranks(group)
        label = f"{group.group_name} {ranks}"
        if isinstance(peer, int):
            return self._nvtx.start(
                CollectiveName(name, payload_bytes, label, -1, ranks[peer]).text
            )
        self._called[label] += 1
        return self._nvtx.start(
            CollectiveName(name, payload_bytes, label, self._called[label], -1).text
        )

    def _end_with(self, boxed: Any, handle: object) -> None:  # noqa: ANN401 - of torch's dispatcher
        work = Work.unbox(boxed)
        try:
            work.get_future().add_done_callback(lambda _: self._nvtx.end(handle))
        except RuntimeError:  # gloo's reduce-scatter has none
            self._running[id(work)] = work, handle

    @contextmanager
    def _within(self) -> Iterator[None]:
        """One kind of operator calls the other, which is then marked already."""
        self._is_within = True
        try:
            yield
        finally:
            self._is_within = False


def _group(argument: object) -> ProcessGroup | None:
    if not isinstance(argument, torch.ScriptObject) or "ProcessGroup" not in str(argument._type()):
        return None
    return ProcessGroup.unbox(argument)


def _bytes(argument: object) -> int:
    """Bytes of a tensor, or of tensors in lists; 0 for anything else."""
    if isinstance(argument, torch.Tensor):
        return argument.numel() * argument.element_size()
    if isinstance(argument, list | tuple):
        return sum(map(_bytes, argument))
    return 0
