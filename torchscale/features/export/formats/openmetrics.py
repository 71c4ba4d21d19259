"""OpenMetrics 1.0: the figures of :mod:`torchscale.report.figures.prometheus`."""

from torchscale.report.figures.prometheus import render_openmetrics as render

__all__ = ["render"]
