"""Tests of :mod:`torchscale.features.cluster.engines`."""
