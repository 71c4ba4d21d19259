"""Runs the probe and the two-rank collective in bounded subprocesses."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pydantic import ValidationError

from torchscale.errors import MachineError
from torchscale.launch.process import inherited_environment, run_bounded
from torchscale.schema.probe import CollectiveFacts, NodeFacts

_PROBE_SECONDS = 180.0


def probe_node(directory: Path) -> NodeFacts:
    """The node's facts but the collective's.

    Raises:
        MachineError: the probe itself cannot be run.
    """
    command = [sys.executable, "-m", "torchscale.worker.probe", str(directory)]
    finished = run_bounded(command, timeout_seconds=_PROBE_SECONDS)
    if finished.timed_out:
        raise MachineError(f"the probe did not answer within {_PROBE_SECONDS:.0f} s; a driver or a file system hangs")
    try:
        return NodeFacts.model_validate_json(finished.stdout.strip().splitlines()[-1])
    except (ValidationError, IndexError) as error:
        last = (finished.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise MachineError(f"the probe failed with exit code {finished.returncode}: {last}") from error


def check_collective(facts: NodeFacts, *, timeout_seconds: float) -> CollectiveFacts:
    """A real collective of two ranks: NCCL where two GPUs can be used, else gloo on the CPU."""
    software, driver = facts.software, facts.driver
    use_nccl = software is not None and software.cuda_available and driver is not None and len(driver.gpus) > 1
    backend = "nccl" if use_nccl else "gloo"
    if software is None or software.torch is None:
        return CollectiveFacts(backend=backend, world_size=2, error="PyTorch cannot be imported")
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "collective.json"
        arguments = ["-m", "torchscale.worker.collective_check", str(out), backend, str(timeout_seconds)]
        local = ["--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2", "--max-restarts=0"]
        local.append(f"--log-dir={directory}")  # else torchrun leaves a directory in /tmp
        command = [sys.executable, "-m", "torch.distributed.run", *local, *arguments]
        finished = run_bounded(command, timeout_seconds=timeout_seconds, env=_environment())
        try:
            return CollectiveFacts.model_validate_json(out.read_bytes())
        except (OSError, ValidationError):
            reason = f"no result within {timeout_seconds:g} s" if finished.timed_out else _cause(finished.stderr)
            return CollectiveFacts(backend=backend, world_size=2, error=reason)


def _environment() -> dict[str, str]:
    environment = {**inherited_environment(), "OMP_NUM_THREADS": "1"}
    if Path("/sys/class/net/lo").exists():
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return environment


def _cause(stderr: str) -> str:
    """The first exception's line in what the ranks printed."""
    lines = stderr.strip().splitlines()
    raised = [line for line in lines if "Error" in line.partition(":")[0] and not line.startswith((" ", "["))]
    return (raised or lines or ["it said nothing"])[0].strip()[:300]
