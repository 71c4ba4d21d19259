"""torchscale: is this GPU node fit, how well does training scale on it, and what holds it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchscale.names import __version__
from torchscale.stepping import step_profiler

if TYPE_CHECKING:
    from torchscale.api import Results, compare_results, load_results

__all__ = ["Results", "__version__", "compare_results", "load_results", "step_profiler"]
_OF_API = ("Results", "compare_results", "load_results")


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the name stands for
    """What reads results is imported when it is used: the command line starts without it."""
    if name in _OF_API:
        from torchscale import api  # noqa: PLC0415

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
