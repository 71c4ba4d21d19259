"""A callback that has a run of Ray Train watched without a line in its train function::

    from torchscale.ray_train import WatchCallback

    TorchTrainer(train_func, run_config=RunConfig(callbacks=[WatchCallback()]), …)

It is one of Ray's callbacks for workers, which run before the process group is made. Ray calls that
interface one for developers and keeps it in a private module (tried with 2.60); the line
``torchscale.watch()`` in the train function needs none of it.
"""

from __future__ import annotations

import os

from ray.train.v2._internal.execution.callback import WorkerCallback

from torchscale.watching import watch


class WatchCallback(WorkerCallback):  # type: ignore[misc] # Ray has no types
    """Watches each worker of a run from before its process group on."""

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        timing: bool = False,
        role: str | None = None,
    ) -> None:
        """
        Args:
            directory: As of :func:`torchscale.watch`, and so are the others.
            timing: Whether torch is to time each collective on GPUs.
            role: What this run does in a job of several.
        """
        self._directory, self._timing, self._role = directory, timing, role

    def after_init_train_context(self) -> None:
        """In a worker, before its process group is made."""
        watch(self._directory, timing=self._timing, role=self._role)
