"""Changes modules of others once a program has imported them, whichever way it does so.

A program may ask for a module long before it imports it (``importlib.util.find_spec``), have finders
of its own before this one or around it, or import it past all finders. So the finder stays until the
module is there, and looks for it at every import.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from _thread import get_ident
from collections.abc import Callable, Sequence
from time import monotonic_ns
from types import ModuleType
from typing import Any

from .guard import guarded, unseen

Action = Callable[[Any], None]
"""Is called with a module."""
LOADED = monotonic_ns()
"""When Python reached the collector, by ``monotonic_ns``."""


class _AfterImports(importlib.abc.MetaPathFinder):
    """Finds modules as all other finders do, and calls an action once one is imported.

    Attributes:
        times: Name → when its import began and ended, by ``monotonic_ns``; of modules that were
            imported past this finder nothing.
    """

    def __init__(self) -> None:
        self.times: dict[str, tuple[int, int]] = {}
        self._pending: dict[str, list[Action]] = {}
        self._searches: set[tuple[int, str]] = set()

    def add(self, name: str, action: Action) -> None:
        """Call ``action`` with the module of this name, now or as soon as it is imported."""
        self._pending.setdefault(name, []).append(action)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        self.settle()

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """What the other finders find, with a loader that goes on to the action; nothing for other
        modules."""
        del path, target
        guarded(self.settle)
        if fullname not in self._pending:
            return None
        return guarded(self._search, fullname)

    def settle(self) -> None:
        """Call the actions of modules that have been imported past this finder."""
        for name in list(self._pending):
            module = sys.modules.get(name)
            if module is not None and not _is_begun(module):
                self._act(name, module)

    def _search(self, name: str) -> importlib.machinery.ModuleSpec | None:
        search = get_ident(), name
        if search in self._searches:  # the other finders lead back here
            return None
        self._searches.add(search)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searches.discard(search)
        if spec is not None:
            self._lead_on(name, spec.loader)
        return spec

    def _lead_on(self, name: str, loader: Any) -> None:  # noqa: ANN401 - any loader
        """Have ``loader`` go on to the action. A loader of all modules (a class), or one that
        cannot be changed, is left as it is: :meth:`settle` finds the module."""
        execute = getattr(loader, "exec_module", None)
        if execute is None or isinstance(loader, type) or hasattr(execute, "leads_on"):
            return

        def executing(module: Any) -> None:  # noqa: ANN401 - a module
            began = monotonic_ns()
            try:
                execute(module)
            except BaseException as error:
                unseen(error)
                raise
            if module.__name__ == name:  # the loader of an archive has all its modules
                vars(loader).pop("exec_module", None)
                self.times[name] = began, monotonic_ns()
                self._act(name, module)

        executing.leads_on = True  # type: ignore[attr-defined]
        try:
            loader.exec_module = executing
        except AttributeError:
            return

    def _act(self, name: str, module: Any) -> None:  # noqa: ANN401 - a module
        for action in self._pending.pop(name, ()):
            guarded(action, module)
        if not self._pending and self in sys.meta_path:
            sys.meta_path.remove(self)


def _is_begun(module: object) -> bool:
    """Whether an import of it has not ended."""
    return getattr(getattr(module, "__spec__", None), "_initializing", False) is True


_finder = _AfterImports()


def after_import(name: str, action: Action) -> None:
    """Call ``action`` with a module once it is imported: at once where it is."""
    _finder.add(name, action)


def import_times(name: str) -> tuple[int, int] | None:
    """When the import of a module with an action began and ended, by ``monotonic_ns``; ``None``
    where that was not seen."""
    return _finder.times.get(name)


def settle() -> None:
    """Look for modules that were imported past all finders."""
    _finder.settle()
