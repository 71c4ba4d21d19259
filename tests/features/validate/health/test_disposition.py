"""Which GPU is kept, mended and tested again, or returned; and what is a matter of the node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.features.validate.acceptance.runs import a_run, baseline_of, eight_gpus, noisy
from tests.features.validate.health.test_kernel_log import message
from tests.features.validate.health.test_node import gpu, node
from torchscale.features.validate.health.node import validate_facts
from torchscale.features.validate.health.required import Requirements
from torchscale.schema.launch.telemetry import GpuUse
from torchscale.schema.node.acceptance import Acceptance, Conditions
from torchscale.schema.node.burn_in import BurnIn, PartRate, WrongResult
from torchscale.schema.node.policy import Policy, Subject
from torchscale.schema.node.probe import (
    DiskFacts,
    DriverFacts,
    KernelLogFacts,
    NodeFacts,
    SoftwareFacts,
)
from torchscale.schema.node.validation import Disposition, PartVerdict, Validation

KEEP, UNDECIDED, RETEST, RETURN = Disposition
NO_SPEEDS = "speeds: not asked for (--acceptance)"
MEMORY = Policy(looked_at=(Subject.MEMORY,))


def gpus(**changes: Any) -> tuple[Any, ...]:
    """Four GPUs; GPU 2 with ``changes``."""
    return tuple(
        gpu(
            index,
            pci_address=f"0000:{0x1B + index:02x}:00.0",
            uuid=f"GPU-{index}",
            **(changes if index == 2 else {}),
        )
        for index in range(4)
    )


def of(*, log: Any = (), burn_in: BurnIn | None = None, **changes: Any) -> NodeFacts:
    facts = node(4)
    driver = (facts.driver or DriverFacts()).model_copy(update={"gpus": gpus(**changes)})
    software = (facts.software or SoftwareFacts(python="")).model_copy(
        update={"cuda_uuids": tuple(f"GPU-{index}" for index in range(4))}
    )
    kernel = KernelLogFacts(covered_seconds=86400.0, messages=log)
    return facts.model_copy(update={"driver": driver, "software": software, "kernel": kernel})


def validated(facts: NodeFacts, burn_in: BurnIn | None = None) -> Validation:
    return validate_facts(facts, Requirements(), burn_in)


def parts(facts: NodeFacts, burn_in: BurnIn | None = None) -> dict[int | None, PartVerdict]:
    return {part.gpu: part for part in validated(facts, burn_in).parts}


def burn(
    wrong: tuple[WrongResult, ...] = (),
    rates: tuple[PartRate, ...] = (),
    uses: tuple[GpuUse, ...] = (),
    error: str | None = None,
) -> BurnIn:
    return BurnIn(
        backend="nccl",
        world_size=4,
        seconds=600,
        rounds=100,
        wrong_results=len(wrong),
        wrong=wrong,
        rates=rates,
        gpus=uses,
        error=error,
    )


def wrong(part: str, number: int, device: str = "cuda:2") -> WrongResult:
    return WrongResult(rank=2, device=device, round=number, part=part, wrong=1)


def test_a_healthy_node_is_not_kept_before_somebody_measured_its_speeds() -> None:
    found = parts(of(), burn())
    assert {part.disposition for part in found.values()} == {UNDECIDED}
    assert set(found) == {0, 1, 2, 3, None}
    assert found[0].reasons == ("nobody measured its speeds",)
    assert found[0].action == "measure its speeds (--acceptance)"
    assert validated(of(), burn()).unseen == (NO_SPEEDS,)


@pytest.mark.parametrize(
    ("changes", "disposition", "action"),
    [
        ({"remapping_failed": True}, RETURN, "replace the GPU"),
        ({"ecc_uncorrected": 3}, RETEST, "reset the GPU"),
        ({"remapping_pending": True}, RETEST, "reset the GPU"),
        ({"ecc_enabled": False}, RETEST, "turn ECC on"),
        ({"pcie_width": 8}, RETEST, "reseat the card"),
        ({"nvlinks_active": 17}, RETEST, "check the NVLinks"),
        ({"throttle_reasons": ("thermal",)}, RETEST, "check cooling"),
        ({"temperature_celsius": 91}, RETEST, "check cooling"),
    ],
)
def test_what_the_driver_reports_of_one_gpu_is_of_that_gpu_alone(
    changes: dict[str, Any], disposition: Disposition, action: str
) -> None:
    found = parts(of(**changes))
    assert found[2].disposition is disposition
    assert found[2].action.startswith(action)
    assert found[2].uuid == "GPU-2"
    assert len(found[2].reasons) == 1
    assert [found[index].disposition for index in (0, 1, 3, None)] == [UNDECIDED] * 4


@pytest.mark.parametrize(
    ("code", "disposition"),
    [(64, RETURN), (79, RETEST), (63, RETEST), (31, UNDECIDED), (45, UNDECIDED)],
)
def test_the_kernels_log_counts_for_the_gpu_that_it_names(
    code: int, disposition: Disposition
) -> None:
    found = parts(of(log=(message(code, "0000:1d:00"),)))
    assert found[2].disposition is disposition
    assert [found[index].disposition for index in (0, 1, 3, None)] == [UNDECIDED] * 4


def test_a_gpu_that_is_tested_again_is_returned_if_it_comes_back() -> None:
    assert parts(of(ecc_uncorrected=1))[2].action == (
        "reset the GPU; validate again, and return it if this comes back"
    )


def test_the_gravest_reason_decides_and_all_are_kept() -> None:
    found = parts(of(log=(message(95, "0000:1d:00"),), remapping_failed=True))[2]
    assert found.disposition is RETURN
    assert found.action == "replace the GPU"
    assert len(found.reasons) == 2


def test_one_wrong_round_is_no_proof_and_two_are() -> None:
    """A cosmic ray flips a bit once."""
    once = parts(of(), burn((wrong("memory", 4), wrong("matmul fp32", 4))))[2]
    assert once.disposition is RETEST
    twice = parts(of(), burn((wrong("memory", 4), wrong("matmul fp32", 9))))
    assert twice[2].disposition is RETURN
    assert "2 rounds" in twice[2].reasons[0]
    assert twice[0].disposition is twice[None].disposition is UNDECIDED


def test_wrong_copies_are_not_blamed_on_the_gpu_alone() -> None:
    found = parts(of(), burn((wrong("copy", 4), wrong("copy", 5))))[2]
    assert found.disposition is RETEST
    assert "host's memory" in found.action


def test_a_wrong_result_of_a_device_that_is_not_listed_is_the_nodes() -> None:
    found = parts(of(), burn((wrong("memory", 1, "cuda:7"), wrong("memory", 2, "cuda:7"))))
    assert found[None].disposition is RETURN
    assert parts(node(0), burn((wrong("memory", 1, "cpu"),)))[None].disposition is RETEST


@pytest.mark.parametrize("uuid", ["GPU-2", "2"])
def test_heat_and_new_errors_of_the_burn_in_are_of_their_gpu(uuid: str) -> None:
    """torch, which the burn-in asks, writes the UUID without NVML's prefix."""
    hot = GpuUse(uuid=uuid, throttled_share=0.3, throttle_reasons=("thermal",))
    assert parts(of(), burn(uses=(hot,)))[2].action.startswith("check cooling")
    ecc = GpuUse(uuid=uuid, new_ecc_errors=1)
    assert parts(of(), burn(uses=(ecc,)))[2].action.startswith("reset the GPU")


