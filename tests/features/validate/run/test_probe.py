from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchscale.errors import MachineError
from torchscale.features.validate.health.node import validate_facts
from torchscale.features.validate.health.required import Requirements
from torchscale.features.validate.run import probe as launch_probe
from torchscale.features.validate.run.probe import check_collective, probe_node
from torchscale.schema.node.probe import CollectiveFacts, NodeFacts, SoftwareFacts

pytestmark = [pytest.mark.slow, pytest.mark.real]


def broken_package(directory: Path, name: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a package that runs ``code`` when imported before the real one."""
    (directory / name).mkdir(parents=True)
    (directory / name / "__init__.py").write_text(code)
    path = [str(directory), str(Path(launch_probe.__file__).parents[4])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))


def test_a_torch_that_aborts_leaves_the_other_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_package(tmp_path / "lib", "torch", "import os; os.abort()", monkeypatch)
    facts = probe_node(tmp_path)
    assert facts.software is not None
    assert facts.software.torch is None
    assert "SIGABRT while collecting software" in (facts.software.torch_error or "")
    validation = validate_facts(facts, Requirements())
    assert validation.verdict.startswith("Not fit: PyTorch failed.")
    assert facts.host is not None
    assert facts.disk is not None
    assert facts.driver is not None
    found = check_collective(facts, timeout_seconds=5)
    assert found.error is not None
    assert "SIGABRT" in found.error


def test_a_torch_that_hangs_leaves_the_other_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_package(tmp_path / "lib", "torch", "import time; time.sleep(600)", monkeypatch)
    monkeypatch.setattr(launch_probe, "_PROBE_SECONDS", 8.0)
    facts = probe_node(tmp_path)
    assert facts.host is not None
    assert "did not finish within 8 s while collecting software" in facts.unknown["software"]


def test_a_probe_that_finds_nothing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_package(tmp_path / "lib", "psutil", "raise SystemExit(4)", monkeypatch)
    with pytest.raises(MachineError, match="exited with 4 and printed no facts"):
        probe_node(tmp_path)


@pytest.mark.parametrize(
    ("devices", "nccl", "backend", "ranks"),
    [
        (8, "2.27.5", "nccl", 8),
        (1, "2.27.5", "nccl", 1),
        (2, None, "gloo", 2),
        (0, "2.27.5", "gloo", 2),
    ],
)
def test_every_gpu_that_pytorch_may_use_takes_part(
    devices: int, nccl: str | None, backend: str, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def refuse(argv: list[str], **_: object) -> None:
        commands.append(argv)
        raise MachineError("not started")

    monkeypatch.setattr(launch_probe, "run_bounded", refuse)
    software = SoftwareFacts(
        python="3.11.7", torch="2.13.0", cuda_available=True, cuda_devices=devices, nccl=nccl
    )
    with pytest.raises(MachineError):
        check_collective(NodeFacts(software=software), timeout_seconds=5)
    assert commands[0][-2] == backend
    assert f"--nproc-per-node={ranks}" in commands[0]


def test_a_collective_without_time_says_so(tmp_path: Path) -> None:
    facts = NodeFacts(software=SoftwareFacts(python="3.11.7", torch="2.13.0", cuda_devices=0))
    found = check_collective(facts, timeout_seconds=0.2)
    assert found == CollectiveFacts(backend="gloo", world_size=2, error="no result within 0.2 s")


def test_the_probe_runs_the_collective_of_a_node_without_cuda(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = probe_node(tmp_path, collective_seconds=120.0)
    found = facts.collective
    assert found is not None
    assert found.error is None
    assert (found.backend, found.world_size, found.wrong_elements) == ("gloo", 2, 0)
    assert found.elements == 3 * (1 + 1000 + 262_144)
    monkeypatch.setattr(launch_probe, "run_bounded", None)  # torch is not imported again
    assert check_collective(facts, timeout_seconds=5) is found


def test_what_a_rank_of_the_probe_raises_is_the_collectives_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "no-such-link")
    facts = probe_node(tmp_path, collective_seconds=120.0)
    assert facts.software is not None
    assert facts.software.torch is not None
    assert facts.collective is not None
    assert "no-such-link" in (facts.collective.error or "")


def test_a_collective_of_the_probe_without_time_says_so(tmp_path: Path) -> None:
    facts = probe_node(tmp_path, collective_seconds=1e-6)
    late = CollectiveFacts(backend="gloo", world_size=2, error="no result within 1e-06 s")
    assert facts.collective == late
    assert facts.disk is not None


def test_a_torch_that_aborts_leaves_the_collective_to_be_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_package(tmp_path / "lib", "torch", "import os; os.abort()", monkeypatch)
    facts = probe_node(tmp_path, collective_seconds=120.0)
    assert facts.collective is None
    assert "SIGABRT" in (check_collective(facts, timeout_seconds=5).error or "")
