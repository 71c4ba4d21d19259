"""OpenMetrics 1.0: the figures of :mod:`torchscale.report.exporters.prometheus`."""

from torchscale.report.exporters.prometheus import render_openmetrics as render

__all__ = ["render"]
