"""Figures of the source code: size, density of lines, and how far a feature or a published figure
reaches.

::

    python scripts/code_figures.py                 # of this checkout
    python scripts/code_figures.py --source DIR    # of another one, such as a worktree of the version before
    python scripts/code_figures.py --check         # fails where a bound is passed

Counted are the modules under ``torchscale/``. A code line holds a token other than a comment or a
docstring.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

COLUMNS = 100
COMPLEXITY = 25
"""A function with more independent paths has more than a reader keeps in mind, or tests cover."""
FOLDER = 20
"""Modules: more do not fit a screen of a file browser."""
SIGNATURE = 60
"""Lines: a longer signature does not fit a screen together with the first lines of its body."""
MODULE = 300
"""Lines, code and all: six screens. Of longer ones a reader looks for the place by searching."""
TALL = {
    "analysis/diagnosis/signals.py": "one table of what the rules judge, with what each is",
    "analysis/exchanges/steps.py": "one table of steps and the one way from events to it",
    "analysis/training/pooling.py": "one rule for each signal of several launches",
    "features/bisect/search.py": "what to launch next and when it ends read the same launches",
    "features/decide/tune/search.py": "comparing, probing and verifying share winner and budget",
    "features/trace/analysis/signals.py": "from a recording to that table",
    "schema/launch/steps.py": "all forms of the times of steps, which share their bounds",
    "worker/trainer.py": "set-up, passes and batches share model, optimizer and meters",
    "worker/watch/collector.py": "one state machine of start, fork, flush and end",
}
"""Longer modules, and why each is one."""
TWICE = {"ChangeExport": "a key of two published schemas"}
"""Class names for two things, and why."""
FEATURES = {
    "watch": r"watch",
    "hang": r"(?<!c)hang|autopsy|py_spy|rank_activity|running_job|source_loops|nccl_ras|dumps",
    "acceptance": r"acceptance",
    "comparison": r"compar",
    "predict": r"forecast|(cli|run|read)/predict",
    "history": r"history|trends",
    "tune": r"tune|tuning|setting_launcher",
    "bisect": r"bisect|bisection",
    "nodes": r"(?<!rules_)nodes|fleet|pairwise",
    "submit": r"submit|slurm|kubernetes|kubectl|manifests|pod_job|engines",
    "memory": r"(?<!shared_)(?<!tune/)memory|max_batch|frontier|batch_search",
    "collectives": r"(?<!_)(?<!hang/)(?<!kineto/)collectives|bus_factor|link_verdict",
    "checkpoint": r"checkpoint(?!_place)",
    "imports": r"features/imports/|cli/init",
    "what-if": r"what_if|replay",
}
"""Feature → what the path of a module of it holds."""
FIGURES = {
    "tokens_per_second": r"tun(e|ing)",
    "joules_per_step": r"^$",
    "peak_memory_bytes": r"watch|job|profile|/trace/",
}
"""Figure of a cell → modules where the same name is another figure: of a setting that was searched
for, of a rank that is watched, of a rank in a recording."""
_BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.Assert,
    ast.comprehension,
)
_NOT_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


@dataclass(frozen=True)
class Module:
    """A source file.

    Attributes:
        path: Relative to the package.
        text: Its content.
        tree: Parsed.
        code_lines: Numbers of lines that hold code.
    """

    path: Path
    text: str
    tree: ast.Module
    code_lines: frozenset[int]

    @property
    def room(self) -> str:
        """The directory under the package, a feature's own, or the module's name at the top."""
        parts = self.path.parts
        if parts[0] == "features" and len(parts) > 2:
            return "/".join(parts[:2])
        return parts[0].removesuffix(".py")


def read_modules(package: Path) -> list[Module]:
    """Every module under ``package``."""
    modules = []
    for file in sorted(package.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        tree = ast.parse(text)
        modules.append(
            Module(file.relative_to(package), text, tree, frozenset(_code_lines(text, tree)))
        )
    return modules


def _code_lines(text: str, tree: ast.Module) -> set[int]:
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def complexity(function: ast.AST) -> int:
    """McCabe's: decisions + 1; operands of ``and`` and ``or``, conditions of comprehensions and
    cases count."""
    count = 1
    for node in ast.walk(function):
        if isinstance(node, _BRANCHES):
            count += 1
        if isinstance(node, ast.comprehension):
            count += len(node.ifs)
        if isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        if isinstance(node, ast.match_case):
            count += 1
    return count


def functions(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions and methods."""
    return (
        node
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def signature_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from ``def`` to what the function begins with, which is its docstring."""
    return function.body[0].lineno - function.lineno


def shared_class_names(modules: Sequence[Module]) -> list[str]:
    """Names of public classes that several modules define: a reader has to ask which is meant."""
    names = Counter(
        node.name
        for module in modules
        for node in module.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return sorted(name for name, count in names.items() if count > 1)


def _nested(module: Module) -> int:
    """Conditional expressions inside another one."""
    return sum(
        any(isinstance(inner, ast.IfExp) for inner in ast.walk(node) if inner is not node)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.IfExp)
    )


def figures(root: Path) -> list[tuple[str, str]]:
    """Name and value of every figure, of the checkout at ``root``."""
    modules = read_modules(root / "torchscale")
    code = sum(len(module.code_lines) for module in modules)
    statements = sum(
        isinstance(node, ast.stmt) for module in modules for node in ast.walk(module.tree)
    )
    conditional = sum(
        isinstance(node, ast.IfExp) for module in modules for node in ast.walk(module.tree)
    )
    long = sum(
        len(line) > COLUMNS
        for module in modules
        for number, line in enumerate(module.text.splitlines(), start=1)
        if number in module.code_lines
    )
    costly = [(complexity(one), one.name) for module in modules for one in functions(module)]
    above = sorted((count, name) for count, name in costly if count > COMPLEXITY)
    wide = [
        f"{one.name} {count}"
        for module in modules
        for one in functions(module)
        if (count := signature_lines(one)) > SIGNATURE
    ]
    shared = shared_class_names(modules)
    tall = [module for module in modules if len(module.text.splitlines()) > MODULE]
    folders = Counter(
        str(module.path.parent) for module in modules if module.path.name != "__init__.py"
    )
    full = {name: count for name, count in folders.items() if count > FOLDER}
    contracts = (root / "pyproject.toml").read_text(encoding="utf-8")
    rows = re.search(r"^layers = \[(.*?)\]", contracts, re.DOTALL | re.MULTILINE)
    rooms = {
        feature: sorted({module.room for module in modules if re.search(pattern, str(module.path))})
        for feature, pattern in FEATURES.items()
    }
    return [
        ("modules", str(len(modules))),
        ("lines", f"{sum(len(module.text.splitlines()) for module in modules):,}"),
        ("code lines", f"{code:,}"),
        ("code lines per statement", f"{code / statements:.2f}"),
        ("conditional expressions per 1,000 code lines", f"{1000 * conditional / code:.1f}"),
        ("… inside another one", f"{1000 * sum(map(_nested, modules)) / code:.2f}"),
        (f"code lines over {COLUMNS} columns", f"{100 * long / code:.2f} %"),
        (
            f"functions with complexity over {COMPLEXITY}",
            f"{len(above)} {', '.join(name for _, name in above)}".strip(),
        ),
        (f"signatures over {SIGNATURE} lines", f"{len(wide)} {', '.join(wide)}".strip()),
        (f"modules over {MODULE} lines", str(len(tall))),
        ("class names for two things", f"{len(shared)} {', '.join(shared)}".strip()),
        *(
            (f"rooms of {feature}", f"{len(names)} ({', '.join(names)})")
            for feature, names in rooms.items()
        ),
        *(
            (f"modules that name a cell's {key}", str(len(_naming(modules, key, others))))
            for key, others in FIGURES.items()
        ),
        (
            f"folders with over {FOLDER} modules",
            ", ".join(f"{name} {count}" for name, count in sorted(full.items())) or "none",
        ),
        ("import rows", str(len(re.findall(r'"[^"]+"', rows[1])) if rows else 0)),
        ("import contracts", str(contracts.count("[[tool.importlinter.contracts]]"))),
    ]


def _naming(modules: Sequence[Module], figure: str, others: str) -> list[Module]:
    """The modules that name a figure of a cell, without those of its namesakes."""
    return [
        module
        for module in modules
        if figure in module.text and not re.search(others, str(module.path))
    ]


def problems(root: Path) -> Iterator[str]:
    """What passes a bound without a reason, and reasons of what no longer does."""
    modules = read_modules(root / "torchscale")
    tall = {str(module.path) for module in modules if len(module.text.splitlines()) > MODULE}
    shared = set(shared_class_names(modules))
    for what, found, reasons in (
        (f"has over {MODULE} lines", tall, TALL),
        ("is the name of two classes", shared, TWICE),
    ):
        yield from (f"{name} {what}" for name in sorted(found - reasons.keys()))
        yield from (f"{name} is listed without need" for name in sorted(reasons.keys() - found))
    for module in modules:
        for one in functions(module):
            if signature_lines(one) > SIGNATURE:
                yield f"the signature of {one.name} has over {SIGNATURE} lines"


def main() -> int:
    """Print the table, or what ``--check`` finds; 1 where that is anything."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", type=Path, default=Path(__file__).parents[1], help="a checkout")
    parser.add_argument("--check", action="store_true", help="fail where a bound is passed")
    options = parser.parse_args()
    if options.check:
        found = list(problems(options.source))
        for problem in found:
            print(f"{problem} (scripts/code_figures.py)", file=sys.stderr)  # noqa: T201
        return int(bool(found))
    for name, value in figures(options.source):
        print(f"{name:<48} {value}")  # noqa: T201 - the table
    return 0


if __name__ == "__main__":
    sys.exit(main())
