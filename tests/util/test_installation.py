"""The command that adds an extra, for each way in which this program can be installed; the
installations are fabricated."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from torchscale.util.installation import install_command, install_source, library_command
from torchscale.version import DISTRIBUTION

CHECKOUT = Path(__file__).resolve().parents[2]
GIT = {"url": "https://host/team/t.git", "vcs_info": {"vcs": "git", "commit_id": "1f2e"}}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment that holds nothing but Python's own library, in a folder of its own."""
    library = [
        path
        for path in sys.path
        if path.startswith(sys.base_prefix) and "site-packages" not in path
    ]
    site = tmp_path / "site"
    monkeypatch.setattr(sys, "path", [str(site), *library])
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    return site


def install(site: Path, origin: object = None, installer: str = "pip") -> None:
    """The metadata of this program, as an installer leaves it."""
    metadata = site / "torchscale_bench-0.2.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: 0.2\nRequires-Dist: rich>=13\n"
        "Requires-Dist: pandas>=2.0; extra == 'report'\n"
        "Requires-Dist: jinja2>=3.1; extra == 'report'\n"
        "Requires-Dist: pyarrow; extra == 'parquet'\n"
        f"Requires-Dist: {DISTRIBUTION}[parquet,report]; extra == 'all'\n"
    )
    (metadata / "INSTALLER").write_text(f"{installer}\n")
    if origin is not None:
        (metadata / "direct_url.json").write_text(json.dumps(origin))


def folder(path: Path, *, editable: bool = False) -> dict[str, object]:
    """PEP 610 of an installation from a folder."""
    path.mkdir(exist_ok=True)
    return {"url": path.as_uri(), "dir_info": {"editable": editable}}


def test_of_an_index_the_extra_is_named(site: Path) -> None:
    install(site)
    assert install_command("report") == "pip install 'torchscale-bench[report]'"
    assert library_command("nvtx==0.2.11") == "pip install nvtx==0.2.11"


def test_of_a_checkout_its_path_is_named_and_it_stays_editable(site: Path, tmp_path: Path) -> None:
    source = tmp_path / "a clone"
    install(site, folder(source, editable=True))
    assert install_command("report") == f"pip install -e '{source}[report]'"


def test_of_a_folder_or_a_wheel_the_path_is_named(site: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    install(site, folder(source))
    assert install_command("report") == f"pip install '{source}[report]'"


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        (GIT, "torchscale-bench[train] @ git+https://host/team/t.git@1f2e"),
        (
            {"url": "https://h/t.whl", "archive_info": {}},
            "torchscale-bench[train] @ https://h/t.whl",
        ),
    ],
    ids=["commit", "address"],
)
def test_of_an_address_it_is_named(site: Path, origin: object, source: str) -> None:
    install(site, origin)
    assert install_command("train") == f"pip install '{source}'"


def test_of_a_wheel_that_is_gone_the_libraries_are_named(site: Path, tmp_path: Path) -> None:
    install(site, {"url": (tmp_path / "t.whl").as_uri(), "archive_info": {}})
    assert install_command("report") == "pip install 'pandas>=2.0' 'jinja2>=3.1'"
    assert install_command("all") == "pip install pyarrow 'pandas>=2.0' 'jinja2>=3.1'"


def test_of_a_copy_that_is_not_installed_its_checkout_is(site: Path) -> None:
    assert install_command("report") == f"pip install -e '{CHECKOUT}[report]'"
    assert install_source() == ["-e", str(CHECKOUT)]


def test_an_environment_of_uv_has_no_pip(site: Path) -> None:
    install(site, installer="uv")
    assert install_command("report") == "uv pip install 'torchscale-bench[report]'"


def test_an_application_of_pipx_gets_it_injected(site: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    install(site, folder(source, editable=True))
    (tmp_path / "pipx_metadata.json").write_text("{}")
    assert install_command("report") == f"pipx inject torchscale-bench -e '{source}[report]'"
    assert library_command("nvtx") == "pipx inject torchscale-bench nvtx"


def test_a_tool_of_uv_keeps_the_extras_that_it_has(site: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    install(site, folder(source), installer="uv")
    receipt = tmp_path / "uv-receipt.toml"
    entry = f'requirements = [{{ name = "torchscale-bench", directory = "{source}" }}]'
    receipt.write_text(f"[tool]\n{entry}\n")
    assert install_command("report") == f"uv tool install '{source}[report]'"
    receipt.write_text(
        f"[tool]\n{entry}\n".replace(", dir", ', extras = ["parquet", "train"], dir')
    )
    assert install_command("report") == f"uv tool install '{source}[parquet,report,train]'"
    assert library_command("nvtx") == f"uv tool install --with nvtx '{source}[parquet,train]'"
