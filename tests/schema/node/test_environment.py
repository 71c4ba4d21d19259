from __future__ import annotations

import pytest

from torchscale.schema.node.environment import REDACTED, redact, redact_arguments, relevant_variables


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "NCCL_PASSWORD", "MY_AUTH", "DB_PWD", "SSH_PRIVATE"]
)
def test_what_is_named_like_a_secret_is_redacted(name: str) -> None:
    assert redact(name, "abc") == REDACTED


@pytest.mark.parametrize("name", ["NCCL_SOCKET_IFNAME", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"])
def test_what_is_not_stays(name: str) -> None:
    assert redact(name, "0,1") == "0,1"


def test_credentials_in_an_address_go() -> None:
    assert redact("NCCL_PROXY", "http://me:pw@host:3128") == f"http://{REDACTED}@host:3128"
    assert redact("NCCL_PROXY", "http://me:p@ss@host/a@b") == f"http://{REDACTED}@host/a@b"
    assert redact("NCCL_PROXY", "http://a:b@one,http://c:d@two") == f"http://{REDACTED}@one,http://{REDACTED}@two"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--launch.env.HF_TOKEN=abc"], [f"--launch.env.HF_TOKEN={REDACTED}"]),
        (["--launch.env.HF_TOKEN", "abc", "next"], ["--launch.env.HF_TOKEN", REDACTED, "next"]),
        (["--launch.env={HF_TOKEN: abc, A: b}"], [f"--launch.env={REDACTED}"]),
        (["--launch.env", '{"API_KEY": "abc"}'], ["--launch.env", REDACTED]),
        (["--launch={env: {DB_PASSWORD: abc}}"], [f"--launch={REDACTED}"]),
        (["benchmark", "http://me:pw@host/c.yaml"], ["benchmark", f"http://{REDACTED}@host/c.yaml"]),
        (["benchmark", "c.yaml", "--gpu_counts=[1,2]"], ["benchmark", "c.yaml", "--gpu_counts=[1,2]"]),
        (["--launch.env={A: b}", "--dry-run", "c.yaml"], ["--launch.env={A: b}", "--dry-run", "c.yaml"]),
    ],
)
def test_a_command_line(arguments: list[str], shown: list[str]) -> None:
    assert redact_arguments(arguments) == tuple(shown)


def test_only_variables_that_can_change_a_figure_are_kept() -> None:
    found = relevant_variables(
        {
            "NCCL_DEBUG": "INFO",
            "HOME": "/root",
            "TORCHSCALE_LAUNCHER_PID": "3",
            "TORCH_NCCL_KEY": "x",
            "OMP_PLACES": "cores",
        }
    )
    assert found == {"NCCL_DEBUG": "INFO", "OMP_PLACES": "cores", "TORCH_NCCL_KEY": REDACTED}
