"""The docs say what the code does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import yaml

from torchscale.analysis.flags import Flag
from torchscale.schema.loading import load_experiment
from torchscale.schema.record import State

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_configuration_page_is_in_step_with_the_schema() -> None:
    spec = importlib.util.spec_from_file_location("config_reference", ROOT / "scripts" / "config_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "configuration.md").read_text() == module.page(), "run scripts/config_reference.py"


@pytest.mark.parametrize("path", [ROOT / "benchmark_config.yaml", *sorted((ROOT / "configs").glob("*.yaml"))], ids=str)
def test_every_ready_config_loads(path: Path) -> None:
    assert load_experiment(path).models


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_configs_in_the_docs_load(page: Path, tmp_path: Path) -> None:
    for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)):
        path = tmp_path / f"{number}.yaml"
        content = yaml.safe_load(block)
        path.write_text(block if "batch_sizes" in content else block + "\nbatch_sizes: 1\nmodels: gpt2\n")
        load_experiment(path)


def test_every_state_and_flag_is_explained() -> None:
    benchmark, method = ((ROOT / "docs" / name).read_text() for name in ("benchmark.md", "method.md"))
    assert all(f"| `{state.value}` |" in benchmark for state in State)
    assert all(f"| `{flag.value}` |" in method for flag in Flag)