def test_new_errors_of_a_gpu_that_is_not_listed_are_the_nodes() -> None:
    """The check fails, so something is not kept."""
    found = validated(of(), burn(uses=(GpuUse(uuid="GPU-9", new_ecc_errors=1),)))
    assert not found.fit
    assert [part.part for part in found.parts if part.disposition is not UNDECIDED] == ["node"]


def test_a_rate_that_falls_is_of_its_gpu() -> None:
    slower = PartRate(
        **{"rank": 2, "device": "cuda:2", "part": "matmul bf16", "unit": "FLOP/s", "rounds": 99},
        **{"rate": 1e14, "change": -0.2, "change_low": -0.25, "change_high": -0.15},
    )
    assert parts(of(), burn(rates=(slower,)))[2].disposition is RETEST
    unsure = slower.model_copy(update={"change_high": 0.01})
    assert parts(of(), burn(rates=(unsure,)))[2].disposition is UNDECIDED


def test_gpus_that_do_not_answer_are_named_and_rebooted() -> None:
    facts = of()
    assert facts.driver is not None
    lost = facts.driver.model_copy(update={"unreadable": ("GPU at 0000:c1:00.0",)})
    log = KernelLogFacts(messages=(message(79, "0000:c1:00"), message(79, "0000:d1:00")))
    found = validated(facts.model_copy(update={"driver": lost, "kernel": log})).parts
    others = [part for part in found if part.disposition is not UNDECIDED]
    assert [part.part for part in others] == ["GPU at 0000:c1:00.0", "GPU at 0000:d1:00"]
    assert {part.action.partition(";")[0] for part in others} == {"reboot the node"}


