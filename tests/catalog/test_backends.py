"""Backends of torch.distributed."""

from __future__ import annotations

import pytest

from torchscale.catalog.backends import is_nccl, names_in, runs_on_device


@pytest.mark.parametrize(
    ("backend", "nccl", "device"),
    [
        ("nccl", True, True),
        ("nccl2", True, True),
        ("nccl-legacy", True, True),
        ("NCCL", True, True),
        ("cpu:gloo,cuda:nccl", True, True),
        ("cpu:gloo,cuda:nccl2", True, True),
        ("xccl", False, True),
        ("hccl", False, True),
        ("gloo", False, False),
        ("cpu:gloo,cuda:gloo", False, False),
        ("undefined", False, False),
        ("", False, False),
        (None, False, False),
    ],
)
def test_what_a_backend_is(backend: str | None, nccl: bool, device: bool) -> None:
    assert is_nccl(backend) == nccl
    assert runs_on_device(backend) == device


def test_the_parts_of_a_mixed_backend() -> None:
    assert names_in("cpu:gloo,cuda:nccl") == {"gloo", "nccl"}
