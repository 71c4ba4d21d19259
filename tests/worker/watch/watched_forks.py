"""Programs of one rank with the collector in it, as forks of a process that has imported torch."""

from __future__ import annotations

import os
from pathlib import Path

from tests.worker.forks import Forks
from torchscale.features.watch.job.program_processes import watching_environment
from torchscale.worker import watch

_SITE = Path(watch.__file__).parent / "site" / "sitecustomize.py"
_SCRIPT = """
import atexit, importlib.util, os

spec = importlib.util.spec_from_file_location("watch_site", {site!r})
site = importlib.util.module_from_spec(spec)
spec.loader.exec_module(site)
os.environ.update({variables!r})
site._begin(os.environ["TORCHSCALE_WATCH"])  # as it does; torch is imported
{body}
atexit._run_exitfuncs()
"""


def run_watched(forks: Forks, directory: Path, body: str) -> Path:
    """Run a program in ``directory``. Returns where its rank left what was collected.

    Raises:
        AssertionError: the program fails.
    """
    variables = watching_environment(directory / "job", os.environ)
    added = {name: value for name, value in variables.items() if os.environ.get(name) != value}
    (directory / "job").mkdir()
    script = directory / "script.py"
    script.write_text(_SCRIPT.format(site=str(_SITE), variables=added, body=body))
    forks.run(script, ranks=1)
    return directory / "job" / "ranks" / "0.0"
