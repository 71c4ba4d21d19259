"""How much of the package each command reaches by its imports: what one has to know to change it.

::

    python scripts/reach.py                 # a row for each command, feature and the core
    python scripts/reach.py --check         # fails where one is above its ceiling
    python scripts/reach.py --source DIR    # of another checkout
    python scripts/reach.py --edges benchmark   # the imports without which it would reach least

Code lines are neither blank, comment, docstring nor import. Imports inside functions count: who
reads the command meets them. What goes through the door (``torchscale/door.py``) does not: there
a reader needs the form of what is asked for, and no more. A command's root is its module or folder
in ``cli/`` or in a feature's ``cli/``; modules that list all commands are left out.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

CEILINGS: Mapping[str, int] = {
    "profile": 25_350,
    "compare": 22_600,
    "bisect": 26_350,
    "validate": 26_100,
    "benchmark": 23_400,
    "measure": 23_150,
    "watch": 23_350,
    "export": 19_800,
    "report": 19_150,
    "history": 18_600,
    "runs": 14_850,
    "predict": 16_400,
    "tune": 16_800,
    "submit": 6_900,
    "autopsy": 6_600,
    "init": 5_900,
    "docs": 4_900,
    "feature trace": 10_400,
    "feature watch": 14_050,
    "feature validate": 7_800,
    "feature compare": 7_550,
    "feature decide": 4_000,
    "feature cluster": 4_950,
    "feature bisect": 3_900,
    "feature imports": 1_900,
    "feature machine": 3_800,
    "feature export": 1_300,
    "feature pytest": 500,
    "core": 36_850,
    "package": 97_000,
}
"""Command, feature, ``core`` or ``package`` → the most code lines: 1 to 5 % above what they are, so
that an import that brings in another part of the package is noticed. Who needs more says why in
the commit that raises it."""
PACKAGE = "torchscale"
LISTS_ALL = frozenset({"torchscale", "torchscale.cli.command_table", "torchscale.cli.main"})
FOUND_BY_NAME = (".kinds", ".worker.models", ".export.formats")
"""Ends of names of packages whose modules are imported by their names: who imports the package
reaches them all."""
_HELPERS = frozenset(
    {"command", "command_table", "help", "main", "mistakes", "options", "other_tools", "output"}
)
_HELPERS |= {"parameters", "parsing", "rendering", "shared_options", "start", "workload"}
_HELPERS |= {"addresses", "copying", "sweep_output"}
"""Modules of ``cli/`` that commands share."""
_SUBCOMMANDS: Mapping[str, str] = {"baselines": "runs"}
IN_RANKS: Mapping[str, str] = {
    "checkpoint": "machine",
    "hang": "watch",
    "machine": "machine",
    "memory": "machine",
    "probe": "validate",
    "profile": "trace",
    "watch": "watch",
}
"""Folder or module in ``worker/`` → the feature that it is of: torch is imported there alone."""


@dataclass(frozen=True)
class Sources:
    """A package: the code lines of each module, and the modules that each imports."""

    sizes: Mapping[str, int]
    imports: Mapping[str, set[str]]

    def reached(self, roots: Iterable[str]) -> set[str]:
        """The modules that ``roots`` import, and so on."""
        roots = set(roots)
        seen: set[str] = set()
        waiting = list(roots)
        while waiting:
            name = waiting.pop()
            if name in seen or (name in LISTS_ALL and name not in roots):
                continue
            seen.add(name)
            waiting.extend(self.imports.get(name, set()) - seen)
        return seen

    def lines(self, modules: Iterable[str]) -> int:
        """Code lines of modules."""
        return sum(self.sizes[name] for name in modules)

    def commands(self) -> dict[str, list[str]]:
        """Command → its modules."""
        found: dict[str, list[str]] = defaultdict(list)
        for name in self.sizes:
            parts = name.split(".")
            if "cli" in parts[:-1]:
                command = parts[parts.index("cli") + 1]
                if command not in _HELPERS:
                    found[_SUBCOMMANDS.get(command, command)].append(name)
        return dict(found)


def part_of(module: str) -> str:
    """The feature of a module, or ``core``."""
    parts = module.split(".")
    if parts[1:2] == ["features"] and len(parts) > 2:
        return parts[2]
    if parts[1:2] == ["pytest_plugin"]:
        return "pytest"
    return "core"


def counted_with(module: str) -> str:
    """The feature whose size a module adds to, what it runs in ranks included; or ``core``."""
    parts = module.split(".")
    if parts[1:2] == ["worker"] and len(parts) > 2:
        return IN_RANKS.get(parts[2], "core")
    return part_of(module)


def read_sources(package: Path) -> Sources:
    """All modules of a package."""
    texts: dict[str, str] = {}
    for path in sorted(package.rglob("*.py")):
        name = ".".join(path.relative_to(package.parent).with_suffix("").parts)
        texts[name.removesuffix(".__init__")] = path.read_text(encoding="utf-8")
    sizes: dict[str, int] = {}
    imports: dict[str, set[str]] = defaultdict(set)
    for name, text in texts.items():
        tree = ast.parse(text)
        sizes[name] = code_lines(text, tree)
        imports[name] |= set(_imported(tree, texts))
        parent = name.rpartition(".")[0]
        if parent in texts and parent != package.name:
            imports[name].add(parent)
            if parent.endswith(FOUND_BY_NAME):
                imports[parent].add(name)
    return Sources(sizes, imports)


def _imported(tree: ast.Module, known: Mapping[str, str]) -> Iterator[str]:
    """The modules of the package that a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{one.name}" for one in node.names]
        else:
            continue
        for name in names:
            module = name
            while module and module not in known:
                module = module.rpartition(".")[0]
            if module:
                yield module