def test_what_fails_of_the_set_up_is_tested_again_and_never_returned() -> None:
    broken = DiskFacts(path="/data", error="Read-only file system")
    found = validated(of().model_copy(update={"disk": broken}))
    (failing,) = (part for part in found.parts if part.disposition is not UNDECIDED)
    assert failing.part == "node"
    assert failing.disposition is RETEST
    assert failing.action.endswith("; validate again")


def test_no_part_is_kept_beside_a_failed_check() -> None:
    """Of any failure of the checks, some part is not kept."""
    for facts in (
        of(remapping_failed=True),
        of(ecc_uncorrected=1),
        of(log=(message(54, "0000:1d:00"),)),
        of(log=(message(20034, "0000:05:00.0", kind="sxid", text="Fatal"),)),
        of().model_copy(update={"software": None}),
        of().model_copy(update={"driver": DriverFacts(error="no answer")}),
    ):
        found = validated(facts)
        assert found.fit or any(part.disposition is not UNDECIDED for part in found.parts)


def test_wrong_results_that_were_not_kept_may_be_of_any_gpu() -> None:
    more = burn((wrong("memory", 1),)).model_copy(update={"wrong_results": 5})
    first = "wrong results of the burn-in after the first 1"
    assert validated(of(), more).unseen == (first, NO_SPEEDS)


def test_what_was_not_looked_at_is_said() -> None:
    blind = of().model_copy(update={"kernel": KernelLogFacts(error="Operation not permitted")})
    assert [text.partition(" (")[0] for text in validated(blind).unseen] == [
        "burn-in: not asked for",
        "the kernel's log: not readable",
        "speeds: not asked for",
    ]
    assert validated(node(0)).unseen == ("burn-in: not asked for (--burn-in 10m)", NO_SPEEDS)


def test_a_gpu_far_slower_than_its_peers_is_returned_and_the_node_kept() -> None:
    run = a_run(eight_gpus(np.random.default_rng(1), {2: 0.8}))
    acceptance = Acceptance(run=run)
    validation = validate_facts(of(), Requirements(), None, acceptance, policy=MEMORY)
    found = {part.gpu: part for part in validation.parts}
    assert found[2].disposition is RETURN
    assert found[2].action == "replace the GPU"
    assert found[None].disposition is KEEP
    assert found[1].disposition is KEEP
    assert not validation.fit


def test_a_quota_is_a_matter_of_the_node_and_its_set_up() -> None:
    rng = np.random.default_rng(2)
    key = ("training", "node")
    baseline = baseline_of(a_run({key: noisy(rng, 9.0, 8)}))
    held = [Conditions(foreign_share=0.0, quota_cpus=1.7, held_back_share=0.15)] * 8
    run = a_run({key: noisy(rng, 7.0, 8)}, conditions=held)
    validation = validate_facts(of(), Requirements(), None, Acceptance(run=run, baseline=baseline))
    part = validation.parts[-1]
    assert part.disposition is RETEST
    assert part.action == "raise the CPU quota of the container or job; validate again"
    assert part.reasons[0].endswith("(set-up)")
