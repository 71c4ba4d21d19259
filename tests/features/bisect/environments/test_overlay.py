"""torchscale in an environment that was built without it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.features.bisect.wheels import write_wheel
from torchscale.features.bisect.environment import ProgramEnvironment
from torchscale.features.bisect.environments.builder import Builder
from torchscale.features.bisect.environments.installer import Sources
from torchscale.features.bisect.environments.overlay import link_torchscale
from torchscale.features.bisect.environments.variables import variables_of

pytestmark = pytest.mark.slow


def run(directory: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(directory / "bin" / command[0]), *command[1:]],
        env=variables_of(directory, ()),
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_is_a_command_and_the_environments_own_packages_win(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    write_wheel(wheels, "psutil", "0.0.1", "WHOSE = 'the environment'")
    environment = ProgramEnvironment(requirements=("psutil==0.0.1",))
    builder = Builder(tmp_path / "cache", Sources((wheels,), with_torchscale=True))
    directory = builder.build(environment).directory
    assert directory is not None
    assert run(directory, "torchscale", "--version").stdout.startswith("torchscale ")
    imported = run(directory, "python", "-c", "import psutil, numpy, pydantic; print(psutil.WHOSE)")
    assert imported.stdout == "the environment\n", imported.stderr
    assert "No module named 'torch'" in run(directory, "python", "-c", "import torch").stderr


def test_other_commands_have_an_environment_without_it(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    write_wheel(wheels, "demo", "1.0", "")
    environment = ProgramEnvironment(requirements=("demo==1.0",))
    builders = [
        Builder(tmp_path / "cache", Sources((wheels,), with_torchscale=with_it))
        for with_it in (False, True)
    ]
    without, with_it = (builder.build(environment).directory for builder in builders)
    assert without is not None
    assert without != with_it
    assert "No module named" in run(without, "python", "-c", "import torchscale").stderr


@pytest.mark.parametrize("earlier", ["link", "file", "directory"])
def test_links_of_an_earlier_installation_are_replaced(tmp_path: Path, earlier: str) -> None:
    link_torchscale(tmp_path / "links")
    package = tmp_path / "links" / "torchscale"
    target = package.readlink()
    package.unlink()
    if earlier == "link":
        package.symlink_to(tmp_path / "gone")
    elif earlier == "file":
        package.touch()
    else:
        package.mkdir()
    link_torchscale(tmp_path / "links")
    assert package.readlink() == target
    assert not list((tmp_path / "links").glob("*.tmp"))
