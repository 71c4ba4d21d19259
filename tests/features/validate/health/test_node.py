from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from torchscale.features.validate.health.fixes import target, torch_for
from torchscale.features.validate.health.node import validate_facts
from torchscale.features.validate.health.required import Requirements, lacks_required_device
from torchscale.features.validate.health.system import SYSTEM_RULES
from torchscale.schema.node.check import Check, Status
from torchscale.schema.node.probe import (
    CollectiveFacts,
    DiskFacts,
    DriverFacts,
    GpuFacts,
    GpuPairFacts,
    HostFacts,
    KernelLogFacts,
    NodeFacts,
    NsysFacts,
    RdmaPort,
    SoftwareFacts,
    SystemFacts,
)

GIB = 2**30


def gpu(index: int, **changes: Any) -> GpuFacts:
    defaults: dict[str, Any] = {
        "index": index,
        "name": "NVIDIA H100 80GB HBM3",
        "memory_bytes": 80 * GIB,
        "memory_used_bytes": GIB // 2,
        "ecc_enabled": True,
        "ecc_uncorrected": 0,
        "temperature_celsius": 34,
        "throttle_reasons": (),
        "foreign_processes": (),
        "pcie_width": 16,
        "pcie_width_max": 16,
        "nvlinks_active": 18,
        "persistence": True,
        "compute_mode": "default",
    }
    return GpuFacts(**{**defaults, **changes})


def node(gpus: int = 8, **changes: Any) -> NodeFacts:
    """A healthy node of eight H100s."""
    defaults: dict[str, Any] = {
        "software": SoftwareFacts(
            python="3.11.7",
            torch="2.11.0",
            cuda_built="12.8",
            cuda_available=gpus > 0,
            cuda_devices=gpus,
            nccl="2.27.5",
            namesakes=(),
        ),
        "driver": DriverFacts(
            version="570.86",
            cuda_version="12.8",
            gpus=tuple(gpu(index) for index in range(gpus)),
            pairs=tuple(
                GpuPairFacts(first=0, second=index, p2p=True, path="NUMA node")
                for index in range(1, gpus)
            ),
        ),
        "host": HostFacts(
            hostname="n1",
            addresses=("10.0.0.7",),
            cores=128,
            memory_bytes=2048 * GIB,
            numa_nodes=2,
            shm_bytes=1024 * GIB,
            open_files_limit=65536,
            memory_lock_limit=-1,
            rdma_ports=(
                RdmaPort(
                    device="mlx5_0",
                    port=1,
                    state="ACTIVE",
                    rate="400 Gb/sec",
                    link_layer="InfiniBand",
                ),
            ),
        ),
        "kernel": KernelLogFacts(covered_seconds=86400.0),
        "system": SystemFacts(
            memory_available_bytes=900 * GIB,
            tasks_limit=-1,
            load=0.3,
            temporary="/tmp",
            temporary_free_bytes=100 * GIB,
            home="/root",
            encoding="UTF-8",
            time=1.8e9,
            clock_synchronized=True,
            local_ports=28_232,
            governors=("performance",),
            huge_page_defrag="madvise",
            numa_balancing=False,
        ),
        "disk": DiskFacts(path="/data", free_bytes=1000 * GIB, write_bytes_per_second=2e9),
        "nsys": NsysFacts(path="/usr/bin/nsys", version="2026.1", can_export=True),
        "collective": CollectiveFacts(
            backend="nccl", world_size=gpus, elements=789_435, seconds=0.0001
        ),
    }
    return NodeFacts(**{**defaults, **changes})


def check(facts: NodeFacts, identity: str) -> Check:
    return next(
        item for item in validate_facts(facts, Requirements()).checks if item.id == identity
    )


def changed(part: str, **changes: Any) -> NodeFacts:
    facts = node()
    return facts.model_copy(update={part: getattr(facts, part).model_copy(update=changes)})


