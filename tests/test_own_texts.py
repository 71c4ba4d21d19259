"""What we wrote reaches the user as written: redaction takes secrets out of what was typed, read or
printed by a program, and nothing out of texts of ours."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import torchscale
from tests.cli.program import torchscale as run
from tests.cli.test_help import commands
from torchscale.cli.main import app
from torchscale.cli.output import print_error
from torchscale.errors import UsageError
from torchscale.util import redaction
from torchscale.util.redaction import hide_secrets, redact_text

PACKAGE = Path(torchscale.__file__).parent
SHELL = ("features/cluster/submit/slurm_script.py", "features/trace/recording/nsys.py")
"""Scripts and command lines that no console shows."""
_WRITTEN = "VALUE"


@pytest.fixture(autouse=True)
def _nothing_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_noted", set())


def written(node: ast.AST) -> str | None:
    """The text that an expression makes, with a word in place of each value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(written(part) or _WRITTEN for part in node.values)
    return None


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each literal, without docstrings, parts of others, and hints."""
    tree = ast.parse(path.read_text())
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) or (isinstance(node, ast.keyword) and node.arg == "hint"):
            left_out.update(map(id, ast.walk(node.value)) if is_text(node) else ())
        if isinstance(node, ast.JoinedStr) and id(node) not in left_out:
            left_out.update(map(id, ast.walk(node)))
            left_out.discard(id(node))
    for node in ast.walk(tree):
        text = written(node)
        if text is not None and id(node) not in left_out:
            yield node.lineno, text  # type: ignore[attr-defined]


def is_text(node: ast.AST) -> bool:
    """Whether it is a docstring, a string behind an attribute, or a hint."""
    return isinstance(node, ast.keyword) or written(node.value) is not None  # type: ignore[attr-defined]


def hints_of(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.keyword) and node.arg == "hint":
            for part in ast.walk(node.value):
                text = written(part)
                if text:
                    yield part.lineno, text  # type: ignore[attr-defined]


MODULES = sorted(path for path in PACKAGE.rglob("*.py"))


def test_no_message_of_ours_is_taken_for_a_secret() -> None:
    checked, eaten = 0, []
    for path in MODULES:
        name = str(path.relative_to(PACKAGE))
        if name in SHELL or name.startswith("util/secret_"):
            continue
        for line, text in texts_of(path):
            if "[bold]" in text or "[cyan]" in text or text == "--token-secret NAME":
                continue  # help, which is looked at below
            checked += 1
            shown = redact_text(text, ())
            if shown != text:
                eaten.append((name, line, shown[max(0, shown.index("<redacted>") - 50) :][:90]))
    assert checked > 10_000
    assert not eaten


def test_every_hint_is_shown_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    hints = [(path, line, text) for path in MODULES for line, text in hints_of(path)]
    assert len(hints) > 300
    print_error(UsageError("x", hint="\n".join(text for _, _, text in hints)))
    shown = capsys.readouterr().err
    for path, line, text in hints:
        assert text in shown, (path, line, text)


@pytest.mark.parametrize("path", list(commands(typer.main.get_command(app))), ids=" ".join)
def test_no_help_is_redacted(path: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*path, "--help"], env={"NO_COLOR": "1"}).output
    assert shown
    assert "<redacted>" not in shown


@pytest.mark.parametrize(
    "hint",
    [
        "overrides are written --key.sub=value",
        "`openssl rand -hex 32 > token`, then --token-file token or TORCHSCALE_TOKEN=$(cat token)",
        "--password PASSWORD",
        "token: abcdef",
    ],
)
def test_only_a_known_secret_is_hidden_in_a_hint(
    hint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HUB_TOKEN", "c0rrect-h0rse")
    assert hide_secrets(f"{hint} c0rrect-h0rse") == f"{hint} <redacted>"
    print_error(UsageError("refused", hint=f"{hint} c0rrect-h0rse"))
    assert f"hint: {hint} <redacted>" in re.sub(r"\s+", " ", capsys.readouterr().err)


SECRET = "hunter22x"  # noqa: S105 - made up


@pytest.mark.parametrize(
    "arguments",
    [
        ("validate", f"password={SECRET}"),
        (f"PASSWORD={SECRET}",),
        ("report", "--format", f"API_KEY={SECRET}", "."),
        ("report", f"api_key={SECRET}", "other"),
        ("benchmark", f"--modles={SECRET}", "--launch.env.DB_PASS", SECRET),
        ("history", "--db", f"https://bob:{SECRET}@hub/x", f"token={SECRET}"),
        ("measure", "memory", f"--token={SECRET}", f"token={SECRET}"),
        ("docs", f"secret={SECRET}"),
        ("scale", "--launch.env.DB_PASS", SECRET),
        ("measure", f"password={SECRET}"),
    ],
)
def test_a_secret_that_was_typed_is_in_no_error(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == 2, done.stderr
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize("name", ["token", "secret.key", "./password"])
def test_the_file_of_a_secret_is_named_as_typed(tmp_path: Path, name: str) -> None:
    cluster = ("--nnodes", "2", "--node-rank", "0", "--master", "203.0.113.1")
    done = run(tmp_path, "validate", *cluster, "--token-file", name)
    assert f"--token-file {name.removeprefix('./')}: No such file" in done.stderr
    assert "then --token-file token or TORCHSCALE_TOKEN=$(cat token)" in done.stderr
    (tmp_path / name).write_text("x" * 64)
    (tmp_path / name).chmod(0o666)
    done = run(tmp_path, "validate", *cluster, "--token-file", name)
    assert f"--token-file {name.removeprefix('./')}: mode 0666" in done.stderr
