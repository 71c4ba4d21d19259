"""When a rank called each collective, and when it waited for those that its program waits for in
Python: those of FSDP2, tensor parallelism, ZeRO's optimizer and gradient clipping.

With the parts of the collector of watched jobs. Over gloo alone: over NCCL such a wait returns at
once, and the stream waits. DistributedDataParallel waits in C++, and regions that were compiled
wait within their own code; neither is seen. Who knows when the former waits can say so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torchscale.schema.launch.exchanges import ExchangeBatch
from torchscale.worker.watch.dump import groups
from torchscale.worker.watch.hooks import watch_waits
from torchscale.worker.watch.marks import STEP, WAIT, WAIT_END, Marks, moment
from torchscale.worker.watch.recorder import Recorder

_NS = 1e-9
_MOST_CALLS = 200_000
"""Of a launch that are kept: 10 MB. The adaptive rule measures at most 400 steps, with ten to some
hundred collectives each."""


class ExchangeMeter:
    """Notes from :meth:`start` to :meth:`stop`."""

    def __init__(self) -> None:
        self._marks = Marks()
        self._recorder = Recorder(self._marks)
        self._undo: Callable[[], None] = lambda: None
        self._kept = 0
        self._is_waiting = False
        self._includes_sync = False

    def start(self) -> None:
        """Note every wait from now on."""
        self._recorder.drain()  # what earlier launches of this process called
        self._marks.start()
        self._marks.take()
        self._undo = watch_waits(self._marks)

    def stop(self) -> None:
        """Leave torch as it was."""
        self._undo()
        self._marks.stop()

    @property
    def count(self) -> int:
        """Moments since the last :meth:`take`."""
        return len(self._marks)

    def end_step(self) -> None:
        """Note the end of a step, or the start of a batch of them."""
        self._marks.note(STEP)

    def begin_sync(self) -> None:
        """From now on until :meth:`end_sync` the rank waits, for what DistributedDataParallel
        exchanges."""
        if not self._is_waiting:
            self._is_waiting = self._includes_sync = True
            self._marks.note(WAIT)

    def end_sync(self) -> None:
        """The wait is over, if there is one."""
        if self._is_waiting:
            self._is_waiting = False
            self._marks.note(WAIT_END)

    def take(self) -> list[int]:
        """The moments since the last call."""
        return self._marks.take()

    def read_batch(self, marks: Sequence[int]) -> ExchangeBatch | None:
        """The collectives since the last call, beside these moments; ``None`` once a launch has had
        very many."""
        if self._kept > _MOST_CALLS:
            return None
        lost_before = self._recorder.lost
        calls = self._recorder.drain()
        self._kept += len(calls)
        return ExchangeBatch(
            start_ns=self._marks.start_ns,
            marks=tuple(marks),
            calls=tuple(calls),
            names=tuple((key.group, key.operation, key.size) for key in self._recorder.keys),
            groups={name: tuple(ranks) for name, ranks in groups().items()},
            lost=self._recorder.lost - lost_before,
            includes_sync=self._includes_sync,
        )


def blocked_seconds(marks: Sequence[int]) -> float:
    """Seconds within waits; one within another counts once."""
    total, depth, since = 0, 0, 0
    for mark in marks:
        kind, nanoseconds = moment(mark)
        if kind not in (WAIT, WAIT_END):
            continue
        if kind == WAIT:
            depth += 1
            if depth == 1:
                since = nanoseconds
        else:
            depth -= 1
            if depth == 0:
                total += nanoseconds - since
    return total * _NS
