"""What to do with each GPU and with the node: keep it, mend and test it again, return it, or measure
what is missing.

Return is said of what no reset, reboot or setting mends: a row of memory that could not be remapped
(NVIDIA's rules on memory errors, docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt), and a device that
computed wrong in two rounds or more of a burn-in, of which one may be a cosmic ray. All else is
tested again after its action, and returned if it comes back. What has no fault is kept where all is
there that the policy asks for, else undecided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchscale.catalog.xids import GpuAction
from torchscale.features.validate.acceptance.asked import asked_for
from torchscale.features.validate.acceptance.verdict import (
    GROUP,
    SpeedReason,
    missing_speeds,
    speed_reasons,
)
from torchscale.features.validate.health.answer import gravest
from torchscale.features.validate.health.gpu import gpu_name
from torchscale.features.validate.health.gpu_reasons import (
    OF_PROGRAMS,
    PartReason,
    burned_device,
    reasons_of_gpu,
    strained,
    wrong_results,
)
from torchscale.features.validate.health.kernel_log import action_of, gpu_at, said
from torchscale.features.validate.health.rule import gpus_of
from torchscale.schema.node.acceptance import Acceptance
from torchscale.schema.node.burn_in import BurnIn
from torchscale.schema.node.check import Check, Status
from torchscale.schema.node.environment import bare_uuid
from torchscale.schema.node.policy import Policy
from torchscale.schema.node.probe import GpuFacts, NodeFacts
from torchscale.schema.node.validation import Disposition, PartVerdict

NODE = "node"
_AGAIN = "; validate again, and return it if this comes back"
_AGAIN_NODE = "; validate again"
"""What fails of a whole node is more often its set-up than its host."""
_GPU_CHECKS = frozenset(
    {
        "gpus",
        "gpu_errors",
        "gpu_ecc",
        "gpu_throttling",
        "gpu_temperature",
        "gpu_pcie",
        "burn_in_results",
        "burn_in_throughput",
        "burn_in_gpus",
    }
)
"""Checks whose faults are told by GPU here, not once more of the node."""


def part_verdicts(
    facts: NodeFacts,
    checks: Sequence[Check],
    burn_in: BurnIn | None,
    acceptance: Acceptance | None,
    policy: Policy,
) -> tuple[PartVerdict, ...]:
    """A verdict on each GPU that the driver lists, on each that it lost, on links that are not kept,
    and on the node.

    Args:
        facts: Of the node, each GPU with torch's index.
        checks: All checks on these facts.
        burn_in: What a burn-in saw; ``None`` without one.
        acceptance: The judged figures of rounds; ``None`` without them.
        policy: What *keep* asks for.
    """
    gpus = gpus_of(facts)
    speeds = _Speeds(acceptance, gpus, policy.return_percent)
    asked = asked_for(policy, acceptance, burn_in, kernel_log=has_kernel_log(facts))
    missing = [
        PartReason(each.reason, each.action, Disposition.UNDECIDED)
        for each in asked
        if not each.is_met
    ]
    verdicts = [
        _verdict(
            gpu_name(gpu),
            [*reasons_of_gpu(gpu, facts, burn_in), *speeds.of_gpu(gpu), *missing],
            gpu,
        )
        for gpu in gpus
    ]
    verdicts += [_verdict(name, [reason], None) for name, reason in _lost(facts)]
    verdicts += [_verdict(f"link {link}", found, None) for link, found in speeds.of_links().items()]
    of_node = [*_reasons_of_node(facts, checks, burn_in), *speeds.of_node(), *missing]
    verdicts.append(_verdict(NODE, of_node, None))
    return tuple(verdicts)


def unseen(
    facts: NodeFacts, burn_in: BurnIn | None, acceptance: Acceptance | None = None
) -> tuple[str, ...]:
    """What no verdict rests on, because it was not looked at."""
    missing = []
    if burn_in is None or burn_in.rounds == 0:
        missing.append("burn-in: not asked for (--burn-in 10m)")
    elif burn_in.wrong_results > len(burn_in.wrong):
        missing.append(f"wrong results of the burn-in after the first {len(burn_in.wrong)}")
    if not has_kernel_log(facts):
        missing.append("the kernel's log: not readable (run as root on the host)")
    if acceptance is None:
        missing.append("speeds: not asked for (--acceptance)")
    else:
        missing += missing_speeds(acceptance)
    return tuple(missing)


def has_kernel_log(facts: NodeFacts) -> bool:
    """Whether the kernel's log was read, or there is no GPU that it could name."""
    return not gpus_of(facts) or (facts.kernel is not None and facts.kernel.error is None)


