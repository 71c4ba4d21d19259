"""Batch scripts: what sbatch reads, what bash runs, what is refused."""

from __future__ import annotations

import dataclasses
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from torchscale.errors import MachineError, UsageError
from torchscale.features.cluster.submit.slurm import (
    SlurmJob,
    check_job,
    parse_options,
    render_script,
)
from torchscale.features.cluster.submit.slurm_queue import job_state, submit_script

HOSTILE = ("", "-x", "--wrap=id", "a\nb", "a\x1b[31mb", "a\x00b", "a\u202eb", 'a"b', "a'b")


def job(work: Path, /, **changes: Any) -> SlurmJob:
    plain = SlurmJob(
        config="experiment_name: demo\n",
        directory=work / "results" / "demo",
        working_directory=work,
        command=("/opt/venv/bin/python", "-m", "torchscale"),
        nodes=2,
        time="2:00:00",
        job_name="demo",
    )
    return dataclasses.replace(plain, **changes)


def directives(script: str) -> list[str]:
    """The options that sbatch reads: up to the first line that is no comment."""
    head = script.partition("\nset -e")[0]
    return [
        line.removeprefix("#SBATCH ") for line in head.splitlines() if line.startswith("#SBATCH ")
    ]


def test_every_option_is_a_directive(tmp_path: Path) -> None:
    script = render_script(
        job(
            tmp_path,
            gpus_per_node=8,
            cpus_per_task=16,
            account="lab",
            partition="gpu",
            qos="high",
            options={"exclusive": None, "comment": "two words"},
        )
    )
    options = directives(script)
    assert {"--nodes=2", "--ntasks-per-node=1", "--time=2:00:00", "--gpus-per-node=8"} <= set(
        options
    )
    assert {
        "--account=lab",
        "--partition=gpu",
        "--qos=high",
        "--exclusive",
        '--comment="two words"',
    } <= set(options)
    assert {"--requeue", "--signal=B:TERM@120", "--export=ALL"} <= set(options)
    assert "benchmark" in script
    assert "--engine slurm --nnodes 2" in script


def test_tasks_in_containers_get_the_cpus_of_the_job(tmp_path: Path) -> None:
    script = render_script(job(tmp_path, container="image", cpus_per_task=16))
    assert '--cpus-per-task="$SLURM_CPUS_PER_TASK"' in script
    assert "--engine" not in script


def test_one_node_is_measured_where_the_script_runs(tmp_path: Path) -> None:
    script = render_script(job(tmp_path, nodes=1))
    assert "--nnodes 1" in script
    assert "srun" not in script


def test_what_is_not_given_is_left_to_slurm(tmp_path: Path) -> None:
    script = render_script(job(tmp_path))
    assert not [
        option
        for option in directives(script)
        if "cpus" in option or "gpus" in option or "account" in option
    ]
    assert "SLURM_CPUS_PER_TASK" not in script  # not set there, and `set -u` would end the job


