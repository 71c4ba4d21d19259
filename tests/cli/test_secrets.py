"""Results that somebody else wrote, with secrets in every place that text can be in: nothing that
is made of them shows one, and figures and ordinary words stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import torchscale
from tests.features.compare.cli.test_compare import STEADY, measured
from torchscale.util import redaction

SECRET = "c0rrect-h0rse-7"  # noqa: S105 - made up
TOKEN = "ghs_0123456789abcdefABCDEF0123456789abcd"  # noqa: S105 - of nobody
PLANTED = (
    f"Command '['train.py', '--lr', '0.1', '--api-key', '{SECRET}']' returned 1",
    f"https://bob:{SECRET}@hub/x?sig={SECRET}&v=1",
    f"Authorization: Bearer {SECRET}",
    f'{{"hub": {{"api_key": "{SECRET}"}}, "steps": 300}}',
    f"refused {TOKEN}; loss_per_token: 2.345, forward_pass=12.5ms",
)
EXPORTS = (
    "prometheus",
    "openmetrics",
    "junit",
    "github-summary",
    "github-benchmark",
    "grafana-dashboard",
)


@pytest.fixture(autouse=True)
def _nothing_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_noted", set())


def plant(run: Path, text: str) -> None:
    """In what a failed launch says, in the environment, and in the command lines."""
    file = run / "experiment.json"
    content: dict[str, Any] = json.loads(file.read_text())
    environment = content["environment"]
    environment["env"] = {"NCCL_NET_CONFIG": text, "NCCL_PASSWORD": SECRET, "NCCL_ALGO": "Ring"}
    environment["command"] = ["torchscale", "benchmark", "--models.0.api_token", SECRET, text]
    content["config"]["data"]["data_dir"] = f"s3://key:{SECRET}@bucket/x"
    file.write_text(json.dumps(content))
    record = min(run.glob("cells/*/launch-2/record.json"))  # of one of two cells
    content = json.loads(record.read_text())
    content |= {"state": "crashed", "reason": text, "log_tail": f"step 3\n{text}\nend"}
    content["command"] = ["torchrun", "train.py", "--token", SECRET, "--lr", "0.1"]
    record.write_text(json.dumps(content))


@pytest.mark.parametrize("text", PLANTED)
def test_nothing_made_of_results_shows_a_secret_in_them(tmp_path: Path, text: str) -> None:
    measured(tmp_path / "a", batch_sizes=[8, 16])
    measured(tmp_path / "b", [second * 1.1 for second in STEADY], batch_sizes=[8, 16])
    for name in ("a", "b"):
        plant(tmp_path / name, text)
    commands = [
        *(("report", "b", "--format", kind, "--output", "-") for kind in ("html", "md", "csv")),
        ("report", "b", "--format", "json", "--output", "-"),
        ("report", "b", "--format", "terminal"),
        ("report", "b", "--format", "pdf", "--output", "b.pdf"),
        ("runs", "."),
        *(
            ("compare", "a", "b", "--format", kind, "--output", "-")
            for kind in ("html", "md", "json")
        ),
        ("compare", "a", "b"),
        ("compare", "b", "--save", "kept"),
        ("runs", "baselines", "kept", "--json"),
        ("history", "a", "b", "--db", "h.sqlite", "--html", "h.html"),
        ("history", "--db", "h.sqlite", "--json"),
        *(("export", "b", "--to", target, "--output", f"b.{target}") for target in EXPORTS),
    ]
    shown = []
    for command in commands:
        done = torchscale(tmp_path, *command)
        assert "Traceback" not in done.stderr, command
        assert done.returncode in (0, 1), (command, done.stderr)
        shown.append((str(command), done.stdout + done.stderr))
    inputs = {path for name in ("a", "b") for path in (tmp_path / name).rglob("*.json")}
    shown += [
        (str(path), path.read_bytes().decode("utf-8", "replace"))
        for path in tmp_path.rglob("*")
        if path.is_file() and path not in inputs
    ]
    for name, content in shown:
        for secret in (SECRET, TOKEN):
            assert secret not in content, (
                name,
                content[max(0, content.index(secret) - 99) :][:200],
            )
    everything = "".join(content for _, content in shown)
    assert "<redacted>" in everything.replace("&lt;", "<").replace("&gt;", ">")
    assert "Ring" in everything


def test_figures_beside_a_secret_stay(tmp_path: Path) -> None:
    measured(tmp_path / "b")
    plant(tmp_path / "b", PLANTED[-1])
    done = torchscale(tmp_path, "report", "b", "--format", "json", "--output", "-")
    assert "refused <redacted>; loss_per_token: 2.345, forward_pass=12.5ms" in done.stdout