def code_lines(text: str, tree: ast.Module) -> int:
    """Lines that are neither blank, comment, docstring nor import."""
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            left_out |= _lines_of(node)
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                left_out |= _lines_of(body[0])
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and number not in left_out
        for number, line in enumerate(text.splitlines(), 1)
    )


def _lines_of(node: ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def reach_rows(sources: Sources) -> list[tuple[str, int]]:
    """Name and code lines: commands by what they reach, then features by their size with what they
    run in ranks, the core and the whole."""
    commands = [
        (command, sources.lines(sources.reached(roots)))
        for command, roots in sources.commands().items()
    ]
    parts: dict[str, int] = defaultdict(int)
    for name, size in sources.sizes.items():
        parts[counted_with(name)] += size
    core = parts.pop("core", 0)
    return [
        *sorted(commands, key=lambda row: -row[1]),
        *((f"feature {name}", size) for name, size in sorted(parts.items(), key=lambda r: -r[1])),
        ("core", core),
        ("package", sum(sources.sizes.values())),
    ]


def inward(sources: Sources) -> list[str]:
    """Imports of features by modules of the core; what Python callers get is above both."""
    above = LISTS_ALL | {"torchscale.api", "torchscale.run_results"}
    return sorted(
        f"{name} imports {other}"
        for name, others in sources.imports.items()
        for other in others
        if part_of(name) == "core" and part_of(other) != "core" and name not in above
    )


def costliest(sources: Sources, command: str, most: int = 20) -> list[tuple[int, str]]:
    """Code lines that a command would not reach without one import, and which."""
    roots = sources.commands()[command]
    full = sources.reached(roots)
    found = []
    for name in full:
        for other in sorted(sources.imports.get(name, set()) & full):
            others = {**sources.imports, name: sources.imports[name] - {other}}
            less = Sources(sources.sizes, others).reached(roots)
            found.append((sources.lines(full - less), f"{name} imports {other}"))
    return sorted(found, reverse=True)[:most]


def main() -> int:
    """Print the rows; 1 where ``--check`` finds one above its ceiling."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", type=Path, default=Path(__file__).parents[1], help="a checkout")
    parser.add_argument("--check", action="store_true", help="fail above a ceiling")
    parser.add_argument("--edges", metavar="COMMAND", help="the imports that cost it most")
    options = parser.parse_args()
    sources = read_sources(options.source / PACKAGE)
    if options.edges:
        for lines, text in costliest(sources, options.edges):
            print(f"{lines:>7,}  {text}")  # noqa: T201 - the table
        return 0
    problems = inward(sources)
    for name, lines in reach_rows(sources):
        ceiling = CEILINGS.get(name)
        if ceiling is None:
            problems.append(f"{name} has {lines:,} code lines and no ceiling in scripts/reach.py")
        elif lines > ceiling:
            problems.append(f"{name} has {lines:,} code lines; its ceiling is {ceiling:,}")
        if not options.check:
            print(f"{lines:>7,}  {name}")  # noqa: T201 - the table
    for problem in problems:
        print(problem, file=sys.stderr)  # noqa: T201 - what the check found
    return int(options.check and bool(problems))


if __name__ == "__main__":
    sys.exit(main())
