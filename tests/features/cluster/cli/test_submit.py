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
        folder,
        "submit",
        "my.yaml",
        "--nodes",
        "4",
        "--time",
        "2:00:00",
        "--benchmark.repeats=3",
        "--print",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        "#!/bin/bash\n#SBATCH --job-name=torchscale-my-run\n#SBATCH --nodes=4\n"
    )
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
def test_wrong_input_is_one_line_and_exit_code_2(
    folder: Path, arguments: list[str], expected: str
) -> None:
    done = torchscale(folder, "submit", "my.yaml", *arguments, "--print")
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) <= 2


KUBERNETES = ("--image", "ghcr.io/you/torchscale:1", "--results-claim", "results")


@pytest.mark.parametrize(
    ("engine", "kind"), [("kubernetes", "TrainJob"), ("kubernetes-job", "Job")]
)
def test_print_shows_manifests_alone_and_needs_no_cluster(
    folder: Path, engine: str, kind: str
) -> None:
    before = sorted(folder.rglob("*"))
    done = torchscale(
        folder,
        "submit",
        "my.yaml",
        "--engine",
        engine,
        *KUBERNETES,
        "--nodes",
        "4",
        "--benchmark.repeats=3",
        "--print",
    )
    assert (done.returncode, done.stderr) == (0, "")
    documents = {document["kind"]: document for document in yaml.safe_load_all(done.stdout)}
    assert kind in documents
    assert documents[kind]["metadata"]["name"] == "torchscale-my-run"
    assert (
        yaml.safe_load(documents["ConfigMap"]["data"]["config.yaml"])["benchmark"]["repeats"] == 3
    )
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
        (
            ["--engine", "kubernetes", *KUBERNETES, "--job-name", "a\nb"],
            "--job-name 'a\\nb': expected",
        ),
        (
            ["--engine", "kubernetes", *KUBERNETES, "--qos", "high"],
            "--qos high: not an option of --engine kubernetes",
        ),
        (
            ["--engine", "kubernetes-job", *KUBERNETES, "--env", "PET_NNODES=1"],
            "--env PET_NNODES: set by the job",
        ),
        (["--namespace", "lab"], "--namespace lab: not an option of --engine slurm"),
    ],
)
def test_wrong_input_for_kubernetes_is_one_line(
    folder: Path, arguments: list[str], expected: str
) -> None:
    done = torchscale(folder, "submit", "my.yaml", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_submit_and_wait_through_kubectl(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for kubectl keeps what is applied, and answers as a cluster in which the job has
    run."""
    answer = {
        "items": [
            {
                "kind": "Job",
                "metadata": {"name": "torchscale-my-run"},
                "status": {
                    "conditions": [
                        {"type": "Failed", "status": "True", "reason": "PodFailurePolicy"}
                    ]
                },
            },
            {
                "kind": "Pod",
                "metadata": {"annotations": {"batch.kubernetes.io/job-completion-index": "0"}},
                "status": {
                    "containerStatuses": [
                        {"name": "node", "state": {"terminated": {"message": "1\n"}}}
                    ]
                },
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


SECRET = "hf_abcdefghijklmnopqrst"  # noqa: S105 - of no service


@pytest.mark.parametrize("secret", [f"--launch.env.HF_TOKEN={SECRET}", f"--env=HF_TOKEN={SECRET}"])
@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_printed_manifests_take_secrets_from_a_secret(
    folder: Path, secret: str, as_json: tuple[str, ...]
) -> None:
    line = (
        "submit",
        "my.yaml",
        "--engine",
        "kubernetes-job",
        *KUBERNETES,
        secret,
        "--env",
        "NCCL_DEBUG=INFO",
        "--print",
    )
    done = torchscale(folder, *line, *as_json)
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    told, first = done.stderr.splitlines()
    assert (
        told == "the manifests are without HF_TOKEN, and take it from the Secret torchscale-my-run"
    )
    assert "kubectl create secret generic torchscale-my-run --from-env-file=FILE" in first
    text = json.loads(done.stdout)["job"] if as_json else done.stdout
    documents = {document["kind"]: document for document in yaml.safe_load_all(text)}
    assert "Secret" not in documents
    env = {
        each["name"]: each
        for each in documents["Job"]["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    assert env["HF_TOKEN"]["valueFrom"]["secretKeyRef"] == {
        "name": "torchscale-my-run",
        "key": "HF_TOKEN",
    }
    assert env["NCCL_DEBUG"]["value"] == "INFO"


def test_a_printed_script_takes_secrets_from_the_shell(folder: Path) -> None:
    line = (
        "submit",
        "my.yaml",
        f"--launch.env.HF_TOKEN={SECRET}",
        "--launch.env.NCCL_DEBUG=INFO",
        "--print",
    )
    done = torchscale(folder, *line)
    assert SECRET not in done.stdout + done.stderr
    assert "NCCL_DEBUG: INFO" in done.stdout
    assert "HF_TOKEN" not in done.stdout
    assert done.stderr.splitlines()[1] == "first: read -rs HF_TOKEN; export HF_TOKEN"


def test_a_submitted_script_gets_secrets_in_its_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = folder / "sbatch"
    program.write_text(f'#!/bin/sh\nprintf %s "$HF_TOKEN" > {folder}/seen\necho 77\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    done = torchscale(folder, "submit", "my.yaml", f"--launch.env.HF_TOKEN={SECRET}", "--json")
    assert json.loads(done.stdout)["job_id"] == "77", done.stderr
    assert (folder / "seen").read_text() == SECRET
    assert SECRET not in (folder / "results" / "My_Run.submit" / "job.sbatch").read_text()


def test_submitted_manifests_have_their_secret(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = folder / "kubectl"
    program.write_text(
        "#!/bin/bash\n"
        f'case "$*" in apply*) cat > {folder}/applied ;; '
        '*) echo "Error from server (NotFound): not found" >&2; exit 1 ;; esac\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    line = (
        "submit",
        "my.yaml",
        "--engine",
        "kubernetes-job",
        *KUBERNETES,
        "--env",
        f"HF_TOKEN={SECRET}",
    )
    assert torchscale(folder, *line).returncode == 0
    kinds = {
        document["kind"]: document
        for document in yaml.safe_load_all((folder / "applied").read_text())
    }
    assert kinds["Secret"]["stringData"] == {"HF_TOKEN": SECRET}
    assert SECRET not in json.dumps([kinds["Job"], kinds["ConfigMap"]])


def test_secrets_that_a_job_would_not_get_are_refused(folder: Path) -> None:
    line = (
        "submit",
        "my.yaml",
        "--models=my.pkg:build",
        "--model.options.api_token=abcdefghijkl",
        "--print",
    )
    done = torchscale(folder, *line)
    assert (done.returncode, done.stdout) == (2, "")
    assert "a job would read <redacted> in their place" in done.stderr


def test_a_variable_without_a_value_is_told_as_it_was_typed(folder: Path) -> None:
    """A message is redacted too: it must not look like a secret and its value."""
    done = torchscale(
        folder,
        "submit",
        "my.yaml",
        "--engine",
        "kubernetes-job",
        *KUBERNETES,
        "--env",
        "API_KEY",
        "--print",
    )
    assert (
        done.stderr.splitlines()[0]
        == "error: --env 'API_KEY' has no value; expected --env NAME=VALUE"
    )
    done = torchscale(folder, "submit", "my.yaml", "--sbatch-option", "A B", "--print")
    assert "expected NAME=VALUE, or NAME" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            "--device=cpu --gpus-per-node 8 --nodes 4",
            "asks for 32 GPUs, and the config trains on CPUs (device: cpu)",
        ),
        (
            "--gpu_counts=[1,2] --gpus-per-node 8 --nodes 4",
            "32 GPUs (4 × 8), and the config uses 2 at most",
        ),
        (
            "--gpu_counts=[8,64] --gpus-per-node 8 --nodes 4",
            "cells of 64 GPUs (gpu_counts), and the job asks for 32",
        ),
        ("--gpu_counts=[1,2] --nodes 4", "asks for 4 nodes, and the config uses 2 devices at most"),
        ("--gpu_counts=[1,32] --gpus-per-node 8 --nodes 4", ""),
        ("--gpu_counts=auto --gpus-per-node 8 --nodes 4", ""),
        ("--gpu_counts=[1,2] --device=cpu", ""),
    ],
)
def test_a_job_that_does_not_fit_its_config_is_warned_of(
    folder: Path, arguments: str, told: str
) -> None:
    done = torchscale(folder, "submit", "my.yaml", *arguments.split(), "--print")
    assert done.returncode == 0, done.stderr
    assert told in done.stderr
    assert ("warning: " in done.stderr) is bool(told)
    assert done.stdout.startswith("#!/bin/bash")
