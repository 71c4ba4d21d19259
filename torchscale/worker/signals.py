"""Collects the diagnosis signals that are not part of measured steps: before, between and after the
batches."""

from __future__ import annotations

from torchscale.schema.launch.signals import RankSignals
from torchscale.worker.measure.host_events import (
    CollectionMeter,
    FaultMeter,
    PressureMeter,
    ThrottleWatch,
)
from torchscale.worker.measure.link import measure_link
from torchscale.worker.process_group import Ranks
from torchscale.worker.trainer import Trainer, UnsynchronizedWindow

_WINDOW_STEPS = 6
"""Steps of an unsynchronized window: with two windows, twelve samples of a rank's compute, enough
for a median."""
_WINDOW_SECONDS = 5.0
"""A window of slow steps is cut to this; the measurement itself takes tens of seconds."""
_MIN_WINDOW_STEPS = 2
"""A single step would not show that compute varies."""
_LINK_SECONDS = 6.0
"""Upper bound of the link measurement: 3 s of timed rounds (measure/link.py), and as much for the
first round."""


class SignalCollector:
    """Call :meth:`before` and :meth:`after` the measurement and :meth:`between` its batches, on
    every rank."""

    def __init__(self, ranks: Ranks, trainer: Trainer) -> None:
        self._ranks, self._trainer = ranks, trainer
        self._windows: list[UnsynchronizedWindow] = []
        self._collections = CollectionMeter()
        self._throttle = ThrottleWatch(ranks.device)
        self._pressure = PressureMeter(ranks.device)
        self._faults = FaultMeter()

    def before(self) -> None:
        """Run the first unsynchronized window after warm-up; then start the meters."""
        self._run_window()
        self._pressure = PressureMeter(self._ranks.device)
        self._throttle.poll()
        self._collections.start()
        self._faults = FaultMeter()

    def between(self, steps: int) -> None:
        """Count the page faults of a batch of ``steps``, and poll the driver for throttle reasons;
        call it after each batch, where no time is measured."""
        self._faults.note(steps)
        self._throttle.poll()

    def after(self, budget_left: float | None) -> RankSignals:
        """Stop the meters; run the second window and the link measurement if the budget (seconds)
        allows. Returns the signals."""
        self._collections.stop()
        ready = self._trainer.bucket_ready_seconds
        page_faults, retries = self._pressure.page_faults(), self._pressure.allocation_retries()
        minor_faults = self._faults.read()
        first = self._windows[0].wall_seconds if self._windows else 0.0
        budget = self._ranks.broadcast_scalar(-1.0 if budget_left is None else budget_left)
        if budget < 0 or budget > first:
            self._run_window()
        buckets = self._trainer.bucket_bytes
        link = None
        if buckets and (budget < 0 or budget > first + _LINK_SECONDS):
            link = measure_link(buckets, self._ranks)
        compute_seconds = tuple(seconds for window in self._windows for seconds in window.seconds)
        wall_seconds = None
        if self._windows:
            wall_seconds = sum(window.wall_seconds for window in self._windows)
        return RankSignals(
            unsynchronized_seconds=compute_seconds or None,
            unsynchronized_wall_seconds=wall_seconds,
            bucket_bytes=buckets or None,
            bucket_ready_seconds=ready or None,
            link=link,
            collections=self._collections.count,
            collection_seconds=self._collections.seconds,
            longest_collection_seconds=self._collections.longest,
            page_faults=page_faults,
            minor_faults=minor_faults,
            allocation_retries=retries,
            throttle_reasons=self._throttle.reasons,
        )

    def _run_window(self) -> None:
        if self._ranks.world_size == 1:
            return
        step = self._trainer.last_step_seconds
        steps = int(
            self._ranks.broadcast_scalar(min(_WINDOW_STEPS, int(_WINDOW_SECONDS / max(step, 1e-9))))
        )
        window = self._trainer.run_unsynchronized(steps) if steps >= _MIN_WINDOW_STEPS else None
        if window is not None:
            self._windows.append(window)
