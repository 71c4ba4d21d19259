"""The extras of the package: which of them brings a library that the core does without."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType

from torchscale.errors import UsageError

EXTRA_OF: Mapping[str, str] = MappingProxyType(
    {
        "torch": "train",
        "transformers": "train",
        "pandas": "report",
        "plotly": "report",
        "matplotlib": "report",
        "jinja2": "report",
        "markupsafe": "report",  # comes with jinja2
        "weasyprint": "report",
        "ray": "ray",
        "fsspec": "storage",
        "s3fs": "storage",
        "gcsfs": "storage",
    }
)
"""Name that is imported → the extra in pyproject.toml that installs it."""


def require(library: str, purpose: str) -> None:
    """Check that an optional library is installed, without importing it.

    Args:
        library: A key of :data:`EXTRA_OF`.
        purpose: What needs it, as the beginning of the message: ``a report in HTML``.

    Raises:
        UsageError: it is not installed; the hint is the command that installs it.
    """
    if not is_installed(library):
        raise _missing(library, purpose)


def require_storage(scheme: str, library: str) -> None:
    """Check that what opens an address of this scheme is installed.

    Args:
        scheme: ``s3``.
        library: What fsspec needs for it, of an extra or not; empty for nothing.

    Raises:
        UsageError: it is not; the hint is the command that installs it.
    """
    purpose = f"{scheme}://"
    require("fsspec", purpose)
    if library in EXTRA_OF:
        require(library, purpose)
    elif library and not is_installed(library):
        from torchscale.util.installation import library_command  # noqa: PLC0415 - a library is rarely missing

        raise UsageError(
            f"{purpose} needs {library}, which is not installed", hint=library_command(library)
        )


def missing_extra(error: ModuleNotFoundError) -> UsageError | None:
    """An error that names the missing extra, for an import that failed; ``None`` where the module
    is of no extra, or is installed."""
    library = (error.name or "").partition(".")[0]
    if library not in EXTRA_OF or is_installed(library):
        return None
    return _missing(library, "this command")


def is_installed(library: str) -> bool:
    """Whether a library can be imported; it is not imported."""
    try:
        return find_spec(library) is not None
    except (
        ImportError,
        ValueError,
    ):  # a finder that refuses it, or a module without a spec in sys.modules
        return False


def _missing(library: str, purpose: str) -> UsageError:
    from torchscale.util.installation import install_command  # noqa: PLC0415 - a library is rarely missing

    return UsageError(
        f"{purpose} needs {library}, which is not installed",
        hint=install_command(EXTRA_OF[library]),
    )
