"""What ``--master`` takes."""

from __future__ import annotations

import pytest

from torchscale.errors import UsageError
from torchscale.features.cluster.master import parse_master


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n0:1", ("n0", 1)),
        ("n0", ("n0", 29500)),
        ("10.0.0.1:65535", ("10.0.0.1", 65535)),
        ("[fe80::1]:7", ("fe80::1", 7)),
    ],
)
def test_a_master_has_a_host_and_a_port(text: str, expected: tuple[str, int]) -> None:
    assert parse_master(text) == expected


@pytest.mark.parametrize(
    "text", ["", ":1", "a:0", "a:65536", "a:b", "a b:1", "fe80::1", "http://a:1", "a:1:2"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected HOST:PORT"):
        parse_master(text)
