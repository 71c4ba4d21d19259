"""The last collective that a rank called over gloo, in a file that outlives it: gloo aborts a
process whose collective gets more than it expects, and torch's recorder is gone with it.

The file is mapped into memory: a note takes 2 µs, and the kernel keeps what a killed process wrote.
Over NCCL nothing is noted: a rank waits there until a watchdog ends it, and its recorder was read
by then.
"""

from __future__ import annotations

import functools
import mmap
import os
from pathlib import Path
from time import time_ns
from typing import Any

import torch

from .guard import guarded, unseen
from .last_call_form import FILE, FORM
from .rings import GLOO

_SENDS = {"allreduce": 0, "broadcast": 0, "reduce": 0, "allgather": 1, "gather": 1, "barrier": None}
"""Methods of a process group → the argument that goes in."""
_NAMES = {"allreduce": b"all_reduce", "allgather": b"all_gather"}
"""As torch's recorder names them, where that differs."""
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class LastCall:
    """Of this rank."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._is_watching = False

    def begin(self) -> None:
        """Begin anew in a process that was forked: the file is the other one's."""
        self._memory = None

    def watch(self) -> None:
        """Note calls, where gloo carries them out."""
        distributed = torch.distributed
        if self._is_watching or GLOO not in distributed.get_backend_config():
            return
        self._is_watching = True
        for method, position in _SENDS.items():
            self._surround(distributed.ProcessGroup, method, position)

    def open(self, folder: Path) -> None:
        """Make the file.

        Raises:
            OSError: it cannot be made.
        """
        if not self._is_watching or self._memory is not None:
            return
        descriptor = os.open(folder / FILE, _NEW, 0o666)
        try:
            os.posix_fallocate(descriptor, 0, FORM.size)  # a full disk says so here, not at a note
            self._memory = mmap.mmap(descriptor, FORM.size)
        finally:
            os.close(descriptor)

    def _surround(self, owner: Any, method: str, position: int | None) -> None:  # noqa: ANN401 - a class
        original = getattr(owner, method)
        name = _NAMES.get(method, method.encode())

        @functools.wraps(original)
        def noting(group: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as torch's
            memory = self._memory
            if memory is not None:
                sent = args[position] if position is not None and position < len(args) else ()
                guarded(_note, memory, group, name, sent)
            try:
                return original(group, *args, **options)
            except BaseException as error:
                unseen(error)
                raise

        setattr(owner, method, noting)


def _note(memory: mmap.mmap, group: Any, name: bytes, sent: Any) -> None:  # noqa: ANN401 - as torch's
    elements = size = 0
    dtype = b""
    for tensor in (sent,) if isinstance(sent, torch.Tensor) else sent:
        count = tensor.numel()
        elements += count
        size += count * tensor.element_size()
        dtype = str(tensor.dtype).encode()
    number = group._get_sequence_number_for_group() + 1
    group_name = group.group_name.encode()
    FORM.pack_into(memory, 0, time_ns(), number, size, elements, name, dtype, group_name)
