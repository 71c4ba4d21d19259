"""An all-reduce over gloo between forks of this process, which has imported torch for its facts: to
import it again in a launcher and in each rank takes four times as long as all other checks."""

from __future__ import annotations

from pathlib import Path

from torchscale.schema.node.probe import CollectiveFacts

_RANKS = 2
_BACKEND = "gloo"


def check_over_gloo(scratch: Path, timeout_seconds: float) -> CollectiveFacts:
    """Run it under torchrun's agent, two ranks on CPU.

    Args:
        scratch: An empty directory for what the ranks leave.
        timeout_seconds: Bound on all of it, after which the ranks are ended.

    Raises:
        ChildFailedError: a rank has failed; what it raised is on standard error.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs  # noqa: PLC0415 - a broken torch is a fact

    from torchscale.worker.launcher.elastic_agent import run_forks  # noqa: PLC0415 - imports torch
    from torchscale.worker.machine.collective_check import run_rank  # noqa: PLC0415 - imports torch

    out = scratch / "collective.json"
    try:
        run_forks(
            lambda: run_rank(out, _BACKEND, timeout_seconds),
            _RANKS,
            DefaultLogsSpecs(log_dir=str(scratch)),
            timeout_seconds=timeout_seconds,
        )
    except TimeoutError:
        late = f"no result within {timeout_seconds:g} s"
        return CollectiveFacts(backend=_BACKEND, world_size=_RANKS, error=late)
    return CollectiveFacts.model_validate_json(out.read_bytes())
