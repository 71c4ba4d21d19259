"""The docs say what the code does."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from torchscale.analysis.training.flags import Flag
from torchscale.catalog.presets import HARDWARE_PRESETS
from torchscale.cli.main import app
from torchscale.config.experiment import Experiment
from torchscale.config.load import load_experiment
from torchscale.config.messages import dotted_keys
from torchscale.features.validate.acceptance.asked import policy_text
from torchscale.features.validate.cli.validate import validate
from torchscale.features.validate.policy_file import read_policy
from torchscale.measure.init import config_text
from torchscale.read.docs import list_pages
from torchscale.report.text.figures import DEFINED
from torchscale.schema.node.policy import Policy
from torchscale.schema.state import State

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
PLACEHOLDER = "--key.sub"
"""How usage lines write any key of a config."""


@pytest.mark.parametrize(
    ("script", "page"), [("config_reference", "configuration"), ("cli_reference", "cli-reference")]
)
def test_a_generated_page_is_current(script: str, page: str) -> None:
    module = importlib.import_module(script)
    assert (ROOT / "docs" / f"{page}.md").read_text() == module.page(), f"run scripts/{script}.py"


def test_the_page_of_keys_begins_with_a_dozen_and_has_every_key_once() -> None:
    page, _, _ = (ROOT / "docs" / "configuration.md").read_text().partition("## Presets")
    everyday, _, rest = page.partition("## Rarely needed")
    first, others = (
        re.findall(r"^\| `([a-z_.0-9]+)` \|", part, re.MULTILINE) for part in (everyday, rest)
    )
    assert 6 <= len(first) <= 12
    written = yaml.safe_load(config_text(HARDWARE_PRESETS["8xh100"]))
    assert {key.partition(".")[0] for key in first} == set(written), "what `init` writes"
    sections = {key.partition(".")[0] for key in dotted_keys() if "." in key}
    assert sorted([*first, *others]) == sorted(key for key in dotted_keys() if key not in sections)


@pytest.mark.parametrize(
    "path", [ROOT / "benchmark_config.yaml", *sorted((ROOT / "configs").glob("*.yaml"))], ids=str
)
def test_every_ready_config_loads(path: Path) -> None:
    assert load_experiment(path).models


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_pages_that_the_program_names_exist() -> None:
    pattern = re.compile(r"torchscale docs(?:\[/cyan\])? ([a-z-]+)")
    commands = {"names", "schema"}
    named = {
        page
        for path in (ROOT / "torchscale").rglob("*.py")
        for page in pattern.findall(path.read_text())
    }
    assert {"method", "diagnosis", "compare", "history", "predict", "profile", "nodes"} <= named
    assert named - commands <= {name for name, _ in list_pages()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_configs_in_the_docs_load(page: Path, tmp_path: Path) -> None:
    for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)):
        path = tmp_path / f"{number}.yaml"
        content = yaml.safe_load(block)
        if "looked_at" in content:
            path.write_text(block)
            assert read_policy(path) == Policy()
            continue
        path.write_text(
            block if "batch_sizes" in content else block + "\nbatch_sizes: 1\nmodels: gpt2\n"
        )
        load_experiment(path)


def test_what_keep_asks_for_is_told_as_it_is() -> None:
    said = policy_text(Policy())
    for text in ((ROOT / "docs/validate.md").read_text(), validate.__doc__ or ""):
        assert said in " ".join(text.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_in_the_docs_compiles(page: Path) -> None:
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)):
        compile(block, f"{page.name}, block {number}", "exec")


def code_blocks(text: str) -> list[tuple[str, str]]:
    """Language (empty for shell lines) and content of each fenced block."""
    blocks: list[tuple[str, str]] = []
    opened: tuple[str, list[str]] | None = None
    for line in text.splitlines():
        if opened is None:
            opened = (line[3:].strip(), []) if line.startswith("```") else None
        elif line == "```":
            blocks.append((opened[0], "\n".join(opened[1])))
            opened = None
        else:
            opened[1].append(line)
    assert opened is None, "a block that does not end"
    return blocks


def shell_lines() -> list[str]:
    """The lines of code blocks that run torchscale, an indented line belonging to the one before
    it."""
    blocks = [
        block for page in PAGES for language, block in code_blocks(page.read_text()) if not language
    ]
    lines = [
        line.partition("#")[0]
        for block in blocks
        for line in block.replace("\n    ", " ").splitlines()
    ]
    return sorted({line.strip() for line in lines if line.strip().startswith("torchscale ")})


@pytest.mark.parametrize("line", shell_lines(), ids=repr)
def test_shell_lines_name_commands_and_options_that_exist(line: str) -> None:
    command: Any = typer.main.get_command(app)
    for word in line.split()[1:]:
        if word not in getattr(command, "commands", {}):
            break
        command = command.commands[word]
    assert command.name != "torchscale", "no such command"
    own, _, _ = line.partition(" -- ")
    options = {
        option
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    for option in re.findall(r"(?<!\S)\[?(--[a-z][\w.-]*)", own):
        takes_keys = command.context_settings.get("ignore_unknown_options", False)
        is_config_key = takes_keys and option[2:].partition(".")[0] in Experiment.model_fields
        assert option in options or is_config_key or option == PLACEHOLDER, option


def test_every_state_and_flag_is_explained() -> None:
    benchmark, method = (
        (ROOT / "docs" / name).read_text() for name in ("benchmark.md", "method.md")
    )
    assert all(f"| `{state.value}` |" in benchmark for state in State)
    assert all(f"| `{flag.value}` |" in method for flag in Flag)


def test_every_figure_of_a_cell_is_defined() -> None:
    method = (ROOT / "docs" / "method.md").read_text()
    rows = [f"| {quantity.heading} | {quantity.definition} |" for quantity in DEFINED]
    assert [row for row in rows if row not in method] == []
