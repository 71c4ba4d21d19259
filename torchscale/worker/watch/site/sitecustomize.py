"""Python imports this module at its start where a watched job's ``PYTHONPATH`` leads: it has the
collector loaded as soon as torch is, notes how this process ends and what it waits for, and then
runs the ``sitecustomize`` that it hides."""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib takes 5 ms at the start of every Python
_PACKAGE = "torchscale_collector"


def _begin(folder: str) -> None:
    """Have the collector loaded once torch is imported; it collects into ``folder``."""
    home = os.path.dirname(_HERE)  # noqa: PTH120
    spec = importlib.util.spec_from_file_location(
        _PACKAGE, f"{home}/__init__.py", submodule_search_locations=[home]
    )
    if spec is None or spec.loader is None:
        return
    package = importlib.util.module_from_spec(spec)
    sys.modules[_PACKAGE] = package
    spec.loader.exec_module(package)
    importlib.import_module(f"{_PACKAGE}.guard").tell_in(folder)
    importlib.import_module(f"{_PACKAGE}.ends").watch_end(folder)
    importlib.import_module(f"{_PACKAGE}.waits").note_waits(folder)
    importlib.import_module(f"{_PACKAGE}.launcher").watch_launcher()
    imports = importlib.import_module(f"{_PACKAGE}.imports")
    imports.after_import("torch", lambda _: _load_collector(folder))


def _load_collector(folder: str) -> None:
    importlib.import_module(f"{_PACKAGE}.collector").install(folder)


def _bind_to_cores() -> None:
    """Bind a rank to the cores that the command gave it: ``0,1;2,3`` are those of local ranks 0 and
    1. What is no rank, such as the launcher, has no ``LOCAL_RANK``."""
    sets = os.environ.get("TORCHSCALE_WATCH_CPUS", "").split(";")
    try:
        cores = sets[int(os.environ["LOCAL_RANK"])]
        os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
    except (KeyError, IndexError, ValueError, OSError, AttributeError):
        pass


def _run_hidden() -> None:
    """Import the ``sitecustomize`` that Python would have found without this one, and leave the
    path as it would have been."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]  # noqa: PTH100
    kept = sys.modules.pop("sitecustomize", None)
    hidden = None
    try:
        hidden = importlib.util.find_spec("sitecustomize")
    finally:
        if hidden is None and kept is not None:
            sys.modules["sitecustomize"] = kept
    if hidden is not None and hidden.loader is not None:
        module = importlib.util.module_from_spec(hidden)
        sys.modules["sitecustomize"] = module
        hidden.loader.exec_module(module)


if os.environ.get("TORCHSCALE_WATCH"):
    try:
        if os.environ.get("TORCHSCALE_WATCH_CPUS"):
            _bind_to_cores()
        _begin(os.environ["TORCHSCALE_WATCH"])
    except Exception:  # noqa: BLE001, S110 - a program starts whatever fails here, and nowhere is left to say so
        pass
    _run_hidden()