class _Speeds:
    """Reasons from the figures of an acceptance, by part."""

    def __init__(
        self, acceptance: Acceptance | None, gpus: Sequence[GpuFacts], return_percent: float
    ) -> None:
        self._known = {bare_uuid(gpu.uuid or "") for gpu in gpus}
        self._reasons: list[SpeedReason] = []
        self._measured: set[str] = set()
        if acceptance is not None:
            self._reasons = list(speed_reasons(acceptance, return_percent))
            self._measured = {uuid for it in acceptance.run.series for uuid in it.uuids}

    def of_gpu(self, gpu: GpuFacts) -> list[PartReason]:
        """Of a GPU that the driver lists."""
        uuid = bare_uuid(gpu.uuid or "")
        found = [_as_reason(each) for each in self._reasons if uuid and each.uuid == uuid]
        if self._measured and gpu.cuda_index is not None and uuid not in self._measured:
            because = "the acceptance has no figure of it"
            found.append(PartReason(because, "measure again", Disposition.UNDECIDED))
        return found

    def of_links(self) -> dict[str, list[PartReason]]:
        """Of links, by name."""
        found: dict[str, list[PartReason]] = {}
        for each in self._reasons:
            if each.part:
                found.setdefault(each.part, []).append(_as_reason(each))
        return found

    def of_node(self) -> list[PartReason]:
        """Of the node, and of devices that the driver does not list."""
        return [
            _as_reason(each)
            for each in self._reasons
            if not each.part and each.uuid not in self._known - {""}
        ]


def _as_reason(found: SpeedReason) -> PartReason:
    return PartReason(found.because, found.action, found.disposition)


def _verdict(name: str, reasons: list[PartReason], gpu: GpuFacts | None) -> PartVerdict:
    """The gravest disposition, with its actions; the other reasons are kept, but for what is missing
    of a part that has a fault."""
    worst = gravest([reason.disposition for reason in reasons])
    if worst is not Disposition.UNDECIDED:
        reasons = [each for each in reasons if each.disposition is not Disposition.UNDECIDED]
    actions = dict.fromkeys(reason.action for reason in reasons if reason.disposition is worst)
    action = "; ".join(actions)
    if worst is Disposition.RETEST:
        action += _AGAIN_NODE if name == NODE else _AGAIN
    return PartVerdict(
        part=name,
        gpu=gpu.index if gpu is not None else None,
        uuid=gpu.uuid if gpu is not None else None,
        disposition=worst,
        action=action,
        reasons=tuple(reason.because for reason in reasons),
    )


def _lost(facts: NodeFacts) -> Iterator[tuple[str, PartReason]]:
    """GPUs that the driver counts and cannot reach, and those of the kernel's log that it does not
    even list."""
    if facts.driver is not None:
        for text in facts.driver.unreadable:
            yield text, PartReason("the driver cannot reach it", GpuAction.REBOOT.value)
    messages = facts.kernel.messages if facts.kernel is not None else ()
    known = " ".join(facts.driver.unreadable).lower() if facts.driver is not None else ""
    for message in messages:
        listed = gpu_at(message.pci_address, gpus_of(facts)) is not None
        if message.kind != "xid" or listed or message.pci_address in known:
            continue
        action = action_of(message)
        if action not in OF_PROGRAMS:
            yield f"GPU at {message.pci_address}", PartReason(said(message), action.value)


def _reasons_of_node(
    facts: NodeFacts, checks: Sequence[Check], burn_in: BurnIn | None
) -> Iterator[PartReason]:
    """Failed checks that are of no single GPU, switches, and wrong results of CPUs, or of a device
    that is none of the GPUs that the driver lists."""
    for check in checks:
        named = check.group == GROUP or (check.id in _GPU_CHECKS and gpus_of(facts))
        if check.status is Status.FAIL and not named and check.id != "burn_in_results":
            yield PartReason(f"{check.title}: {check.seen}", check.advice or f"mend {check.title}")
    messages = facts.kernel.messages if facts.kernel is not None else ()
    for message in messages:
        action = action_of(message)
        if message.kind == "sxid" and action not in OF_PROGRAMS:
            yield PartReason(f"NVSwitch {message.pci_address}: {said(message)}", action.value)
    if burn_in is not None:
        of_gpus = {burned_device(gpu) for gpu in gpus_of(facts)}
        yield from wrong_results([wrong for wrong in burn_in.wrong if wrong.device not in of_gpus])
        listed = {bare_uuid(gpu.uuid or "") for gpu in gpus_of(facts)}
        for use in burn_in.gpus:
            if bare_uuid(use.uuid) not in listed:
                yield from strained(use)
        if burn_in.error is not None:
            yield PartReason(f"the burn-in ended early: {burn_in.error}", "see its error")