def with_gpu(**changes: Any) -> NodeFacts:
    return changed("driver", gpus=(gpu(0), gpu(1, **changes)))


def test_a_healthy_node_is_fit_and_every_check_passes() -> None:
    validation = validate_facts(node(), Requirements(cuda=True, gpus=8))
    assert [item.id for item in validation.checks if item.status is not Status.PASS] == []
    assert validation.fit
    assert validation.verdict == "Fit for training on 8 GPUs."


def test_an_installation_without_torch_is_told_the_extra_that_brings_it() -> None:
    missing = changed(
        "software",
        torch=None,
        torch_error="ModuleNotFoundError: No module named 'torch'",
        torch_command="pip install '/src[train]'",
    )
    told = check(missing, "torch")
    assert told.status is Status.FAIL
    assert told.fixes == ("pip install '/src[train]'",)


def test_a_node_without_a_gpu_is_fit_for_the_cpu_unless_cuda_is_required() -> None:
    software = SoftwareFacts(
        python="3.11.7", torch="2.13.0+cpu", cuda_available=False, cuda_devices=0
    )
    facts = node(
        gpus=0,
        software=software,
        driver=DriverFacts(error="NVML Shared Library Not Found", missing=True),
    )
    validation = validate_facts(facts, Requirements())
    assert validation.fit
    assert validation.verdict == "Fit for CPU benchmarking: no CUDA GPU found."
    required = validate_facts(facts, Requirements(cuda=True))
    assert not required.fit
    assert lacks_required_device(required)


