"""Change one thing in a module and see whether a test of its room notices (mutation testing).

::

    python scripts/mutants.py                                     # make mutants
    python scripts/mutants.py --sample 40 --module torchscale/features/watch/hang/explain.py
    python scripts/mutants.py --sample 0 --module torchscale/features/decide/tune  # every change

A change: another comparison, ``+`` for ``-``, ``or`` for ``and``, a condition left out, a number
one higher or lower, ``min`` for ``max``, ``return None`` … A change that no test notices is printed
with its line: a requirement without a test, or a change without an effect. The sample of a module
is the same as long as its code is.

Every change runs in a fork of a process that has imported all but what depends on the module. That
takes about a second of CPU time; tools that start Python anew for each change take several, and
those that change functions alone leave out the thresholds that modules define.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib
import importlib.util
import multiprocessing
import os
import random
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import CodeType

import pytest

ROOT = Path(__file__).resolve().parent.parent
FORK = multiprocessing.get_context("fork")
MODULES = (
    "torchscale/analysis/diagnosis",
    "torchscale/features/compare/analysis",
    "torchscale/features/decide/tune/buckets.py",
    "torchscale/features/decide/tune/gains.py",
    "torchscale/features/decide/tune/search.py",
    "torchscale/features/decide/tune/surface.py",
    "torchscale/features/decide/tune/trials.py",
    "torchscale/features/watch/hang",
    "torchscale/features/watch/hang/recorder_dump",
    "torchscale/features/watch/hang/watchdog",
    "torchscale/store",
    "torchscale/util/redaction.py",
    "torchscale/util/secret_arguments.py",
    "torchscale/util/secret_forms.py",
)
LEFT_OUT = (
    "tests/analysis/diagnosis/test_false_alarms.py",
    "tests/features/watch/hang/test_explain.py::test_any_evidence_gives_a_verdict",
    "tests/store/test_damaged_files.py::test_other_bytes_in_a_record",
    "tests/store/test_damaged_files.py::test_a_record_cut_at_every_byte",
    "tests/store/test_damaged_files.py::test_a_plan_cut_at_every_byte",
    "tests/features/decide/tune/test_search.py::test_far_fewer_launches_than_an_exhaustive_search",
    "tests/features/decide/tune/test_search.py::test_the_choice_is_about_as_good_as_the_best_combination",
    "tests/features/decide/tune/test_run.py",
)
"""Tests of seconds, which simulate much or launch: too long for a run per change."""
CPU_SECONDS = 60
"""Of the tests of one change. Rooms take up to ten; what takes much more does not end."""
WALL_SECONDS = 300
"""The same for what waits."""
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}
_NOT_RUN = frozenset(("annotation", "returns", "decorator_list"))
"""Fields of nodes with what types and decorators say."""
_SHOWN = 60
"""Characters of code in a line of the table."""


@dataclass(frozen=True)
class Mutant:
    """One change of a module.

    Attributes:
        index: In :func:`changes`.
        line: Where it is.
        change: What it is, for a reader.
    """

    index: int
    line: int
    change: str


class _Replaced(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self._new if node is self._old else self.generic_visit(node)


def changes(tree: ast.Module) -> list[tuple[ast.AST, ast.AST]]:
    """Every change: the node that is replaced, and by what."""
    return [(node, new) for node in _nodes(tree) for new in _changed(node)]


def sample(source: str, count: int, seed: str) -> list[Mutant]:
    """``count`` changes of a module, the same for the same seed and some of those of a larger
    ``count``; all for 0."""
    found = [
        Mutant(index, _line(old), _difference(old, new))
        for index, (old, new) in enumerate(changes(ast.parse(source)))
    ]
    random.Random(seed).shuffle(found)  # noqa: S311 - no secret
    return sorted(found[: count or None], key=lambda mutant: mutant.index)


def mutated(source: str, index: int) -> ast.Module:
    """The module with one of its changes."""
    tree = ast.parse(source)
    old, new = changes(tree)[index]
    _Replaced(old, ast.copy_location(new, old)).visit(tree)
    return ast.fix_missing_locations(tree)


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """What runs: no types, decorators and assertions, which are there for the type checker."""
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if field in _NOT_RUN or not isinstance(child, ast.AST) or _is_for_types(child):
                continue
            yield child
            yield from _nodes(child)


def _is_for_types(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    # `zip(…, strict=True)` is an assertion too.
    return isinstance(node, ast.Assert) or (isinstance(node, ast.keyword) and node.arg == "strict")


def _changed(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in place of a node."""
    match node:
        case ast.Compare(left, ops, comparators):
            for at, operator in enumerate(ops):
                other = [*ops[:at], _COMPARISONS[type(operator)](), *ops[at + 1 :]]
                yield ast.Compare(left, other, comparators)
        case ast.BinOp(left, operator, right) if type(operator) in _ARITHMETIC:
            yield ast.BinOp(left, _ARITHMETIC[type(operator)](), right)
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
            for at in range(len(values)):
                rest = [*values[:at], *values[at + 1 :]]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(operator, rest)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))
        case ast.Call(ast.Name("min" | "max" as name), arguments, keywords):
            yield ast.Call(
                ast.Name("max" if name == "min" else "min", ast.Load()), arguments, keywords
            )
        case ast.Return(value) if value is not None and not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))
        case ast.If() | ast.IfExp():
            never = copy.copy(node)
            never.test = ast.Constant(False)
            yield never
        case ast.comprehension(target, iterated, [_, *_]):
            yield ast.comprehension(target, iterated, [], node.is_async)