def test_a_container_gets_the_directories_of_the_job(tmp_path: Path) -> None:
    script = render_script(job(tmp_path, container="nvcr.io#nvidia".replace("#", "/")))
    assert "--container-image=nvcr.io/nvidia" in script
    assert (
        f"--container-mounts={tmp_path}:{tmp_path},{tmp_path}/results:{tmp_path}/results" in script
    )
    assert '"$exit_file" torchscale &' in script
    with pytest.raises(UsageError, match="cannot be used here"):
        render_script(job(tmp_path / "a:b", container="image"))


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("name", ["job_name", "account", "partition", "qos", "container", "time"])
def test_hostile_values_are_one_line_errors(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_job(job(tmp_path, **{name: value}))
    assert caught.value.message.isprintable()
    assert f"--{name.replace('_', '-')}" in caught.value.message


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_values_of_other_options_are_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(UsageError, match="--sbatch-option comment"):
        check_job(job(tmp_path, options={"comment": value}))


@pytest.mark.parametrize(
    "text", ["nodes=3", "--wrap=id", "array=1-9", "signal=KILL", "-p=x", "p=x", "a b=1", "=1", ""]
)
def test_options_of_the_script_itself_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--sbatch-option"):
        parse_options([text])


def test_options_are_values_or_flags() -> None:
    assert parse_options(["exclusive", "--constraint=a&b=c"]) == {
        "exclusive": None,
        "constraint": "a&b=c",
    }


@pytest.mark.parametrize("time", ["30", "30:00", "2:00:00", "1-12", "1-12:30", "1-12:30:00"])
def test_times_as_slurm_reads_them(tmp_path: Path, time: str) -> None:
    check_job(job(tmp_path, time=time))


@pytest.mark.parametrize("time", ["2h", "1:2:3:4", "-5", "1-", "٣"])
def test_other_times_are_refused(tmp_path: Path, time: str) -> None:
    with pytest.raises(UsageError, match="--time"):
        check_job(job(tmp_path, time=time))


def test_a_directory_with_a_placeholder_of_slurm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--output-dir"):
        check_job(job(tmp_path, directory=tmp_path / "%j"))


def program(directory: Path, name: str, body: str) -> None:
    (directory / name).write_text(f"#!/bin/bash\n{body}\n")
    (directory / name).chmod(0o755)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins for Slurm's programs: srun runs the task of each of two nodes, one after the
    other."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program(
        programs,
        "scontrol",
        f'echo "$@" >> {shlex.quote(str(tmp_path))}/scontrol.log; printf "n0\\nn1\\n"',
    )
    program(
        programs,
        "srun",
        'while [ "$1" != bash ]; do shift; done\n'
        "code=0\n"
        'for node in 1 0; do SLURM_NNODES=2 SLURM_NODEID=$node "$@" || code=$?; done\n'
        'exit "$code"',
    )
    # In place of the interpreter: the token, and what each node was started with.
    program(
        programs,
        "python",
        'if [ "$1" = -I ]; then echo 0123456789abcdef0123456789abcdef; exit; fi\n'
        f'printf "%q " "$@" >> {shlex.quote(str(tmp_path))}/calls\n'
        f'stat -c %a "${{@: -1}}" >> {shlex.quote(str(tmp_path))}/calls\n'
        'exit "${CODE:-0}"',
    )
    program(programs, "torchscale", 'exec python -m torchscale "$@"')
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_JOB_ID", "123456")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[0-1]")
    return tmp_path


def run(script: str, directory: Path) -> subprocess.CompletedProcess[str]:
    path = directory / "job.sbatch"
    path.write_text(script)
    return subprocess.run(
        ["bash", str(path)], check=False, capture_output=True, text=True, timeout=60
    )


@pytest.mark.slow
def test_bash_reads_the_script(tmp_path: Path) -> None:
    hostile = job(
        tmp_path / "a $(touch x) `id`; b",
        config="a: \"$(id)\" 'x'\nTORCHSCALE_CONFIG\n",
        container="image:1.0",
    )
    path = tmp_path / "job.sbatch"
    path.write_text(render_script(hostile))
    done = subprocess.run(
        ["bash", "-n", str(path)], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2])
def test_one_process_leads_without_a_token(cluster: Path, nodes: int) -> None:
    work = cluster / "a $(touch x) b"
    work.mkdir()
    (cluster / "results").mkdir()
    config = 'experiment_name: "$(id)"\nTORCHSCALE_CONFIG\n'
    plain = job(
        work,
        directory=cluster / "results" / "demo",
        config=config,
        command=(str(cluster / "bin" / "python"), "-m", "torchscale"),
        nodes=nodes,
    )
    done = run(render_script(plain), cluster)
    assert done.returncode == 0, done.stderr
    state = plain.state_directory
    (call,) = [shlex.split(line) for line in (cluster / "calls").read_text().splitlines()]
    assert call[: len(call) - 2 - 2 * (nodes > 1)] == [
        *("-m", "torchscale", "benchmark", str(state / "config-123456.yaml")),
        *("--output-dir", str(plain.directory)),
    ]
    expected = ["--nnodes", "1"] if nodes == 1 else ["--engine", "slurm", "--nnodes", "2"]
    assert call[-len(expected) :] == expected
    assert (state / "config-123456.yaml").read_text() == config
    assert sorted(path.name for path in state.iterdir()) == ["config-123456.yaml", "exit-123456"]
    assert not list(work.iterdir())
    assert not (cluster / "scontrol.log").exists()


