"""Changes modules of others once a program has imported them."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls ``action`` with a module after its import."""

    def __init__(self, name: str, action: Callable[[Any], None]) -> None:
        self._name, self._action = name, action

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's own spec, whose loader goes on to the action."""
        del path, target
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        loader, action = spec.loader, self._action
        execute = loader.exec_module

        def executing(module: Any) -> None:  # noqa: ANN401 - a module
            execute(module)
            action(module)

        loader.exec_module = executing  # type: ignore[method-assign]
        return spec


def after_import(name: str, action: Callable[[Any], None]) -> None:
    """Call ``action`` with a module once it is imported: at once where it is."""
    module = sys.modules.get(name)
    if module is not None:
        action(module)
    else:
        sys.meta_path.insert(0, _AfterImport(name, action))
