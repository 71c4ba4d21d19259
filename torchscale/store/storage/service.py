"""An object store as fsspec opens it: its answers come in time, and its errors are told in words.

The libraries wait for servers in ways that nothing here can bound. Each call runs in a daemon
thread, which is left behind where no answer comes.
"""

from __future__ import annotations

import importlib
import logging
import os
import queue
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from torchscale.errors import FileSystemError, TorchscaleError, UsageError
from torchscale.util.addresses import LIBRARIES, Address
from torchscale.util.extras import require_storage
from torchscale.util.redaction import redact_text

T = TypeVar("T")

CONNECT_SECONDS = 10.0
"""A server that is there takes a connection within a second, over the slowest of links in three."""
ANSWER_SECONDS = 60.0
"""A listing or a part of a file takes seconds; object stores themselves give up after 60 s."""
_LONGEST_REASON = 300
_CREDENTIALS = frozenset(
    {
        *("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"),
        *("ProfileNotFound", "DefaultCredentialsError", "TokenRetrievalError"),
        *("UnauthorizedSSOTokenError", "SSOTokenLoadError", "ClientAuthenticationError"),
    }
)
_UNREACHABLE = frozenset(
    {
        *("EndpointConnectionError", "ConnectTimeoutError", "ClientConnectorError"),
        *("ConnectionError", "ConnectionClosedError", "ProxyConnectionError", "SSLError"),
        *("ServiceRequestError", "ClientConnectionError", "TransportError"),
    }
)
_TIMED_OUT = frozenset({"TimeoutError", "ReadTimeoutError", "FSTimeoutError"})
"""Names of classes of the libraries' errors, and of Python's own: no library is imported to know
them."""


class Service:
    """The object store of an address."""

    def __init__(self, address: Address) -> None:
        """
        Raises:
            UsageError: its library is not installed.
            FileSystemError: it cannot be used as it is set up.
        """
        self.address = address
        require_storage(address.scheme, LIBRARIES[address.scheme])
        self.files = self.answered(lambda: _opened(address))
        self.root: str = self.files._strip_protocol(address.text)

    def answered(self, call: Callable[[], T], seconds: float | None = None) -> T:
        """What the store answers to ``call``.

        Raises:
            UsageError: there is no such thing.
            FileSystemError: access is denied, or it does not answer within ``seconds``
                (:data:`ANSWER_SECONDS` by default).
        """
        bound = ANSWER_SECONDS if seconds is None else seconds
        answers: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()

        def ask() -> None:
            try:
                answers.put((True, call()))
            except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
                answers.put((False, error))

        threading.Thread(target=ask, daemon=True).start()
        try:
            answered, answer = answers.get(timeout=bound)
        except queue.Empty:
            raise self.no_answer(bound) from None
        if answered:
            result: T = answer
            return result
        raise self.explained(answer) from answer

    def no_answer(self, seconds: float) -> FileSystemError:
        """The error of a store that is silent."""
        return FileSystemError(
            f"{self.address.text}: no answer within {seconds:g} s", hint=self._up_hint()
        )

    def _up_hint(self) -> str:
        """What to look at where a store does not answer."""
        if self.address.scheme != "s3":
            return "look whether the network is up, and try again"
        endpoint = _s3_endpoint()
        if endpoint:
            return f"look whether {redact_text(endpoint)} (AWS_ENDPOINT_URL) is up, and try again"
        return "look whether the network is up, and try again; AWS_ENDPOINT_URL names another S3"

    def explained(self, error: BaseException) -> BaseException:
        """An error of its library in words; one of ours, and what is no error, as it is."""
        if isinstance(error, TorchscaleError) or not isinstance(error, Exception):
            return error
        names = _class_names(error)
        where, login = self.address.text, _LOGIN.get(self.address.scheme, _AZURE_LOGIN)
        if names & _CREDENTIALS:
            return FileSystemError(f"{where}: no credentials were found", hint=login)
        if names & _UNREACHABLE:
            return FileSystemError(f"{where}: cannot be reached", hint=self._up_hint())
        if names & _TIMED_OUT:
            return self.no_answer(ANSWER_SECONDS)
        if isinstance(error, FileNotFoundError):
            return _missing(where, str(error))
        if isinstance(error, PermissionError):
            return FileSystemError(f"{where}: access denied ({_one_line(error)})", hint=login)
        return FileSystemError(
            f"{where}: {_one_line(error) or type(error).__name__}", hint=self._up_hint()
        )


_LOGIN: Mapping[str, str] = MappingProxyType(
    {
        "s3": "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; for a public bucket "
        "FSSPEC_S3_ANON=true",
        "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or gcloud auth application-default login",
    }
)
_AZURE_LOGIN = "set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME and a key"
_TALKATIVE = ("fsspec", "s3fs", "gcsfs", "adlfs", "azure", "aiobotocore", "botocore", "asyncio")
"""Loggers of the libraries: they write tracebacks to the terminal where nobody listens."""


def _missing(where: str, reason: str) -> UsageError:
    bucket = "/".join(where.split("/")[:3])
    if "bucket does not exist" in reason or where == bucket:
        return UsageError(f"{where}: there is no bucket {bucket}")
    return UsageError(f"{where}: there is nothing at this address")


def _opened(address: Address) -> Any:  # noqa: ANN401 - fsspec has no types
    import fsspec  # noqa: PLC0415 - an extra, and only addresses need it

    for name in _TALKATIVE:
        logging.getLogger(name).addHandler(logging.NullHandler())
    library = LIBRARIES[address.scheme]
    if library:
        importlib.import_module(library)
    return fsspec.filesystem(
        address.scheme,
        skip_instance_cache=True,
        use_listings_cache=False,
        **_settings(address.scheme),
    )


def _settings(scheme: str) -> Mapping[str, object]:
    if scheme == "gs":
        return {"requests_timeout": ANSWER_SECONDS}
    if scheme != "s3":
        return {}
    endpoint = _s3_endpoint()
    return {
        # s3fs itself repeats a request four times.
        "config_kwargs": {
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": ANSWER_SECONDS,
            "retries": {"max_attempts": 1},
        },
        **({"endpoint_url": endpoint} if endpoint else {}),
    }


def _s3_endpoint() -> str:
    variables = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    return next((os.environ[name] for name in variables if os.environ.get(name)), "")


def _class_names(error: BaseException) -> set[str]:
    """Of the error, of what it came of, and of all that they are."""
    names: set[str] = set()
    chain: BaseException | None = error
    while chain is not None:
        names.update(kind.__name__ for kind in type(chain).__mro__)
        chain = chain.__cause__ or chain.__context__
    return names


def _one_line(error: BaseException) -> str:
    return " ".join(redact_text(str(error)).split())[:_LONGEST_REASON]
