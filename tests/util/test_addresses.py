"""Addresses of object stores: which texts are some, and what is shown of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchscale.errors import UsageError
from torchscale.util import addresses
from torchscale.util.addresses import (
    Address,
    is_copy,
    note_copy,
    parse_address,
    refuse_address,
    storage_address,
    with_addresses,
)


@pytest.fixture(autouse=True)
def no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "_copies", {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://bucket/runs/demo", Address("s3://bucket/runs/demo", "s3")),
        ("S3://bucket/runs/demo//", Address("s3://bucket/runs/demo", "s3")),
        ("gs://bucket", Address("gs://bucket", "gs")),
        ("abfs://box@account.dfs.net/a", Address("abfs://box@account.dfs.net/a", "abfs")),
        ("memory://a/b", Address("memory://a/b", "memory")),
        ("results/demo", Path("results/demo")),
        ("file:///data/run", Path("/data/run")),
        ("file://run", Path("run")),
        ("a:b", Path("a:b")),
    ],
)
def test_a_text_is_an_address_or_a_path(text: str, expected: Address | Path) -> None:
    assert parse_address(text) == expected


def test_what_lies_within_an_address_and_its_name() -> None:
    address = Address("s3://bucket/runs", "s3") / "demo"
    assert (address.text, address.name) == ("s3://bucket/runs/demo", "demo")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("foo://a/b", "foo://a/b: unknown scheme foo; expected one of s3://, gs://"),
        ("s3://", "s3://: expected a bucket and a path"),
        ("s3:///etc", "s3:///etc: expected a bucket and a path"),
        ("s3://bucket/..", "expected a bucket and a path"),
        ('s3://bucket/a"b', "expected a bucket and a path"),
        ("s3://bucket/<script>", "expected a bucket and a path"),
        ("s3://bucket/a\nb", "expected a bucket and a path"),
    ],
)
def test_what_is_wrong_with_an_address(text: str, error: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_address(text)
    assert error in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        "s3://AKIA0123456789ABCDEF:hunter22@bucket/run",
        "s3://hunter22@bucket/run",
        "abfs://box:hunter22@account.dfs.net/a",
        "az://box/run?sig=hunter22",
    ],
)
def test_credentials_in_an_address_are_refused_and_not_shown(text: str) -> None:
    with pytest.raises(UsageError, match="no credentials, keys or tokens") as caught:
        parse_address(text)
    assert "hunter22" not in f"{caught.value.message}{caught.value.hint}"
    assert "AWS_PROFILE" in str(caught.value.hint)


def test_where_only_a_local_path_can_be() -> None:
    with pytest.raises(UsageError, match="--output-dir s3://b/run: only a local path") as caught:
        refuse_address("--output-dir", "s3://b/run")
    assert "--copy-to" in str(caught.value.hint)
    for local in ("results/demo", "file:///data/run"):
        refuse_address("--output-dir", local)


def test_results_are_copied_to_an_address_alone() -> None:
    assert storage_address("s3://b/runs").text == "s3://b/runs"
    with pytest.raises(UsageError, match="results is a local path; expected an address"):
        storage_address("results")


def test_a_copy_is_shown_by_its_address() -> None:
    note_copy(Path("/tmp/x/0/demo"), Address("s3://b/demo", "s3"))
    assert with_addresses("/tmp/x/0/demo/cells: not there") == "s3://b/demo/cells: not there"
    assert is_copy(Path("/tmp/x/0/demo/cells"))
    assert not is_copy(Path("/tmp/x/0"))
    assert not is_copy(Path("/tmp/x/0/demo-2"))
