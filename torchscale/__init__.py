"""torchscale: is this GPU node fit, how well does training scale on it, and what holds it back."""

from torchscale.stepping import step_profiler

__all__ = ["__version__", "step_profiler"]
__version__ = "0.1.0"
