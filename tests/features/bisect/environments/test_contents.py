"""What is seen of a change in an environment."""

from __future__ import annotations

import hashlib
import os
import shutil
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path

import pytest

from torchscale.features.bisect.environments.contents import (
    changed_in_cache,
    contents_of,
    differing,
    packages_of,
)

PACKAGES = Path("lib") / "python3.11" / "site-packages"
CODE = b"X = 1\n"


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """One with a package of two modules, of which one is compiled."""
    root = tmp_path / "environment"
    packages = root / PACKAGES
    digest = urlsafe_b64encode(hashlib.sha256(CODE).digest()).decode().rstrip("=")
    for name, content in {
        "demo/__init__.py": CODE,
        "demo/part/work.py": CODE,
        "demo/__pycache__/__init__.pyc": b"compiled",
        "demo-1.0.dist-info/RECORD": (
            f"demo/__init__.py,sha256={digest},6\ndemo/part/work.py,,\nabsent.py,sha256=x,1\n"
        ).encode(),
    }.items():
        path = packages / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (root / "bin").mkdir()
    (root / "bin" / "python").symlink_to("/usr/bin/python3")
    (root / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (root / "environment.json").write_text("{}")
    return root


def seen(root: Path) -> dict[str, str]:
    return contents_of(root, without="environment.json")


def edited(root: Path) -> None:
    (root / PACKAGES / "demo" / "__init__.py").write_text("X = 22\n")


def same_size(root: Path) -> None:
    (root / PACKAGES / "demo" / "part" / "work.py").write_text("X = 2\n")


def removed(root: Path) -> None:
    (root / PACKAGES / "demo" / "part" / "work.py").unlink()


def added(root: Path) -> None:
    (root / PACKAGES / "demo" / "work.cpython-311.so").touch()


def directory(root: Path) -> None:
    (root / PACKAGES / "demo" / "empty").mkdir()


def replaced_by_link(root: Path) -> None:
    path = root / PACKAGES / "demo" / "__init__.py"
    path.rename(root.parent / "elsewhere.py")
    path.symlink_to(root.parent / "elsewhere.py")


def replaced_by_pipe(root: Path) -> None:
    path = root / PACKAGES / "demo" / "__init__.py"
    path.unlink()
    os.mkfifo(path)


def new_package(root: Path) -> None:
    (root / PACKAGES / "sitecustomize.py").touch()


def other_version(root: Path) -> None:
    (root / PACKAGES / "demo-1.0.dist-info").rename(root / PACKAGES / "demo-1.1.dist-info")


def other_python(root: Path) -> None:
    (root / "bin" / "python").unlink()
    (root / "bin" / "python").symlink_to("/usr/bin/python2")


def other_settings(root: Path) -> None:
    (root / "pyvenv.cfg").unlink()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (edited, "demo"),
        (same_size, "demo"),
        (removed, "demo"),
        (added, "demo"),
        (directory, "demo"),
        (replaced_by_link, "demo"),
        (replaced_by_pipe, "demo"),
        (new_package, "sitecustomize.py"),
        (other_version, "demo-1.0.dist-info"),
        (other_python, "bin/python"),
        (other_settings, "pyvenv.cfg"),
    ],
)
def test_a_change_is_named(environment: Path, change: Callable[[Path], None], name: str) -> None:
    for path in environment.rglob("*.py"):
        os.utime(path, (1, 1))
    before = seen(environment)
    assert differing(before, seen(environment)) == ""
    change(environment)
    assert differing(before, seen(environment)) == name


def test_what_python_compiles_is_no_change(environment: Path) -> None:
    before = seen(environment)
    shutil.rmtree(environment / PACKAGES / "demo" / "__pycache__")
    (environment / PACKAGES / "demo" / "part" / "__pycache__").mkdir()
    (environment / PACKAGES / "demo" / "part" / "__pycache__" / "work.pyc").touch()
    (environment / "environment.json").write_text("{ }")
    assert differing(before, seen(environment)) == ""


def test_names_that_are_no_text_can_be_kept(environment: Path) -> None:
    Path(os.fsdecode(os.fsencode(environment / PACKAGES) + b"/\xff.py")).touch()
    assert "\\xff.py" in seen(environment)


def test_packages_are_known_by_their_metadata(environment: Path) -> None:
    (environment / PACKAGES / "a_b-2.0.post1.dist-info").mkdir()
    assert packages_of(seen(environment)) == ("a_b", "demo")


def test_a_file_that_a_cache_shares_is_compared_with_its_record(environment: Path) -> None:
    path = environment / PACKAGES / "demo" / "__init__.py"
    path.write_bytes(b"X = 9\n")
    assert changed_in_cache(environment) == ""  # a copy of its own: as it was unpacked
    (environment.parent / "cache.py").hardlink_to(path)
    assert changed_in_cache(environment) == "demo/__init__.py"
    path.write_bytes(CODE)
    assert changed_in_cache(environment) == ""


@pytest.mark.parametrize("record", [b"\xff\n", b'"', b"demo/__init__.py", b""])
def test_a_record_of_another_form_says_nothing(environment: Path, record: bytes) -> None:
    (environment / PACKAGES / "demo-1.0.dist-info" / "RECORD").write_bytes(record)
    assert changed_in_cache(environment) == ""
