"""OpenMetrics 1.0: the figures of :mod:`torchscale.features.export.formats.prometheus`."""

from torchscale.features.export.formats.prometheus import render_openmetrics as render

__all__ = ["render"]
