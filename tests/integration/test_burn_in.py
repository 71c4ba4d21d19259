"""``validate --burn-in`` with real ranks: to its end, with a wrong bit in one rank, and ended by
the user."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.campaign import tell_fault
from tests.integration.conftest import RUN_SECONDS, Program
from torchscale.util.processes.subprocesses import wait_until

pytestmark = pytest.mark.integration

CORRUPTS = """
import os, sys
if "torchscale.worker.machine.burn_in" in " ".join(sys.orig_argv) and os.environ.get("RANK") == "1":
    import torch
    real = torch.matmul
    def matmul(left, right, *, out):
        real(left, right, out=out)
        out.view(-1).view(torch.int32 if out.element_size() == 4 else torch.int16)[1234] ^= 1
    torch.matmul = matmul
"""


def test_a_short_burn_in(program: Program) -> None:
    done = program.here("validate", "--burn-in", "1s", "--json")
    validation = json.loads(done.stdout)
    burn_in = validation["burn_in"]
    assert done.returncode == 0, done.stderr
    assert burn_in["rounds"] >= 1
    assert (
        burn_in["backend"],
        burn_in["wrong_results"],
        burn_in["error"],
        burn_in["interrupted"],
    ) == (
        "gloo",
        0,
        None,
        False,
    )
    assert {rate["rank"] for rate in burn_in["rates"]} == set(range(burn_in["world_size"]))
    assert 0 < burn_in["product_share"] < 1
    assert all(rate["rate"] > 0 for rate in burn_in["rates"])
    assert "burn_in_results" in {
        check["id"] for check in validation["checks"] if check["status"] == "pass"
    }
    assert {check["status"] for check in validation["checks"]} <= {"pass", "warn", "fail", "n/a"}
    assert validation["facts"]["collective"]["wrong_elements"] == 0
    assert not list(program.directory.iterdir())


@pytest.mark.campaign
def test_a_rank_that_computes_a_wrong_bit(program: Program, record_property: object) -> None:
    (program.directory / "lib").mkdir()
    (program.directory / "lib" / "sitecustomize.py").write_text(CORRUPTS)
    path = os.pathsep.join([str(program.directory / "lib"), program.env()["PYTHONPATH"]])
    done = program.run("validate", "--burn-in", "1s", "--json", PYTHONPATH=path)
    burn_in = json.loads(done.stdout)["burn_in"]
    assert done.returncode == 1
    assert {wrong["rank"] for wrong in burn_in["wrong"]} == {1}
    assert {wrong["part"] for wrong in burn_in["wrong"]} == {"matmul float32", "matmul bfloat16"}
    assert {wrong["first"]["offset_bytes"] for wrong in burn_in["wrong"]} == {4 * 1234, 2 * 1234}
    tell_fault(
        record_property,  # type: ignore[arg-type]
        "a rank computes one wrong bit",
        "torch.matmul of rank 1 flips a bit of an element",
        "exit 1; rank, part, offset and bits are named",
        f"{burn_in['wrong_results']} wrong parts, all on rank 1",
    )


@pytest.mark.campaign
def test_ctrl_c_ends_it_with_what_was_seen(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(program.directory))  # where the ranks' files are
    process = program.start("validate", "--burn-in", "10m", "--json")
    try:
        assert wait_until(
            lambda: any(
                path.stat().st_size
                for path in program.directory.glob("torchscale-burn-in-*/rank-*.jsonl")
            ),
            timeout_seconds=RUN_SECONDS,
        )
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=RUN_SECONDS)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    validation = json.loads(output[output.index("{") :])
    assert validation["burn_in"]["interrupted"]
    assert validation["burn_in"]["rounds"] >= 1
    assert not list(program.directory.glob("torchscale-burn-in-*"))