@pytest.mark.parametrize(
    ("facts", "identity", "status", "seen"),
    [
        (changed("software", python="3.9.1"), "python", Status.FAIL, "3.9.1"),
        (
            changed(
                "software",
                namesakes=("torchscale 0.3.0",),
                namesake_fixes=("pip uninstall torchscale",),
            ),
            "package",
            Status.WARN,
            "also of torchscale 0.3.0, in",
        ),
        (changed("software", torch="2.5.1"), "torch", Status.FAIL, "2.5.1"),
        (changed("software", torch="2.12.0"), "torch", Status.PASS, "not with this version"),
        (
            changed("software", torch=None, torch_error="OSError: libcudart"),
            "torch",
            Status.FAIL,
            "libcudart",
        ),
        (
            changed("software", cuda_built=None),
            "cuda_runtime",
            Status.FAIL,
            "was built without CUDA",
        ),
        (changed("software", cuda_built="13.0"), "cuda_runtime", Status.WARN, "13.0"),
        (changed("software", cuda_built="12.9"), "cuda_runtime", Status.WARN, "12.9"),
        (
            changed("software", cuda_available=False),
            "cuda_runtime",
            Status.FAIL,
            "is_available() is false",
        ),
        (changed("software", nccl=None), "nccl", Status.FAIL, "without NCCL"),
        (with_gpu(name="NVIDIA A100"), "gpus", Status.WARN, "1 × NVIDIA A100"),
        (with_gpu(ecc_uncorrected=2), "gpu_ecc", Status.FAIL, "GPU 1: 2"),
        (
            changed("driver", unreadable=("GPU 3: GPU is lost",)),
            "gpus",
            Status.FAIL,
            "GPU 3: GPU is lost",
        ),
        (
            changed("driver", gpus=(), error="NVML/RM version mismatch"),
            "gpus",
            Status.FAIL,
            "version mismatch",
        ),
        (changed("driver", visible_devices="9"), "gpu_visibility", Status.WARN, "out of range"),
        (with_gpu(compute_mode="prohibited"), "gpu_modes", Status.FAIL, "no process may use GPU 1"),
        (
            with_gpu(compute_mode="exclusive process"),
            "gpu_modes",
            Status.WARN,
            "one process at a time on GPU 1",
        ),
        (with_gpu(persistence=False), "gpu_modes", Status.WARN, "persistence is off on GPU 1"),
        (with_gpu(remapping_failed=True), "gpu_ecc", Status.FAIL, "could not be remapped on GPU 1"),
        (with_gpu(remapping_pending=True), "gpu_ecc", Status.WARN, "pending on GPU 1"),
        (with_gpu(ecc_enabled=False), "gpu_ecc", Status.WARN, "off on GPU 1"),
        (
            with_gpu(throttle_reasons=("power brake",)),
            "gpu_throttling",
            Status.WARN,
            "GPU 1: power brake",
        ),
        (with_gpu(temperature_celsius=91), "gpu_temperature", Status.WARN, "GPU 1: 91 °C"),
        (with_gpu(foreign_processes=("77 python",)), "gpu_idle", Status.WARN, "GPU 1: 77 python"),
        (with_gpu(memory_used_bytes=30 * GIB), "gpu_idle", Status.WARN, "30.0 GiB in use"),
        (with_gpu(pcie_width=8), "gpu_pcie", Status.WARN, "GPU 1: x8 of x16"),
        (with_gpu(nvlinks_active=12), "gpu_links", Status.WARN, "18, 12"),
        (
            changed("driver", pairs=(GpuPairFacts(first=0, second=1, p2p=False),)),
            "gpu_links",
            Status.WARN,
            "0-1",
        ),
        (changed("host", shm_bytes=64 * 2**20), "shared_memory", Status.WARN, "64.0 MiB"),
        (changed("host", shm_bytes=None), "shared_memory", Status.WARN, "missing"),
        (changed("host", open_files_limit=1024), "open_files", Status.WARN, "1,024"),
        (changed("host", memory_lock_limit=65536), "locked_memory", Status.WARN, "64.0 KiB"),
        (changed("host", rdma_ports=()), "locked_memory", Status.NOT_APPLICABLE, "unlimited"),
        (changed("host", addresses=()), "hostname", Status.WARN, "does not resolve"),
        (changed("host", addresses=None), "hostname", Status.WARN, "does not resolve"),
        (changed("disk", free_bytes=GIB // 2), "disk", Status.FAIL, "512 MiB free"),
        (changed("disk", free_bytes=5 * GIB), "disk", Status.WARN, "5.00 GiB free"),
        (changed("disk", files_free=300), "disk", Status.WARN, "300 more files"),
        (changed("system", memory_available_bytes=GIB), "memory", Status.WARN, "1.00 GiB"),
        (
            changed("system", memory_available_bytes=GIB, memory_limit_bytes=GIB),
            "memory",
            Status.WARN,
            "limit of this",
        ),
        (changed("system", cpu_limit=2.5), "cpu_limit", Status.WARN, "2.5 of 128 CPUs"),
        (changed("system", tasks_limit=512), "tasks", Status.WARN, "512"),
        (changed("system", load=64.0), "cpu_load", Status.WARN, "64.0 on 128 CPUs"),
        (
            changed("system", temporary_error="Read-only file system"),
            "temporary",
            Status.WARN,
            "/tmp: Read-only",
        ),
        (changed("system", temporary_free_bytes=2**20), "temporary", Status.WARN, "1.00 MiB free"),
        (
            changed("system", home_error="Permission denied"),
            "home",
            Status.WARN,
            "/root: Permission denied",
        ),
        (
            changed("system", locale_error="xx: unsupported"),
            "locale",
            Status.WARN,
            "xx: unsupported",
        ),
        (changed("system", encoding="ANSI_X3.4-1968"), "locale", Status.WARN, "ANSI"),
        (changed("system", time=0.0), "clock", Status.WARN, "1970-01-01"),
        (changed("system", clock_synchronized=False), "clock", Status.WARN, "not synchronized"),
        (changed("system", local_ports=100), "local_ports", Status.WARN, "100"),
        (changed("system", governors=("powersave",)), "cpu_governor", Status.WARN, "powersave"),
        (
            changed("system", governors=("powersave (power)",)),
            "cpu_governor",
            Status.WARN,
            "powersave (power)",
        ),
        (
            changed("system", governors=("powersave (performance)",)),
            "cpu_governor",
            Status.PASS,
            "performance",
        ),
        (changed("system", governors=()), "cpu_governor", Status.NOT_APPLICABLE, "not reported"),
        (changed("system", huge_page_defrag="always"), "huge_pages", Status.WARN, "always"),
        (changed("system", numa_balancing=True), "numa_balancing", Status.WARN, "on, 2 nodes"),
        (changed("disk", write_bytes_per_second=1e6), "disk", Status.WARN, "977 KiB/s"),
        (changed("disk", error="Read-only file system"), "disk", Status.FAIL, "Read-only"),
        (
            changed("nsys", can_export=False),
            "nsys",
            Status.WARN,
            "it cannot write reports: its importer is not installed",
        ),
        (changed("nsys", path=None), "nsys", Status.WARN, "not installed"),
        (
            changed("collective", wrong_elements=3),
            "collective",
            Status.FAIL,
            "3 of 6,315,480 elements wrong",
        ),
        (
            changed("collective", error="no result within 120 s"),
            "collective",
            Status.FAIL,
            "no result within",
        ),
    ],
)
def test_each_fault_is_found_with_what_was_seen_and_what_to_do(
    facts: NodeFacts, identity: str, status: Status, seen: str
) -> None:
    found = check(facts, identity)
    assert found.status is status
    assert seen in found.seen
    if status in (Status.WARN, Status.FAIL):
        assert found.expected
        assert found.advice
        assert found.fixes
    assert validate_facts(facts, Requirements()).fit is (status is not Status.FAIL)


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (
            "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
            "nvidia-fabricmanager",
        ),
        (
            "Error 803: system has unsupported display driver / cuda driver combination",
            "cuda-compat",
        ),
        (
            "The NVIDIA driver on your system is too old (found version 11040)",
            "update the NVIDIA driver",
        ),
        ("No CUDA GPUs are available", "CUDA_VISIBLE_DEVICES"),
        (None, "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_what_cuda_says_is_shown_and_answered(error: str | None, advice: str) -> None:
    found = check(changed("software", cuda_available=False, cuda_error=error), "cuda_runtime")
    assert found.status is Status.FAIL
    assert (error or "is_available() is false") in found.seen
    assert advice in found.advice


def test_a_verdict_says_how_many_gpus_were_tried() -> None:
    assert "8 GPUs: 789,435 elements" in check(node(), "collective").seen
    two = changed("collective", world_size=2)
    assert validate_facts(two, Requirements()).verdict == (
        "Fit for training on 8 GPUs. The all-reduce ran on 2 of them."
    )
    on_cpu = changed("collective", backend="gloo", world_size=2)
    assert "ran on none of them" in validate_facts(on_cpu, Requirements()).verdict


def test_a_gpu_is_named_with_the_number_that_training_takes() -> None:
    uuids = ("bbbb", "aaaa")  # CUDA_VISIBLE_DEVICES=1,0
    facts = changed("software", cuda_uuids=uuids)
    gpus = (
        gpu(0, uuid="GPU-aaaa", temperature_celsius=91),
        gpu(1, uuid="GPU-bbbb"),
        gpu(2, uuid="GPU-cccc"),
    )
    driver = node().driver
    assert driver is not None
    facts = facts.model_copy(update={"driver": driver.model_copy(update={"gpus": gpus})})
    assert check(facts, "gpu_temperature").seen == "GPU 0 (launch.devices: 1, GPU-aaaa): 91 °C"
    named = validate_facts(facts, Requirements()).facts.driver
    assert named is not None
    assert [one.cuda_index for one in named.gpus] == [1, 0, None]


def test_earlier_errors_are_told() -> None:
    assert "2 earlier" in check(with_gpu(ecc_uncorrected_ever=2), "gpu_ecc").seen


def test_a_port_that_is_down() -> None:
    port = RdmaPort(device="mlx5_1", port=1, state="DOWN", rate="10 Gb/sec", link_layer="Ethernet")
    assert "mlx5_1/1 not active" in check(changed("host", rdma_ports=(port,)), "rdma").seen


def test_what_could_not_be_looked_at_is_said_and_judged_by_nobody() -> None:
    unknown = dict.fromkeys(("software", "driver", "host", "disk", "nsys"), "PermissionError: no")
    validation = validate_facts(NodeFacts(unknown=unknown), Requirements())
    assert validation.fit
    assert Status.PASS not in {item.status for item in validation.checks}
    assert any("PermissionError: no" in item.seen for item in validation.checks)


def test_too_few_gpus() -> None:
    validation = validate_facts(node(gpus=4), Requirements(gpus=8))
    assert lacks_required_device(validation)
    assert "GPUs failed" in validation.verdict


@pytest.mark.parametrize(
    ("facts", "identity", "said"),
    [
        (with_gpu(ecc_uncorrected=None), "gpu_ecc", "no error count for GPU 1"),
        (with_gpu(foreign_processes=None), "gpu_idle", "lists no processes for GPU 1"),
        (changed("driver", pairs=()), "gpu_links", "P2P not reported"),
        (
            changed("driver", pairs=(GpuPairFacts(first=0, second=1),)),
            "gpu_links",
            "P2P not reported",
        ),
        (changed("host", open_files_limit=None), "open_files", "could not be checked"),
        (changed("host", memory_lock_limit=None), "locked_memory", "could not be checked"),
        (changed("disk", free_bytes=None), "disk", "could not be checked"),
    ],
)
def test_what_was_not_reported_never_passes(facts: NodeFacts, identity: str, said: str) -> None:
    found = check(facts, identity)
    assert found.status in (Status.NOT_APPLICABLE, Status.WARN)
    assert said in found.seen


def test_gpus_that_the_environment_hides_do_not_count() -> None:
    facts = changed("software", cuda_devices=1)
    assert validate_facts(facts, Requirements()).verdict == "Fit for training on 1 of 8 GPUs."
    assert lacks_required_device(validate_facts(facts, Requirements(gpus=8)))
    assert not lacks_required_device(validate_facts(facts, Requirements(gpus=1)))


def test_amd_gpus_are_used_and_what_is_not_read_of_them_is_said() -> None:
    software = SoftwareFacts(
        python="3.11.7",
        torch="2.9.0+rocm6.4",
        rocm_built="6.4.43484",
        cuda_available=True,
        cuda_devices=8,
        nccl="2.22.3",
    )
    driver = DriverFacts(error="NVML Shared Library Not Found", missing=True)
    facts = node(gpus=0, software=software, driver=driver)
    validation = validate_facts(facts, Requirements())
    assert validation.verdict.startswith("Fit for training on 8 GPUs.")
    seen = {item.id: item.seen for item in validation.checks}
    assert seen["cuda_runtime"].startswith("PyTorch's ROCm 6.4.43484, 8 devices; ")
    assert seen["gpus"] == "8 by ROCm, which NVIDIA's NVML does not read"
    assert seen["nccl"] == "RCCL 2.22.3"
    hidden = software.model_copy(update={"cuda_available": False, "cuda_devices": 0, "nccl": None})
    lost = check(facts.model_copy(update={"software": hidden}), "cuda_runtime")
    assert lost.status is Status.FAIL
    assert "/dev/kfd" in lost.advice


def test_a_driver_that_cannot_be_asked_is_never_a_node_without_gpus() -> None:
    facts = node().model_copy(
        update={"driver": None, "unknown": {"driver": "NVMLError: Unknown Error"}}
    )
    assert validate_facts(facts, Requirements()).verdict.startswith("Fit for training on 8 GPUs.")
    software = SoftwareFacts(python="3.11.7", torch="2.13.0", cuda_available=False, cuda_devices=0)
    verdict = validate_facts(
        facts.model_copy(update={"software": software}), Requirements()
    ).verdict
    assert "GPU presence is unknown" in verdict
    assert "no CUDA GPU found" not in verdict


def test_gpus_on_the_bus_without_a_driver_are_worth_a_word() -> None:
    host = node().host
    assert host is not None
    driver = DriverFacts(error="Driver Not Loaded", missing=True)
    facts = node(driver=driver, host=host.model_copy(update={"nvidia_devices": 8}))
    found = check(facts, "gpus")
    assert found.status is Status.WARN
    assert "8 on the PCI bus" in found.seen
    none = node(driver=driver, host=host.model_copy(update={"nvidia_devices": 0}))
    assert check(none, "gpus").status is Status.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("requirement", "lacking"),
    [
        (Requirements(nccl=True), changed("software", nccl=None)),
        (Requirements(nsys=True), changed("nsys", path=None)),
        (Requirements(nsys=True), changed("nsys", can_export=False)),
    ],
)
def test_each_requirement_is_met_by_a_healthy_node_and_missed_by_another(
    requirement: Requirements, lacking: NodeFacts
) -> None:
    assert not lacks_required_device(validate_facts(node(), requirement))
    assert lacks_required_device(validate_facts(lacking, requirement))


def test_a_loopback_name_is_enough_for_one_node() -> None:
    found = check(changed("host", addresses=("127.0.1.1", "::1")), "hostname")
    assert (found.status, "enough for one node" in found.seen) == (Status.PASS, True)


def test_commands_name_the_gpu_that_is_at_fault() -> None:
    facts = with_gpu(uuid="GPU-1b3f", pci_address="0000:2a:00.0", ecc_uncorrected=1)
    assert check(facts, "gpu_ecc").fixes[1] == "sudo nvidia-smi -i GPU-1b3f --gpu-reset"
    assert target(gpu(3, pci_address="0000:2a:00.0")) == "0000:2a:00.0"
    assert target(gpu(3)) == "3"


@pytest.mark.parametrize(
    ("cuda", "tag"),
    [("13.1", "cu130"), ("12.8", "cu128"), ("12.7", "cu126"), ("11.8", "cu118"), ("12.0", "cu118")],
)
def test_the_build_of_torch_is_one_that_the_driver_supports(cuda: str, tag: str) -> None:
    (command,) = torch_for(cuda)
    assert command.endswith(f"/whl/{tag}")


@pytest.mark.parametrize("cuda", [None, "", "11.4"])
def test_a_driver_too_old_for_any_build_is_to_be_updated(cuda: str | None) -> None:
    assert not any("whl" in command for command in torch_for(cuda))


def test_settings_that_were_not_read_are_no_pass() -> None:
    facts = node().model_copy(
        update={"system": None, "unknown": {"system": "PermissionError: /proc"}}
    )
    checks = {item.id: item for item in validate_facts(facts, Requirements()).checks}
    for rule in SYSTEM_RULES:
        (found,) = [item for item in checks.values() if item == rule(facts)]
        assert (found.status, found.seen) == (
            Status.WARN,
            "could not be checked: PermissionError: /proc",
        )


def test_a_real_node_with_one_gpu_is_fit() -> None:
    """Its driver tells no NVLinks, and it has no nsys."""
    recorded = Path(__file__).parents[3] / "data" / "h200" / "facts.json"
    facts = NodeFacts.model_validate_json(recorded.read_bytes())
    found = validate_facts(facts, Requirements())
    assert found.verdict == "Fit for training on 1 GPU. 1 warning: Nsight Systems."
    assert [check.title for check in found.checks if check.status is Status.FAIL] == []
