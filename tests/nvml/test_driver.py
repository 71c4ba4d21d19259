"""What torchscale reads of GPUs, through the real bindings, from a driver's library that the test
describes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.nvml.driver import PCI, THERMAL, h100, mig_slice, scene, uuid
from torchscale.features.validate.health.gpu import gpu_visibility
from torchscale.launch.telemetry import READINGS, read_readings, sampling
from torchscale.schema.node.probe import DriverFacts, NodeFacts
from torchscale.util.processes.subprocesses import wait_until

pytestmark = pytest.mark.slow

SECONDS = 120
SLICE = "MIG-5c1c7a00-aaaa-bbbb-cccc-dddddddddddd"
PROBE = (
    "from torchscale.worker.probe.gpu import driver_facts; print(driver_facts().model_dump_json())"
)
PROBE_EACH = """
import os, sys
from torchscale.worker.probe.gpu import driver_facts
for value in sys.argv[1:]:
    os.environ["CUDA_VISIBLE_DEVICES"] = value
    print(driver_facts().model_dump_json())
"""


def run(variables: Mapping[str, str], *command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(
        filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")])
    )
    base = {key: value for key, value in os.environ.items() if not key.startswith("CUDA_")}
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={**base, "PYTHONPATH": path, "COLUMNS": "160", **variables},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def probe(variables: Mapping[str, str], cwd: Path) -> dict[str, Any]:
    """What the probe reads of the driver."""
    done = run(variables, "-c", PROBE, cwd=cwd)
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def checks(variables: Mapping[str, str], cwd: Path, *options: str) -> dict[str, dict[str, Any]]:
    """The checks of ``validate`` by id."""
    done = run(variables, "-m", "torchscale", "validate", "--json", *options, cwd=cwd)
    assert done.returncode in (0, 1), done.stderr
    return {check["id"]: check for check in json.loads(done.stdout)["checks"]}


def test_eight_gpus(tmp_path: Path) -> None:
    facts = probe(scene(tmp_path / "scene", [h100(index) for index in range(8)]), tmp_path)
    assert (facts["version"], facts["cuda_version"], facts["error"], facts["unreadable"]) == (
        "570.86.15",
        "12.8",
        None,
        [],
    )
    assert [gpu["uuid"] for gpu in facts["gpus"]] == [uuid(index) for index in range(8)]
    assert [gpu["pci_address"] for gpu in facts["gpus"]] == list(PCI)
    assert [gpu["temperature_celsius"] for gpu in facts["gpus"]] == [
        31 + index for index in range(8)
    ]
    first = facts["gpus"][0]
    assert (first["name"], first["memory_bytes"], first["memory_used_bytes"]) == (
        "NVIDIA H100 80GB HBM3",
        80 * 2**30,
        2**29,
    )
    assert (first["ecc_enabled"], first["ecc_uncorrected"], first["ecc_uncorrected_ever"]) == (
        True,
        0,
        0,
    )
    assert (first["throttle_reasons"], first["foreign_processes"], first["slices"]) == ([], [], [])
    assert (first["pcie_generation"], first["pcie_width"], first["nvlinks_active"]) == (5, 16, 18)
    assert (first["persistence"], first["compute_mode"]) == (True, "default")
    assert len(facts["pairs"]) == 28
    assert {(pair["p2p"], pair["nvlink"], pair["path"]) for pair in facts["pairs"]} == {
        (True, True, "system")
    }


def test_faults_name_the_gpu_by_index_uuid_and_address(tmp_path: Path) -> None:
    gpus = [h100(index) for index in range(8)]
    gpus[1] = h100(1, uncorrected=3, uncorrected_ever=5)
    gpus[2] = h100(2, remapped=2, pending=1)
    gpus[3] = h100(3, throttle=THERMAL, temperature=91)
    gpus[4] = h100(4, lost="query")
    gpus[5] = h100(5, lost="open")
    gpus[6] = h100(6, width=8)
    found = checks(scene(tmp_path / "scene", [*gpus, "process 7 4194305"]), tmp_path)

    def named(index: int) -> str:
        return f"GPU {index} ({PCI[index]}, {uuid(index)})"

    assert found["gpus"]["status"] == "fail"
    assert found["gpus"]["seen"] == f"{named(4)}: GPU is lost; GPU 5: GPU is lost"
    assert found["gpu_ecc"]["status"] == "fail"
    assert found["gpu_ecc"]["seen"] == f"uncorrected errors: {named(1)}: 3"
    assert found["gpu_throttling"]["seen"] == f"{named(3)}: hardware thermal slowdown"
    assert found["gpu_temperature"]["seen"] == f"{named(3)}: 91 °C"
    assert found["gpu_pcie"]["seen"] == f"{named(6)}: x8 of x16"
    assert found["gpu_idle"]["seen"] == f"{named(7)}: 4194305 (of another container or user)"
    assert f"sudo nvidia-smi -i {uuid(1)} --gpu-reset" in found["gpu_ecc"]["fixes"]
    assert found["gpu_throttling"]["fixes"] == [
        f"nvidia-smi -i {uuid(3)} -q -d PERFORMANCE,TEMPERATURE,POWER"
    ]
    # Here it ends: torch of this machine has no CUDA, whatever the driver lists.
    assert "built without CUDA, but the node has 6 GPUs" in found["cuda_runtime"]["seen"]


def test_a_driver_that_does_not_initialize(tmp_path: Path) -> None:
    for code, error in ((18, "version mismatch"), (9, "driver not loaded")):
        facts = probe(scene(tmp_path / "scene", [f"error {code}"]), tmp_path)
        assert error in facts["error"].lower()
        assert facts["missing"] is (
            code == 9
        )  # a node without a driver is sound, one with a broken driver is not


def test_a_gpu_of_another_container_is_not_broken(tmp_path: Path) -> None:
    facts = probe(scene(tmp_path / "scene", [h100(0), h100(1, denied="yes"), h100(2)]), tmp_path)
    assert ([gpu["index"] for gpu in facts["gpus"]], facts["unreadable"]) == ([0, 2], [])


def test_a_slice_of_a_gpu(tmp_path: Path) -> None:
    variables = scene(tmp_path / "scene", [h100(0), mig_slice(SLICE), h100(1)])
    facts = probe(variables, tmp_path)
    assert [gpu["slices"] for gpu in facts["gpus"]] == [[SLICE], []]


def sampled(
    variables: Mapping[str, str], uuids: list[str], tmp_path: Path, patch: pytest.MonkeyPatch
) -> list[Any]:
    """GPU readings of the second reading of the machine."""
    for name, value in variables.items():
        patch.setenv(name, value)
    with sampling(tmp_path, 0.1, uuids):
        assert wait_until(
            lambda: len(read_readings(tmp_path / READINGS)[0]) >= 2, timeout_seconds=SECONDS
        )
    return list(read_readings(tmp_path / READINGS)[0][1].gpus)


def test_telemetry_finds_gpus_by_uuid_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = [
        h100(0),
        h100(1, power=612, busy=97, throttle=THERMAL, uncorrected=2),
        h100(2),
        mig_slice(SLICE),
    ]
    # torch's order is another than NVML's, and it gives UUIDs without the prefix.
    asked = [uuid(2), uuid(1).removeprefix("GPU-"), SLICE.removeprefix("MIG-"), "GPU-of-no-machine"]
    readings = sampled(scene(tmp_path / "scene", gpus), asked, tmp_path, monkeypatch)
    assert [reading.uuid for reading in readings] == asked[:3]
    third, second, part = readings
    assert (second.power_watts, second.busy, second.ecc_errors, second.temperature_celsius) == (
        612,
        0.97,
        2,
        32,
    )
    assert second.throttle_reasons == ("hardware thermal slowdown",)
    assert (second.sm_clock_hertz, second.nvlink_bytes_per_second is not None) == (1980e6, True)
    assert (third.power_watts, third.busy) == (
        70,
        None,
    )  # with MIG on, the driver reports no utilization
    assert (part.power_watts, part.temperature_celsius, part.memory_used_bytes) == (None, None, 0)


def test_a_gpu_that_is_lost_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "scene"
    for name, value in scene(path, [h100(0), h100(1)]).items():
        monkeypatch.setenv(name, value)
    with sampling(tmp_path, 0.1, [uuid(0), uuid(1)]):
        assert wait_until(
            lambda: bool(read_readings(tmp_path / READINGS)[0]), timeout_seconds=SECONDS
        )
        scene(path, [h100(0), h100(1, lost="query")])
        assert wait_until(
            lambda: read_readings(tmp_path / READINGS)[0][-1].gpus[1].temperature_celsius is None,
            timeout_seconds=SECONDS,
        )
    last = read_readings(tmp_path / READINGS)[0][-1]
    assert (last.gpus[0].temperature_celsius, last.gpus[1].power_watts) == (31, None)


def test_cuda_visible_devices(tmp_path: Path) -> None:
    expected = {
        "2,0": "GPU 2, 0 of 3",
        f"{uuid(1)},GPU-00": "GPU 1, 0 of 3",
        SLICE: "GPU 2 of 3",
        "0,7,1": "7 is out of range: the driver lists 3 GPUs; CUDA ignores 7, 1 and uses 1 of 3",
        "GPU-0": "GPU-0 is the UUID of several GPUs; CUDA ignores GPU-0 and uses none of 3",
        "MIG-1,0": "MIG-1 is the UUID of no MIG slice of this node; CUDA ignores MIG-1, 0 and "
        "uses none of 3",
    }
    machine = scene(tmp_path / "scene", [h100(0), h100(1), h100(2), mig_slice(SLICE)])
    done = run(machine, "-c", PROBE_EACH, *expected, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    facts = [
        NodeFacts(driver=DriverFacts.model_validate_json(line)) for line in done.stdout.splitlines()
    ]
    assert [gpu_visibility(it).seen for it in facts] == list(expected.values())


def test_an_example_config_for_the_gpus_that_answer(tmp_path: Path) -> None:
    machine = scene(
        tmp_path / "scene", [h100(0), h100(1, lost="open"), h100(2, lost="query"), h100(3)]
    )
    code = "from torchscale.launch.machine import detect_gpus; print(detect_gpus())"
    done = run(machine, "-c", code, cwd=tmp_path)
    assert (done.stdout.strip(), done.stderr) == ("[(9, 0), (9, 0)]", "")


COUNTERS = """
import json, sys
from dataclasses import asdict
from torchscale.launch.counters import gpu_counters
print(json.dumps([asdict(each) for each in gpu_counters(json.loads(sys.argv[1]))]))
"""


def test_replays_of_pcie_and_errors_of_nvlinks_are_counted_by_gpu(tmp_path: Path) -> None:
    gpus = [h100(0, replays=7, crc=3), h100(1, links=-1)]
    variables = scene(tmp_path / "scene", gpus)
    numbers = json.dumps({uuid(0).removeprefix("GPU-"): 0, uuid(1): 1, "GPU-gone": 2})
    done = run(variables, "-c", COUNTERS, numbers, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = {(each["part"], each["counter"]): each["value"] for each in json.loads(done.stdout)}
    assert found == {
        ("GPU 0", "PCIe replays"): 7,
        ("GPU 0", "NVLink CRC errors (flits)"): 3,
        ("GPU 0", "NVLink CRC errors (data)"): 3,
        ("GPU 0", "NVLink replays"): 0,
        ("GPU 0", "NVLink recoveries"): 0,
        ("GPU 1", "PCIe replays"): 0,
    }


def test_without_a_driver_there_are_no_counters(tmp_path: Path) -> None:
    variables = scene(tmp_path / "scene", ["error 9"])
    done = run(variables, "-c", COUNTERS, json.dumps({uuid(0): 0}), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
