"""Whether a line of a running program is in a loop, from its source: a rank that is past a line in
no loop does not come back to it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from torchscale.features.watch.hang.stacks import LineRange
from torchscale.schema.launch.hang import StackFrame
from torchscale.util.files import read_bounded

_MAX_SOURCE_BYTES = 2 * 2**20
"""Largest source of a module that people write; parsing takes some 50 times as much memory."""
_FROZEN = "<frozen "
"""Modules within Python itself, as ``runpy``: what they run is called from no loop."""
_FRAMES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def outermost_loops(
    frames: Sequence[StackFrame], root: Path, since: float
) -> tuple[LineRange | None, ...]:
    """The outermost loop around the line of each frame, within the frame's function; ``None`` for a
    line in no loop.

    Args:
        frames: Frames of a stack.
        root: Root directory of the process, as ``/proc/PID/root``.
        since: When the process started: a file that was changed later is not what it runs.

    Returns:
        As many as ``frames``; none at all where one of the sources cannot be read, as of code that
        a program makes.
    """
    trees: dict[str, ast.Module | None] = {}
    loops: list[LineRange | None] = []
    for frame in frames:
        if frame.file.startswith(_FROZEN):
            loops.append(None)
            continue
        if frame.file not in trees:
            trees[frame.file] = _parsed(frame.file, root, since)
        tree = trees[frame.file]
        if tree is None:
            return ()
        loops.append(_outermost_loop(tree, frame.line))
    return tuple(loops)


def _parsed(file: str, root: Path, since: float) -> ast.Module | None:
    path = root / file.lstrip("/")
    try:
        if not file.startswith("/") or path.stat().st_mtime > since:
            return None
        return ast.parse(read_bounded(path, _MAX_SOURCE_BYTES))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _outermost_loop(tree: ast.Module, line: int) -> LineRange | None:
    node: ast.AST = tree
    found: LineRange | None = None
    while True:
        inner = next(
            (child for child in _with_lines(node) if child.lineno <= line <= _last_line(child)),
            None,
        )
        if inner is None:
            return found
        if isinstance(inner, _FRAMES):
            found = None  # its body is a frame of its own
        elif isinstance(inner, _LOOPS) and found is None:
            found = (inner.lineno, _last_line(inner))
        node = inner


def _with_lines(node: ast.AST) -> Iterator[ast.stmt | ast.expr | ast.excepthandler]:
    """The parts of a node that have lines; those without, as a ``case``, stand for their own
    parts."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.expr | ast.excepthandler):
            yield child
        else:
            yield from _with_lines(child)


def _last_line(node: ast.stmt | ast.expr | ast.excepthandler) -> int:
    assert node.end_lineno is not None  # noqa: S101 - the parser sets it
    return node.end_lineno
