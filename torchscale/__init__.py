"""torchscale: is this GPU node fit, how well does training scale on it, and what holds it back."""

__version__ = "0.1.0"
