"""Answers of object stores: in time, and in words."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.object_stores import Files, use
from torchscale.errors import FileSystemError, TorchscaleError, UsageError
from torchscale.store.storage import service
from torchscale.store.storage.service import Service
from torchscale.util.addresses import Address

ADDRESS = Address("s3://bucket/run", "s3")


def error_class(name: str, base: type[Exception] = Exception) -> type[Exception]:
    """As a library has it."""
    return type(name, (base,), {})


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Service:
    use(monkeypatch, Files({}))
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    return Service(ADDRESS)


@pytest.fixture
def silence() -> Iterator[threading.Event]:
    """Set at the end, so that no thread is left."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize(
    ("error", "kind", "message", "hint"),
    [
        (
            error_class("NoCredentialsError")("Unable to locate credentials"),
            FileSystemError,
            "s3://bucket/run: no credentials were found",
            "AWS_PROFILE",
        ),
        (
            PermissionError("Access Denied"),
            FileSystemError,
            "s3://bucket/run: access denied (Access Denied)",
            "AWS_PROFILE",
        ),
        (
            error_class("EndpointConnectionError")("Could not connect"),
            FileSystemError,
            "s3://bucket/run: cannot be reached",
            "AWS_ENDPOINT_URL",
        ),
        (
            error_class("ReadTimeoutError")(),
            FileSystemError,
            "s3://bucket/run: no answer within 60 s",
            "try again",
        ),
        (
            FileNotFoundError("The specified bucket does not exist"),
            UsageError,
            "s3://bucket/run: there is no bucket s3://bucket",
            None,
        ),
        (
            FileNotFoundError("bucket/run"),
            UsageError,
            "s3://bucket/run: there is nothing at this address",
            None,
        ),
        (
            OSError(5, "Internal Error"),
            FileSystemError,
            "s3://bucket/run: [Errno 5] Internal Error",
            "try again",
        ),
        (ValueError(), FileSystemError, "s3://bucket/run: ValueError", "try again"),
    ],
)
def test_what_went_wrong_in_words(
    store: Service, error: Exception, kind: type[TorchscaleError], message: str, hint: str | None
) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(kind) as caught:
        store.answered(fail)
    assert caught.value.message == message
    assert (caught.value.hint is None) is (hint is None)
    assert hint is None or hint in str(caught.value.hint)


def test_the_cause_of_an_error_is_told(store: Service) -> None:
    def fail() -> None:
        raise OSError("failed") from error_class("ConnectTimeoutError")()

    with pytest.raises(FileSystemError, match="cannot be reached"):
        store.answered(fail)


def test_a_secret_in_a_librarys_error_is_not_shown(
    store: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI7MDENG")

    def fail() -> None:
        raise OSError("signed with wJalrXUtnFEMI7MDENG")

    with pytest.raises(FileSystemError) as caught:
        store.answered(fail)
    assert "wJalrXUtnFEMI7MDENG" not in caught.value.message


def test_a_store_that_never_answers_is_given_up(store: Service, silence: threading.Event) -> None:
    with pytest.raises(FileSystemError, match=r"no answer within 0\.01 s"):
        store.answered(silence.wait, 0.01)


def test_a_store_that_never_opens_is_given_up(
    monkeypatch: pytest.MonkeyPatch, silence: threading.Event
) -> None:
    monkeypatch.setattr(service, "_opened", lambda address: silence.wait())
    monkeypatch.setattr(service, "ANSWER_SECONDS", 0.01)
    with pytest.raises(FileSystemError, match=r"no answer within 0\.01 s"):
        Service(ADDRESS)


def test_the_endpoint_that_was_set_is_named(
    store: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://user:hunter22@minio:9000")
    hint = str(store.no_answer(60).hint)
    assert "minio:9000" in hint
    assert "hunter22" not in hint


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_s3_is_asked_where_it_is_said_to_be(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "http://minio:9000")
    files = Service(ADDRESS).files
    assert files.endpoint_url == "http://minio:9000"
    assert files.config_kwargs["connect_timeout"] == 10
    assert files.config_kwargs["read_timeout"] == 60


@pytest.mark.parametrize(
    ("address", "library", "message", "hint"),
    [
        ("s3://b/x", "fsspec", "s3:// needs fsspec, which is not installed", "[storage]"),
        ("s3://b/x", "s3fs", "s3:// needs s3fs, which is not installed", "[storage]"),
        ("gs://b/x", "gcsfs", "gs:// needs gcsfs, which is not installed", "[storage]"),
        ("az://b/x", "adlfs", "az:// needs adlfs, which is not installed", "adlfs"),
    ],
)
def test_a_missing_library_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, address: str, library: str, message: str, hint: str
) -> None:
    monkeypatch.setattr(
        "torchscale.util.extras.find_spec", lambda name: None if name == library else object()
    )
    with pytest.raises(UsageError) as caught:
        Service(Address(address, address.partition(":")[0]))
    assert caught.value.message == message
    assert "pip install" in str(caught.value.hint)
    assert hint in str(caught.value.hint)