def _line(node: ast.AST) -> int:
    return node.target.lineno if isinstance(node, ast.comprehension) else getattr(node, "lineno", 0)


def _difference(old: ast.AST, new: ast.AST) -> str:
    """A change on one line, from a little before the first character that differs."""
    before, after = (" ".join(ast.unparse(node).split()) for node in (old, new))
    pairs = enumerate(zip(before, after, strict=False))
    start = next((at for at, (one, other) in pairs if one != other), 0) - _SHOWN // 4
    if len(before) <= _SHOWN or start < 0:
        return f"{before[:_SHOWN]} → {after[:_SHOWN]}"
    return f"…{before[start : start + _SHOWN]} → …{after[start : start + _SHOWN]}"


def room_tests(module: Path) -> list[str]:
    """Arguments of pytest for the tests that are to notice a change of ``module``: those of its
    own file first, then those of its folder, or of the nearest one that has tests."""
    inside = module.relative_to(ROOT / "torchscale")
    own = Path("tests") / inside.with_name(f"test_{inside.name}")
    folder = next(path for path in own.parents if (ROOT / path).is_dir())
    room = [] if inside.parts[0] == "util" else [str(folder)]
    return [*([str(own)] if (ROOT / own).exists() else []), *room]


def run_tests(tests: Sequence[str]) -> int:
    """Run tests in this process, without output and up to the first that fails: pytest's exit
    status."""
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    options = ["-x", "-q", "-n0", "-pno:cacheprovider", "-mnot slow", f"--timeout={CPU_SECONDS}"]
    # Of our plugin of pytest: the package is imported by then.
    options.append("-Wignore::pytest.PytestAssertRewriteWarning")
    return int(pytest.main([*options, *(f"--deselect={test}" for test in LEFT_OUT), *tests]))


def _run_with(path: Path, code: CodeType, tests: Sequence[str], answer: Connection | None) -> None:
    """Run ``code`` in place of the module at ``path``, then its tests, and end with their status.
    Answers with the names of all modules that they need."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # noqa: S101 - a path of Python
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    exec(code, module.__dict__)  # noqa: S102 - the module itself
    package, _, leaf = name.rpartition(".")
    setattr(sys.modules[package], leaf, module)
    status = run_tests(tests)
    if answer is not None:
        answer.send(sorted(name for name in sys.modules if not _is_ours(name)))
    os._exit(status)


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] in ("torchscale", "tests", "__main__", "__mp_main__")


def _module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def _warm_up(path: Path) -> None:
    """Import what the module at ``path`` needs, and nothing that needs the module."""
    for name in [name for name in sys.modules if _is_ours(name) and not name.startswith("__")]:
        del sys.modules[name]
    name = _module_name(path)
    importlib.import_module(name)
    package, _, leaf = name.rpartition(".")
    del sys.modules[name]
    delattr(sys.modules[package], leaf)


def survivors(path: Path, chosen: Sequence[Mutant], jobs: int) -> list[Mutant]:
    """The changes of the module at ``path`` that no test notices.

    Raises:
        SystemExit: tests fail without a change.
    """
    tests, source = room_tests(path), path.read_text()
    _warm_up(path)
    mine, theirs = FORK.Pipe()
    unchanged = compile(source, str(path), "exec")
    process: BaseProcess = FORK.Process(target=_run_with, args=(path, unchanged, tests, theirs))
    process.start()
    theirs.close()
    imported: list[str] = []
    with contextlib.suppress(EOFError):  # ended before it answered
        imported = mine.recv() if mine.poll(WALL_SECONDS) else []
    process.join(1)
    if process.exitcode != 0:
        raise SystemExit(f"{' '.join(tests)}: status {process.exitcode} without a change")
    for name in imported:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    left, running, found = list(chosen), dict[int, tuple[Mutant, BaseProcess, float]](), []
    while left or running:
        while left and len(running) < jobs:
            mutant = left.pop(0)
            code = compile(mutated(source, mutant.index), str(path), "exec")
            process = FORK.Process(target=_run_with, args=(path, code, tests, None))
            process.start()
            running[process.sentinel] = mutant, process, time.monotonic()
        wait(list(running), timeout=1)
        for sentinel, (mutant, process, started) in list(running.items()):
            if time.monotonic() - started > WALL_SECONDS:
                process.kill()
            if not process.is_alive():
                del running[sentinel]
                found += [mutant] if process.exitcode == 0 else []
    return found


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Print the changes that survive, and the share that does not."""
    parser = argparse.ArgumentParser(description="Change modules and see whether tests notice.")
    parser.add_argument("--sample", type=int, default=15, help="changes of each module; 0: all")
    parser.add_argument("--module", action="append", help="a module or a folder of them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time")
    options = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    # Whatever PYTHONDONTWRITEBYTECODE says: else every run compiles all tests anew, for seconds.
    sys.dont_write_bytecode = False
    total = noticed = 0
    for place in options.module or MODULES:
        whole = ROOT / place
        for path in sorted(whole.glob("*.py")) if whole.is_dir() else [whole]:
            name = path.relative_to(ROOT)
            chosen = sample(path.read_text(), options.sample, str(name))
            found = survivors(path, chosen, options.jobs) if chosen else []
            total, noticed = total + len(chosen), noticed + len(chosen) - len(found)
            _say(f"{name}: {len(chosen) - len(found)} of {len(chosen)} noticed")
            for mutant in found:
                _say(f"    {name}:{mutant.line}  {mutant.change}")
    _say(f"{noticed} of {total} changes noticed ({noticed / max(total, 1):.0%})")


if __name__ == "__main__":
    main()
