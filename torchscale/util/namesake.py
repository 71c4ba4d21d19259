"""Other projects whose package is named ``torchscale`` too, in the environment that runs this.

PyPI's project ``torchscale`` (Transformers) installs into the same folder as ours. Both have
``torchscale/__init__.py``: the one that was installed last owns it, and uninstalling either removes
it. All other files differ.
"""

from __future__ import annotations

import shlex
from importlib.metadata import Distribution, distribution, packages_distributions
from types import ModuleType

from torchscale.errors import MachineError
from torchscale.util.installation import install_source

_PACKAGE = "torchscale"


def namesakes() -> tuple[str, ...]:
    """Installed distributions of others that hold a package ``torchscale``, as ``name version
    (summary)``."""
    names = dict.fromkeys(packages_distributions().get(_PACKAGE, ()))
    return tuple(_shown(other) for other in map(distribution, names) if not _is_ours(other))


def repairs(others: tuple[str, ...]) -> tuple[str, ...]:
    """Commands that leave our package alone in the environment, in the order in which they must
    run.

    Args:
        others: Names as of :func:`namesakes`.
    """
    removals = (f"pip uninstall {other.partition(' ')[0]}" for other in others)
    return (*removals, f"pip install --force-reinstall --no-deps {shlex.join(install_source())}")


def replaced_package(package: ModuleType) -> MachineError:
    """The error of our package whose ``__init__.py`` is another project's, or is missing."""
    others = namesakes()
    place = next(iter(package.__path__))
    found = (
        f"{place}/__init__.py is missing: the uninstallation of another package of that name took "
        "it along"
    )
    if package.__file__ is not None:
        owner = others[0] if others else "another project"
        found = f"{package.__file__} belongs to {owner}, whose package has the same name"
    return MachineError(found, hint=" && ".join(repairs(others)))


def _is_ours(installed: Distribution) -> bool:
    """Whether a distribution is this program, by its command and not by its name: earlier checkouts
    were installed as ``torchscale``."""
    return any(
        entry.group == "console_scripts" and entry.name == _PACKAGE
        for entry in installed.entry_points
    )


def _shown(installed: Distribution) -> str:
    summary = installed.metadata["Summary"]
    text = f"{installed.metadata['Name']} {installed.version}"
    if summary:
        text += f" ({summary})"
    return text
