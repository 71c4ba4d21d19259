"""``submit`` through the whole program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.program import torchscale


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my.yaml").write_text("experiment_name: My_Run\nmodels: gpt2\nbatch_sizes: 1\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_print_shows_a_script_and_writes_nothing(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    done = torchscale(
        folder, "submit", "my.yaml", "--nodes", "4", "--time", "2:00:00", "--benchmark.repeats=3", "--print"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("#!/bin/bash\n#SBATCH --job-name=torchscale-my-run\n#SBATCH --nodes=4\n")
    assert "\n  repeats: 3\n" in done.stdout
    assert done.stderr == ""
    assert sorted(folder.rglob("*")) == before


def test_without_sbatch_the_error_is_one_line_and_the_script_is_there(folder: Path) -> None:
    done = torchscale(folder, "submit", "my.yaml", "--nodes", "2")
    assert done.returncode == 3
    assert "sbatch cannot be started" in done.stderr
    assert (folder / "results" / "My_Run.submit" / "job.sbatch").is_file()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--nodes", "0"], "--nodes 0: expected 1 to"),
        (["--gpus-per-node", "0"], "--gpus-per-node 0: expected 1 to"),
        (["--time", "2h"], "--time '2h': expected"),
        (["--account", "a\nb"], "--account 'a\\nb': expected"),
        (["--sbatch-option", "wrap=id"], "--sbatch-option wrap: set by the script itself"),
        (["--trainig.seed=1"], "trainig"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(folder: Path, arguments: list[str], expected: str) -> None:
    done = torchscale(folder, "submit", "my.yaml", *arguments, "--print")
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) <= 2


KUBERNETES = ("--image", "ghcr.io/you/torchscale:1", "--results-claim", "results")


@pytest.mark.parametrize(("engine", "kind"), [("kubernetes", "TrainJob"), ("kubernetes-job", "Job")])
def test_print_shows_manifests_alone_and_needs_no_cluster(folder: Path, engine: str, kind: str) -> None:
    before = sorted(folder.rglob("*"))
    done = torchscale(
        folder, "submit", "my.yaml", "--engine", engine, *KUBERNETES, "--nodes", "4", "--benchmark.repeats=3", "--print"
    )
    assert (done.returncode, done.stderr) == (0, "")
    documents = {document["kind"]: document for document in yaml.safe_load_all(done.stdout)}
    assert kind in documents
    assert documents[kind]["metadata"]["name"] == "torchscale-my-run"
    assert yaml.safe_load(documents["ConfigMap"]["data"]["config.yaml"])["benchmark"]["repeats"] == 3
    assert sorted(folder.rglob("*")) == before


def test_without_kubectl_the_error_is_one_line(folder: Path) -> None:
    done = torchscale(folder, "submit", "my.yaml", "--engine", "kubernetes", *KUBERNETES)
    assert (done.returncode, done.stdout) == (3, "")
    assert "kubectl cannot be started" in done.stderr
    assert len(done.stderr.splitlines()) <= 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--engine", "kubernetes"], "--image is missing"),
        (["--engine", "kubernetes", *KUBERNETES, "--job-name", "a\nb"], "--job-name 'a\\nb': expected"),
        (["--engine", "kubernetes", *KUBERNETES, "--qos", "high"], "--qos high: not an option of --engine kubernetes"),
        (["--engine", "kubernetes-job", *KUBERNETES, "--env", "PET_NNODES=1"], "--env PET_NNODES: set by the job"),
        (["--namespace", "lab"], "--namespace lab: not an option of --engine slurm"),
    ],
)
def test_wrong_input_for_kubernetes_is_one_line(folder: Path, arguments: list[str], expected: str) -> None:
    done = torchscale(folder, "submit", "my.yaml", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_submit_and_wait_through_kubectl(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for kubectl keeps what is applied, and answers as a cluster in which the job has run."""
    answer = {
        "items": [
            {
                "kind": "Job",
                "metadata": {"name": "torchscale-my-run"},
                "status": {"conditions": [{"type": "Failed", "status": "True", "reason": "PodFailurePolicy"}]},
            },
            {
                "kind": "Pod",
                "metadata": {"annotations": {"batch.kubernetes.io/job-completion-index": "0"}},
                "status": {"containerStatuses": [{"name": "node", "state": {"terminated": {"message": "1\n"}}}]},
            },
        ]
    }
    (folder / "answer").write_text(json.dumps(answer))
    program = folder / "kubectl"
    program.write_text(
        "#!/bin/bash\n"
        'case "$*" in\n'
        f"  apply*) cat > {folder}/applied ;;\n"
        f'  *--output=json*) test -s {folder}/applied && cat "{folder}/answer" ;;\n'
        '  *) echo "Error from server (NotFound): not found" >&2; exit 1 ;;\n'
        "esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    arguments = ("submit", "my.yaml", "--engine", "kubernetes-job", *KUBERNETES)
    done = torchscale(folder, *arguments, "--wait")
    assert (done.returncode, done.stdout) == (1, "torchscale-my-run\n")
    assert "job torchscale-my-run: Failed (PodFailurePolicy)" in done.stderr
    assert (folder / "applied").read_text() == torchscale(folder, *arguments, "--print").stdout
