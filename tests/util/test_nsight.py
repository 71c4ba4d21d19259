"""The parts of an installation of Nsight Systems."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchscale.util.nsight import importer_problem, installation_of


def installation(directory: Path, importer: str | None) -> Path:
    """An installation, with an importer of this script."""
    root = directory / "nsight-systems" / "2026.1"
    (root / "target-linux-x64").mkdir(parents=True)
    (root / "target-linux-x64" / "nsys").write_text("")
    if importer is not None:
        program = root / "host-linux-x64" / "QdstrmImporter"
        program.parent.mkdir()
        program.write_text(importer)
        program.chmod(0o755)
    return root


def test_its_directory_is_found_from_every_place_of_the_program(tmp_path: Path) -> None:
    root = installation(tmp_path, None)
    assert installation_of(root / "target-linux-x64" / "nsys") == root
    assert installation_of(root / "bin" / "nsys") == root
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nsys").symlink_to(root / "target-linux-x64" / "nsys")
    assert installation_of(tmp_path / "bin" / "nsys") == root
    assert installation_of(tmp_path / "elsewhere" / "deep" / "nsys") is None


@pytest.mark.parametrize(
    ("importer", "problem"),
    [
        (None, "its importer is not installed"),
        ("#!/bin/sh\necho NVIDIA Nsight Systems 2026.1\n", None),
        (
            "#!/bin/sh\necho \"$0: error while loading shared libraries: libx.so: no such file\" "
            ">&2\nexit 127\n",
            "its importer cannot be started: libx.so: no such file",
        ),
        ("#!/bin/sh\necho wrong machine >&2\nexit 3\n", "its importer cannot be started: wrong "
                                                        "machine"),
        ("#!/bin/sh\nexit 3\n", "its importer cannot be started: exit code 3"),
        ("#!/no/such/interpreter\n", "its importer cannot be started: No such file or directory"),
    ],
)  # fmt: skip
def test_an_importer_is_there_when_it_can_run(
    importer: str | None, problem: str | None, tmp_path: Path
) -> None:
    assert importer_problem(installation(tmp_path, importer)) == problem
