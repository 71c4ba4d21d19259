"""Prometheus' text format."""

from torchscale.report.figures.prometheus import render

__all__ = ["render"]
