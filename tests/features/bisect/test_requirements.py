"""Requirements as lists and files, and versions in a directory of wheels."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.bisect.wheels import write_wheel
from torchscale.errors import UsageError
from torchscale.features.bisect.requirements import (
    name_of,
    pinned,
    read_requirements,
    version_of,
    versions_between,
)


def test_a_list_is_split_between_requirements_and_not_within() -> None:
    assert read_requirements("torch>=2.9,<2.11, NumPy==2.1 ,nvidia-nccl-cu12==2.27.3") == (
        "NumPy==2.1",
        "nvidia-nccl-cu12==2.27.3",
        "torch<2.11,>=2.9",
    )


def test_a_file_without_its_comments(tmp_path: Path) -> None:
    path = tmp_path / "old.txt"
    path.write_text("# made by hand\ntorch==2.9  # the one of May\n\nnumpy==2.1\n")
    assert read_requirements(str(path)) == ("numpy==2.1", "torch==2.9")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("-r other.txt", "-r other.txt"),
        ("torch==", "torch=="),
        ("torch==2.9\nTorch==2.10", "torch is named twice"),
        ("# nothing", "names no package"),
    ],
)
def test_what_is_no_requirement_is_refused(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_text(text)
    with pytest.raises(UsageError, match=named):
        read_requirements(str(path))


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_requirements("none.txt")


def test_names_and_versions() -> None:
    assert name_of("Nvidia_NCCL.cu12==2.27") == "nvidia-nccl-cu12"
    assert version_of("torch==2.9") == "2.9"
    assert version_of("torch>=2.9") == ">=2.9"
    assert version_of("torch") == "any version"
    assert pinned("torch", "2.9") == "torch==2.9"
    with pytest.raises(UsageError):
        pinned("torch", "2.9;")


def test_versions_in_between_are_in_their_order_and_not_in_that_of_letters(
    tmp_path: Path,
) -> None:
    for version in ("1.2", "1.10", "1.9", "1.11", "2.0"):
        write_wheel(tmp_path, "demo", version, "")
    write_wheel(tmp_path, "other", "1.5", "")
    (tmp_path / "no-wheel.whl").touch()
    assert versions_between("Demo", "1.2", "1.11", [tmp_path]) == ["1.2", "1.9", "1.10", "1.11"]
    assert versions_between("demo", "1.11", "1.9", [tmp_path]) == ["1.11", "1.10", "1.9"]
    assert versions_between("demo", ">=1.2", "1.11", [tmp_path]) == []
