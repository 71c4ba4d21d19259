"""Time that torch's compiler takes, in whichever step it runs."""

from __future__ import annotations

from time import perf_counter
from typing import Any


class CompilationMeter:
    """Seconds that torch's compiler took since this object was made; ``None`` where this torch has
    no such callbacks.

    The callbacks are not public, and may be missing in another version.
    """

    def __init__(self) -> None:
        self.seconds: float | None = None
        self._began = 0.0
        try:
            from torch._dynamo.callback import callback_handler  # noqa: PLC0415 - imports the whole compiler

            callback_handler.register_start_callback(self._start)
            callback_handler.register_end_callback(self._end)
        except (ImportError, AttributeError):
            return
        self._handler: Any = callback_handler
        self.seconds = 0.0

    def stop(self) -> None:
        """Remove the callbacks; ``seconds`` keeps its value."""
        if self.seconds is not None:
            self._handler.remove_start_callback(self._start)
            self._handler.remove_end_callback(self._end)

    def _start(self, *details: object) -> None:
        del details
        self._began = perf_counter()

    def _end(self, *details: object) -> None:
        del details
        self.seconds = (self.seconds or 0.0) + perf_counter() - self._began
