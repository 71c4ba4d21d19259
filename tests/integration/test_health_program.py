"""The health-check program of the documentation, in a real Slurm."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import torchscale
from tests import slurm
from tests.integration.test_nodes import wait_for

pytestmark = pytest.mark.integration

PAGE = Path(torchscale.__file__).parent.parent / "docs" / "accepting-nodes.md"
SECONDS = 200
"""The program starts half a minute after the node; two nodes validate at the same time, on two cores
that other tests use."""


def scripts() -> list[str]:
    """The scripts of the page: of Slurm, and of Kubernetes."""
    return re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_slurm_drains_nodes_with_what_is_to_be_done_as_the_reason(tmp_path: Path) -> None:
    program = tmp_path / "health.sh"
    text = scripts()[0].replace("/opt/torchscale/bin/torchscale", f"{sys.executable} -m torchscale")
    settings = (
        f"HealthCheckProgram={program}",
        "HealthCheckInterval=30",
        "HealthCheckNodeState=IDLE",
    )
    with slurm.slurm(2, settings=settings) as cluster:
        here = f"export SLURM_CONF={cluster.environment['SLURM_CONF']}\n"
        program.write_text(text.replace("line=", f"{here}line="))
        program.chmod(0o755)

        def drained() -> bool:
            return all("DRAIN" in state_of(cluster, name) for name in ("n0", "n1"))

        wait_for(drained, "the drain", SECONDS)
        for name in ("n0", "n1"):
            assert "Reason=torchscale: retest node: CUDA: " in state_of(cluster, name)


def state_of(cluster: slurm.Slurm, node: str) -> str:
    return cluster.run("scontrol", "show", "node", node)
