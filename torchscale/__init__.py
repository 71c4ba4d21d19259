"""torchscale: is this GPU node fit, how well does training scale on it, and what holds it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchscale.step_profiler import step_profiler
from torchscale.version import __version__
from torchscale.watching import watch

if TYPE_CHECKING:
    from torchscale.api import analyze, benchmark, compare_results, profile, validate
    from torchscale.run_results import Results, load_results

__all__ = [
    "Results",
    "__version__",
    "analyze",
    "benchmark",
    "compare_results",
    "load_results",
    "profile",
    "step_profiler",
    "validate",
    "watch",
]
_IN_API = frozenset(__all__) - {"__version__", "step_profiler", "watch"}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - the type depends on the name
    """Import the Python interface at first use: the command line starts without it."""
    if name in _IN_API:
        from torchscale import api  # noqa: PLC0415

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
