"""What the kernel's log says of a node's GPUs: what fails, what warns, and what is no fault of the
node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.features.validate.health.test_node import gpu
from torchscale.features.validate.health.kernel_log import gpu_at, gpu_errors
from torchscale.schema.node.check import Check, Status
from torchscale.schema.node.probe import DriverFacts, DriverMessage, KernelLogFacts, NodeFacts

GPUS = (
    gpu(0, pci_address="0000:1b:00.0", uuid="GPU-aaaa"),
    gpu(3, pci_address="0000:9b:00.0", uuid="GPU-bbbb"),
)


def message(code: int, address: str = "0000:9b:00", **changes: Any) -> DriverMessage:
    defaults: dict[str, Any] = {
        "kind": "xid",
        "code": code,
        "pci_address": address,
        "text": "",
        "times": 1,
        "first_seconds_ago": 7200.0,
        "last_seconds_ago": 7200.0,
    }
    return DriverMessage(**{**defaults, **changes})


def judged(*messages: DriverMessage, error: str | None = None, gpus: Any = GPUS) -> Check:
    log = KernelLogFacts(error=error, covered_seconds=86400.0, messages=messages)
    return gpu_errors(NodeFacts(driver=DriverFacts(gpus=gpus), kernel=log))


def test_a_gpu_that_fell_off_the_bus_fails_the_node_with_its_name_and_the_action() -> None:
    check = judged(message(79, times=2))
    assert check.status is Status.FAIL
    assert check.seen == (
        "GPU 3 (0000:9b:00.0, GPU-bbbb): Xid 79 (GPU has fallen off the bus), 2 times, the last "
        "one 2 h 00 min ago"
    )
    assert check.advice == "reboot the node: GPU 3 (0000:9b:00.0, GPU-bbbb)"
    assert "sudo reboot" in check.fixes


def test_faults_of_programs_are_no_fault_of_the_node() -> None:
    """A kernel that reads outside its memory (31), and the clean-up after it (45, 43)."""
    check = judged(message(31), message(45), message(43))
    assert check.status is Status.PASS
    assert "Xid 31, 43, 45 of programs" in check.seen


@pytest.mark.parametrize("code", [63, 92, 94, 74, 149, 999])
def test_what_may_come_back_warns(code: int) -> None:
    assert judged(message(code)).status is Status.WARN


def test_the_most_urgent_comes_first_and_each_gpu_gets_its_command() -> None:
    check = judged(message(63), message(95), message(48, "0000:1B:00"), message(31))
    assert check.status is Status.FAIL
    assert check.seen.startswith("GPU 3 (0000:9b:00.0, GPU-bbbb): Xid 95")
    assert check.advice.startswith("reset the GPU: GPU 3")
    assert "watch for more of them" in check.advice
    resets = [command for command in check.fixes if "--gpu-reset" in command]
    assert resets == [
        "sudo nvidia-smi -i GPU-bbbb --gpu-reset",
        "sudo nvidia-smi -i GPU-aaaa --gpu-reset",
    ]


def test_a_gpu_that_the_driver_no_longer_lists_is_named_by_its_address() -> None:
    check = judged(message(79, "0000:c1:00"))
    assert "the GPU at 0000:c1:00" in check.seen


def test_a_fatal_error_of_a_switch_fails_also_where_no_gpu_answers() -> None:
    text = "Fatal, Link 30 LTSSM Fault Up"
    check = judged(message(20034, "0000:05:00.0", kind="sxid", text=text), gpus=())
    assert check.status is Status.FAIL
    assert check.seen.startswith(f"NVSwitch 0000:05:00.0: SXid 20034 ({text})")


def test_a_log_that_cannot_be_read_is_no_clean_log() -> None:
    check = judged(error="Operation not permitted")
    assert check.status is Status.NOT_APPLICABLE
    assert "cannot be read: Operation not permitted" in check.seen
    assert judged(error="Operation not permitted", gpus=()).seen == "no GPU"


def test_a_long_list_is_cut_and_says_so() -> None:
    check = judged(*(message(95, f"0000:{bus:02x}:00") for bus in range(0x40, 0x4A)))
    assert check.seen.endswith("4 more")


def test_addresses_are_compared_as_the_log_and_the_driver_write_them() -> None:
    assert gpu_at("0000:9B:00", GPUS) is GPUS[1]
    assert gpu_at("00000000:9b:00.0", GPUS) is GPUS[1]
    assert gpu_at("0001:9b:00", GPUS) is None
