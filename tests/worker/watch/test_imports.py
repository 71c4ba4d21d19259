"""A module is changed once it is imported, whichever way a program goes about it."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from torchscale.worker.watch import imports

_numbers = count()


class Wrapped:
    """A finder around another one, as tools have them that look at each import."""

    def __init__(self, finder: Any) -> None:
        self._finder = finder

    def find_spec(self, *arguments: Any) -> Any:
        return self._finder.find_spec(*arguments)


class Greedy:
    """A finder that finds everything before all others."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        return importlib.machinery.PathFinder.find_spec(name, path, target)


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module that can be imported and is not."""
    name = f"imported_{next(_numbers)}"
    (tmp_path / f"{name}.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(imports, "_finder", imports._AfterImports())
    yield name
    sys.modules.pop(name, None)


def _plainly(name: str) -> None:
    importlib.import_module(name)


def _asked_before(name: str) -> None:
    for _ in range(3):
        assert importlib.util.find_spec(name) is not None
    importlib.import_module(name)


def _by_pkgutil(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert getattr(pkgutil, "find_loader", importlib.util.find_spec)(name) is not None
    importlib.import_module(name)


def _by_each_finder(name: str) -> None:
    assert any(finder.find_spec(name, None) for finder in sys.meta_path)
    importlib.import_module(name)


def _through_wrapped_finders(name: str) -> None:
    sys.meta_path[:] = [Wrapped(finder) for finder in sys.meta_path]
    importlib.import_module(name)


def _past_a_finder_that_comes_first(name: str) -> None:
    sys.meta_path.insert(0, Greedy())
    importlib.import_module(name)
    sys.meta_path.pop(0)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_module_anywhere")


def _from_its_spec(name: str) -> None:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def _lazily(name: str) -> None:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    assert module.value == 1


def _past_all_finders(name: str) -> None:
    sys.modules[name] = types.ModuleType(name)
    imports.settle()


def _after_it_failed(name: str) -> None:
    path = Path(importlib.util.find_spec(name).origin)  # type: ignore[union-attr, arg-type]
    path.write_text("raise ImportError('not yet')\n")
    with pytest.raises(ImportError, match="not yet"):
        importlib.import_module(name)
    path.write_text("value = 1  # longer than before\n")
    importlib.invalidate_caches()
    importlib.import_module(name)


@pytest.mark.parametrize(
    "way",
    [
        _plainly,
        _asked_before,
        _by_pkgutil,
        _by_each_finder,
        _through_wrapped_finders,
        _past_a_finder_that_comes_first,
        _from_its_spec,
        _lazily,
        _past_all_finders,
        _after_it_failed,
    ],
)
def test_the_action_comes_once_after_the_import(way: Callable[[str], None], name: str) -> None:
    seen: list[Any] = []
    imports.after_import(name, seen.append)
    assert seen == []

    way(name)
    assert [module.__name__ for module in seen] == [name]
    assert imports._finder not in sys.meta_path
    importlib.reload(sys.modules[name]) if hasattr(sys.modules[name], "value") else None
    assert len(seen) == 1


def test_a_module_that_is_there_is_acted_on_at_once(name: str) -> None:
    importlib.import_module(name)
    seen: list[Any] = []
    imports.after_import(name, seen.append)
    assert len(seen) == 1


def test_a_module_that_is_being_imported_is_acted_on_when_it_is_whole(
    name: str, tmp_path: Path
) -> None:
    seen: list[int] = []
    register = types.ModuleType("register")
    register.now = lambda: imports.after_import(  # type: ignore[attr-defined]
        name, lambda module: seen.append(module.value)
    )
    sys.modules["register"] = register
    (tmp_path / f"{name}.py").write_text("import register\nregister.now()\nvalue = 7\n")
    try:
        importlib.import_module(name)
        imports.settle()
    finally:
        del sys.modules["register"]
    assert seen == [7]


def test_what_is_found_is_what_the_others_find(name: str) -> None:
    alone = importlib.util.find_spec(name)
    imports.after_import(name, lambda _: None)
    found = importlib.util.find_spec(name)

    assert alone is not None
    assert found is not None
    assert type(found.loader) is type(alone.loader)
    assert (found.name, found.origin, found.cached) == (alone.name, alone.origin, alone.cached)


def test_a_module_that_does_not_exist_stays_unknown() -> None:
    imports.after_import("no_such_module_anywhere", lambda _: None)
    assert importlib.util.find_spec("no_such_module_anywhere") is None
    imports._finder._pending.pop("no_such_module_anywhere")


def test_an_action_that_fails_is_kept_from_the_import(name: str) -> None:
    imports.after_import(name, _fail)
    importlib.import_module(name)


def _fail(module: Any) -> None:
    raise ValueError(module)
