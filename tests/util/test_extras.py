"""Which extra brings a library that is missing."""

from __future__ import annotations

import sys

import pytest

from torchscale.errors import ExitCode, UsageError
from torchscale.util import extras
from torchscale.util.installation import install_command


def test_what_is_installed_is_not_refused() -> None:
    extras.require("jinja2", "the format html")


def test_what_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        sys.modules, "weasyprint", None
    )  # as Python marks a module that cannot be imported
    with pytest.raises(UsageError) as caught:
        extras.require("weasyprint", "the format pdf")
    assert caught.value.message == "the format pdf needs weasyprint, which is not installed"
    assert caught.value.hint == install_command("report")
    assert caught.value.exit_code == ExitCode.USAGE


def test_an_import_that_failed_becomes_the_same_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    error = extras.missing_extra(
        ModuleNotFoundError("No module named 'pandas.core'", name="pandas.core")
    )
    assert error is not None
    assert error.hint == install_command("report")


@pytest.mark.parametrize("name", ["no_such_module", None, "jinja2.no_such_part"])
def test_other_failed_imports_stay_what_they_are(name: str | None) -> None:
    assert extras.missing_extra(ModuleNotFoundError("No module", name=name)) is None
