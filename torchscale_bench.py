"""Starts the command ``torchscale``, or says that another project's package of that name is
imported in its place.

Not part of the package, which cannot say so: of an editable installation, or with another
``torchscale`` on ``PYTHONPATH``, nothing of ours can be imported.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

_UNABLE = 3
"""As ``ExitCode.UNABLE``."""


def run() -> None:
    """Run the program."""
    try:
        from torchscale.__main__ import run as start  # noqa: PLC0415 - may be missing
    except ModuleNotFoundError as error:
        if error.name != "torchscale.__main__":
            raise
        sys.stderr.write(_other_package())
        sys.exit(_UNABLE)
    start()


def _other_package() -> str:
    spec = find_spec("torchscale")
    places = (spec.submodule_search_locations if spec is not None else None) or ["an unknown place"]
    return (
        f"error: the package torchscale of {next(iter(places))} is another project's, and hides "
        "this program's own\n"
        "hint: pip uninstall torchscale, or take it off PYTHONPATH; each of the two needs an "
        "environment of its own\n"
    )
