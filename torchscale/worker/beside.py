"""Signals of the diagnosis that are taken beside the measured steps: before, between and after batches."""

from __future__ import annotations

from torchscale.schema.record import RankSignals
from torchscale.worker.measure.host_events import CollectionMeter, PressureMeter, ThrottleWatch
from torchscale.worker.measure.link import measure_link
from torchscale.worker.ranks import Ranks
from torchscale.worker.trainer import AloneWindow, Trainer

_WINDOW_STEPS = 6
_WINDOW_SECONDS = 5.0
_MIN_WINDOW_STEPS = 2
_LINK_SECONDS = 6.0
"""What the link's measurement may take at most, with its first, untimed round."""


class Beside:
    """Call :meth:`before` and :meth:`after` the measurement, :meth:`between` its batches; on every rank alike."""

    def __init__(self, ranks: Ranks, trainer: Trainer) -> None:
        self._ranks, self._trainer = ranks, trainer
        self._windows: list[AloneWindow] = []
        self._collections = CollectionMeter()
        self._throttle = ThrottleWatch(ranks.device)
        self._pressure = PressureMeter(ranks.device)

    def before(self) -> None:
        """The first window, once everything is warm; then listen."""
        self._window()
        self._pressure = PressureMeter(self._ranks.device)
        self._throttle.look()
        self._collections.start()

    def between(self) -> None:
        """Between batches, where no time counts."""
        self._throttle.look()

    def after(self, budget_left: float | None) -> RankSignals:
        """Listen no longer; the second window and the link, as far as the budget reaches."""
        self._collections.stop()
        page_faults, retries = self._pressure.page_faults(), self._pressure.allocation_retries()
        first = self._windows[0].wall_seconds if self._windows else 0.0
        left = self._ranks.agree(-1.0 if budget_left is None else budget_left)
        if left < 0 or left > first:
            self._window()
        buckets = self._trainer.bucket_bytes
        link = None
        if buckets and (left < 0 or left > first + _LINK_SECONDS):
            link = measure_link(buckets, self._ranks)
        alone = tuple(seconds for window in self._windows for seconds in window.seconds)
        return RankSignals(
            alone_seconds=alone or None,
            alone_wall_seconds=sum(window.wall_seconds for window in self._windows) if self._windows else None,
            bucket_bytes=buckets or None,
            link=link,
            collections=self._collections.count,
            collection_seconds=self._collections.seconds,
            longest_collection_seconds=self._collections.longest,
            page_faults=page_faults,
            allocation_retries=retries,
            throttle_reasons=self._throttle.reasons,
        )

    def _window(self) -> None:
        if self._ranks.world_size == 1:
            return
        step = self._trainer.last_step_seconds
        steps = int(self._ranks.agree(min(_WINDOW_STEPS, int(_WINDOW_SECONDS / max(step, 1e-9)))))
        window = self._trainer.run_alone(steps) if steps >= _MIN_WINDOW_STEPS else None
        if window is not None:
            self._windows.append(window)
