"""Roles of programs: their names and folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchscale.errors import UsageError
from torchscale.util.roles import MARKER, VARIABLE, chosen_role, role_folder


def test_a_role_is_that_of_the_argument_then_of_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert chosen_role(None) == ""
    monkeypatch.setenv(VARIABLE, "rollout")
    assert chosen_role(None) == "rollout"
    assert chosen_role("trainer") == "trainer"
    assert chosen_role("") == ""


@pytest.mark.parametrize("role", ["a/b", "..", " x", "-x", "x" * 41])
def test_a_role_is_a_name_of_a_folder(role: str) -> None:
    with pytest.raises(UsageError, match="is no name"):
        chosen_role(role)


def test_each_role_has_a_folder_of_its_own(tmp_path: Path) -> None:
    job = tmp_path / "a" / "job"
    assert role_folder(job, "") == job
    assert not job.exists()
    assert role_folder(job, "trainer") == job / "trainer"
    assert [path.name for path in job.iterdir()] == [MARKER]
