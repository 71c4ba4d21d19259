"""Python imports this module at its start where a watched job's ``PYTHONPATH`` leads: it has the
collector loaded as soon as torch is, and then runs the ``sitecustomize`` that it hides."""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib takes 5 ms at the start of every Python
_PACKAGE = "torchscale_collector"
_AFTER_TORCH = "safetensors.torch"


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Finds torch as all other finders do, and loads the collector once torch is imported."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of torch with a loader that goes on to the collector; nothing of others, but that
        a module which imports torch itself, and whose functions the collector notes, comes after
        it."""
        del path, target
        if fullname == _AFTER_TORCH and "torch" not in sys.modules:
            _import_torch()
            return importlib.util.find_spec(fullname)
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """Loads torch with its own loader, and then the collector."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """As torch's own loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Import torch, and then the collector; whatever fails in the collector is kept from the
        job."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            _load_collector()
        except Exception as error:  # noqa: BLE001 - a job runs on whatever fails here
            _tell(error)


def _import_torch() -> None:
    try:  # noqa: SIM105 - contextlib takes time at the start of every Python
        importlib.import_module("torch")
    except ImportError:
        pass  # the module that needs it says so


def _load_collector() -> None:
    folder = os.path.dirname(_HERE)  # noqa: PTH120
    spec = importlib.util.spec_from_file_location(
        _PACKAGE, f"{folder}/__init__.py", submodule_search_locations=[folder]
    )
    if spec is None or spec.loader is None:
        return
    package = importlib.util.module_from_spec(spec)
    sys.modules[_PACKAGE] = package
    spec.loader.exec_module(package)
    importlib.import_module(f"{_PACKAGE}.collector").install(os.environ["TORCHSCALE_WATCH"])


def _tell(error: Exception) -> None:
    """Leave the reason in the job's folder."""
    try:
        with open(f"{os.environ['TORCHSCALE_WATCH']}/problem-{os.getpid()}", "w") as file:  # noqa: PTH123
            file.write(f"{type(error).__name__}: {error}\n")
    except OSError:
        pass


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
    """Import the ``sitecustomize`` that Python would have found without this one."""
    kept = sys.modules.pop("sitecustomize", None)
    path = list(sys.path)
    sys.path[:] = [entry for entry in path if os.path.abspath(entry) != _HERE]  # noqa: PTH100
    try:
        hidden = importlib.util.find_spec("sitecustomize")
        if hidden is not None and hidden.loader is not None:
            module = importlib.util.module_from_spec(hidden)
            sys.modules["sitecustomize"] = module
            hidden.loader.exec_module(module)
        elif kept is not None:
            sys.modules["sitecustomize"] = kept
    finally:
        sys.path[:] = path


if os.environ.get("TORCHSCALE_WATCH"):
    if os.environ.get("TORCHSCALE_WATCH_CPUS"):
        _bind_to_cores()
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, _AfterTorch())
    _run_hidden()