@pytest.mark.slow
def test_each_container_runs_its_part_with_a_private_token(cluster: Path) -> None:
    work = cluster / "a $(touch x) b"
    work.mkdir()
    (cluster / "results").mkdir()
    config = 'experiment_name: "$(id)"\nTORCHSCALE_CONFIG\n'
    plain = job(
        work,
        directory=cluster / "results" / "demo",
        config=config,
        command=(str(cluster / "bin" / "python"), "-m", "torchscale"),
        container="image",
    )
    done = run(render_script(plain), cluster)
    assert done.returncode == 0, done.stderr
    state = plain.state_directory
    calls = [shlex.split(line) for line in (cluster / "calls").read_text().splitlines()]
    token = str(state / "token-123456")
    for call, rank in zip(calls, ("1", "0"), strict=True):
        assert call == [
            *(
                "-m",
                "torchscale",
                "benchmark",
                str(state / "config-123456.yaml"),
                "--output-dir",
                str(plain.directory),
            ),
            *("--nnodes", "2", "--node-rank", rank, "--master", "n0:23456", "--token-file", token),
            "600",
        ]
    assert (state / "config-123456.yaml").read_text() == config
    assert not (state / "token-123456").exists()
    assert not list(work.iterdir())
    assert (cluster / "scontrol.log").read_text() == "show hostnames n[0-1]\n"


@pytest.mark.slow
@pytest.mark.parametrize("container", [None, "image"])
def test_the_job_ends_with_the_exit_code_of_the_benchmark(
    cluster: Path, monkeypatch: pytest.MonkeyPatch, container: str | None
) -> None:
    monkeypatch.setenv("CODE", "3")
    command = (str(cluster / "bin" / "python"), "-m", "torchscale")
    plain = job(cluster, command=command, container=container)
    assert run(render_script(plain), cluster).returncode == 3
    assert (plain.state_directory / "exit-123456").read_text() == "3\n"


@pytest.mark.slow
@pytest.mark.parametrize(("state", "requeued"), [("RUNNING", True), ("COMPLETING", False)])
def test_the_time_limits_signal_stops_and_requeues(
    cluster: Path, state: str, requeued: bool
) -> None:
    log = shlex.quote(str(cluster))
    program(cluster / "bin", "squeue", f"echo {state}")
    program(cluster / "bin", "scancel", f'echo "$@" > {log}/scancel.log')
    # The signal comes while the step runs, which ends after its tasks were told.
    waits = (
        f"kill -TERM $PPID; for i in {{1..500}}; do [ -e {log}/scancel.log ] && break; sleep 0.02; "
        "done; exit 130"
    )
    program(cluster / "bin", "srun", waits)
    command = (str(cluster / "bin" / "python"), "-m", "torchscale")
    plain = job(cluster, command=command, container="image")
    assert run(render_script(plain), cluster).returncode == 130
    assert (cluster / "scancel.log").read_text() == "--signal=TERM 123456\n"
    assert ("requeue 123456" in (cluster / "scontrol.log").read_text()) is requeued


@pytest.mark.slow
@pytest.mark.parametrize(("state", "requeued"), [("RUNNING", True), ("COMPLETING", False)])
def test_the_time_limits_signal_reaches_the_process_that_leads(
    cluster: Path, state: str, requeued: bool
) -> None:
    program(cluster / "bin", "squeue", f"echo {state}")
    told = shlex.quote(str(cluster / "told"))
    waits = (
        f"trap 'touch {told}; exit 130' TERM; kill -TERM $PPID; "
        "for i in {1..500}; do sleep 0.02; done; exit 1"
    )
    program(cluster / "bin", "python", waits)
    plain = job(cluster, command=(str(cluster / "bin" / "python"), "-m", "torchscale"))
    assert run(render_script(plain), cluster).returncode == 130
    assert (cluster / "told").exists()
    log = cluster / "scontrol.log"
    assert (log.exists() and "requeue 123456" in log.read_text()) is requeued


@pytest.mark.slow
def test_what_sbatch_and_squeue_say(cluster: Path) -> None:
    programs = cluster / "bin"
    program(programs, "sbatch", "echo '77;cluster'")
    assert submit_script(cluster / "job") == "77"
    program(programs, "sbatch", "echo 'sbatch: error: invalid partition specified: x' >&2; exit 1")
    with pytest.raises(MachineError, match="invalid partition"):
        submit_script(cluster / "job")
    program(programs, "squeue", "echo PENDING")
    assert job_state("77") == "PENDING"
    program(programs, "squeue", "true")
    assert job_state("77") is None
    program(
        programs, "squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"
    )
    assert job_state("77") is None
    program(programs, "squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(OSError, match="Unable to contact"):
        job_state("77")


def test_without_slurm_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="sbatch cannot be started"):
        submit_script(tmp_path / "job")
