"""What to do with each GPU and with the node: keep it, mend and test it again, or return it.

Return is said of what no reset, reboot or setting mends: a row of memory that could not be remapped
(NVIDIA's rules on memory errors, docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt), and a device that
computed wrong in two rounds or more of a burn-in, of which one may be a cosmic ray. All else is
tested again after its action, and returned if it comes back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torchscale.catalog.xids import GpuAction
from torchscale.features.validate.acceptance.verdict import (
    GROUP,
    SpeedReason,
    missing_speeds,
    speed_reasons,
)
from torchscale.features.validate.health.burn_in import MAX_LOSS, MAX_THROTTLED_SHARE
from torchscale.features.validate.health.gpu import HOT_CELSIUS, gpu_name
from torchscale.features.validate.health.kernel_log import action_of, gpu_at, said
from torchscale.features.validate.health.rule import gpus_of
from torchscale.schema.launch.telemetry import GpuUse
from torchscale.schema.node.acceptance import Acceptance
from torchscale.schema.node.burn_in import BurnIn, PartRate, WrongResult
from torchscale.schema.node.check import Check, Status
from torchscale.schema.node.environment import bare_uuid
from torchscale.schema.node.probe import GpuFacts, NodeFacts
from torchscale.schema.node.validation import Disposition, PartVerdict

NODE = "node"
_AGAIN = "; validate again, and return it if this comes back"
_AGAIN_NODE = "; validate again"
"""What fails of a whole node is more often its set-up than its host."""
_OF_THE_DEVICE = ("matmul", "memory")
"""Parts of a burn-in that a device does alone. A copy and an all-reduce also pass the host's memory
and links."""
_CERTAIN_ROUNDS = 2
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
_OF_PROGRAMS = (GpuAction.NOTHING, GpuAction.RESTART_PROGRAM)


@dataclass(frozen=True)
class _Reason:
    """Why a part is not simply kept: what was seen, and what to do first."""

    because: str
    action: str
    disposition: Disposition = Disposition.RETEST


def part_verdicts(
    facts: NodeFacts,
    checks: Sequence[Check],
    burn_in: BurnIn | None,
    acceptance: Acceptance | None = None,
) -> tuple[PartVerdict, ...]:
    """A verdict on each GPU that the driver lists, on each that it lost, on links that are not kept,
    and on the node.

    Args:
        facts: Of the node, each GPU with torch's index.
        checks: All checks on these facts.
        burn_in: What a burn-in saw; ``None`` without one.
        acceptance: The judged figures of rounds; ``None`` without them.
    """
    gpus = gpus_of(facts)
    speeds = _Speeds(acceptance, gpus)
    verdicts = [
        _verdict(gpu_name(gpu), [*_reasons_of(gpu, facts, burn_in), *speeds.of_gpu(gpu)], gpu)
        for gpu in gpus
    ]
    verdicts += [_verdict(name, [reason], None) for name, reason in _lost(facts)]
    verdicts += [_verdict(f"link {link}", found, None) for link, found in speeds.of_links().items()]
    of_node = [*_reasons_of_node(facts, checks, burn_in), *speeds.of_node()]
    verdicts.append(_verdict(NODE, of_node, None))
    return tuple(verdicts)


def unseen(
    facts: NodeFacts, burn_in: BurnIn | None, acceptance: Acceptance | None = None
) -> tuple[str, ...]:
    """What no verdict rests on, because it was not looked at."""
    missing = []
    if burn_in is None or burn_in.rounds == 0:
        missing.append("burn-in (--burn-in 10m)")
    elif burn_in.wrong_results > len(burn_in.wrong):
        missing.append(f"wrong results of the burn-in after the first {len(burn_in.wrong)}")
    if gpus_of(facts) and (facts.kernel is None or facts.kernel.error is not None):
        missing.append("the kernel's log (run as root on the host)")
    if acceptance is not None:
        missing += missing_speeds(acceptance)
    return tuple(missing)


class _Speeds:
    """Reasons from the figures of an acceptance, by part."""

    def __init__(self, acceptance: Acceptance | None, gpus: Sequence[GpuFacts]) -> None:
        self._known = {bare_uuid(gpu.uuid or "") for gpu in gpus}
        self._reasons: list[SpeedReason] = []
        self._measured: set[str] = set()
        if acceptance is not None:
            self._reasons = list(speed_reasons(acceptance))
            self._measured = {uuid for it in acceptance.run.series for uuid in it.uuids}

    def of_gpu(self, gpu: GpuFacts) -> list[_Reason]:
        """Of a GPU that the driver lists."""
        uuid = bare_uuid(gpu.uuid or "")
        found = [_as_reason(each) for each in self._reasons if uuid and each.uuid == uuid]
        if self._measured and gpu.cuda_index is not None and uuid not in self._measured:
            found.append(_Reason("the acceptance has no figure of it", "measure again"))
        return found

    def of_links(self) -> dict[str, list[_Reason]]:
        """Of links, by name."""
        found: dict[str, list[_Reason]] = {}
        for each in self._reasons:
            if each.part:
                found.setdefault(each.part, []).append(_as_reason(each))
        return found

    def of_node(self) -> list[_Reason]:
        """Of the node, and of devices that the driver does not list."""
        return [
            _as_reason(each)
            for each in self._reasons
            if not each.part and each.uuid not in self._known - {""}
        ]


def _as_reason(found: SpeedReason) -> _Reason:
    return _Reason(found.because, found.action, found.disposition)


def _verdict(name: str, reasons: list[_Reason], gpu: GpuFacts | None) -> PartVerdict:
    """The gravest disposition, with its actions; the other reasons are kept."""
    worst = max((reason.disposition for reason in reasons), key=_gravity, default=Disposition.KEEP)
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


def _gravity(disposition: Disposition) -> int:
    return list(Disposition).index(disposition)


def _reasons_of(gpu: GpuFacts, facts: NodeFacts, burn_in: BurnIn | None) -> Iterator[_Reason]:
    """Of one GPU: memory, the kernel's log, its lanes and links, heat, the burn-in."""
    yield from _memory(gpu)
    yield from _logged(gpu, facts)
    yield from _joined(gpu, facts)
    if gpu.throttle_reasons:
        because = f"lowers its clocks at rest: {', '.join(gpu.throttle_reasons)}"
        yield _Reason(because, "check cooling and power")
    if (gpu.temperature_celsius or 0) > HOT_CELSIUS:
        yield _Reason(f"{gpu.temperature_celsius} °C at rest", "check cooling")
    if burn_in is not None:
        yield from _burned(gpu, burn_in)


def _memory(gpu: GpuFacts) -> Iterator[_Reason]:
    if gpu.remapping_failed:
        because = "a row of memory could not be remapped"
        yield _Reason(because, GpuAction.REPLACE.value, Disposition.RETURN)
    if gpu.ecc_uncorrected:
        because = f"uncorrected memory errors since the driver was loaded: {gpu.ecc_uncorrected}"
        yield _Reason(because, GpuAction.RESET.value)
    if gpu.remapping_pending:
        because = "remapping of memory rows is pending"
        yield _Reason(because, GpuAction.RESET.value)
    if gpu.ecc_enabled is False:
        because = "ECC is off: memory errors would not be seen"
        yield _Reason(because, "turn ECC on (nvidia-smi -e 1) and reset the GPU")


def _logged(gpu: GpuFacts, facts: NodeFacts) -> Iterator[_Reason]:
    messages = facts.kernel.messages if facts.kernel is not None else ()
    for message in messages:
        action = action_of(message)
        mine = message.kind == "xid" and gpu_at(message.pci_address, [gpu]) is not None
        if not mine or action in _OF_PROGRAMS:
            continue
        disposition = Disposition.RETEST
        if action is GpuAction.REPLACE:
            disposition = Disposition.RETURN
        yield _Reason(said(message), action.value, disposition)


def _joined(gpu: GpuFacts, facts: NodeFacts) -> Iterator[_Reason]:
    if gpu.pcie_width and gpu.pcie_width_max and gpu.pcie_width < gpu.pcie_width_max:
        because = f"PCIe x{gpu.pcie_width} of x{gpu.pcie_width_max}"
        yield _Reason(because, "reseat the card or its riser")
    peers = [other.nvlinks_active for other in gpus_of(facts) if other.name == gpu.name]
    usual = Counter(count for count in peers if count is not None).most_common(1)
    if gpu.nvlinks_active is not None and usual and gpu.nvlinks_active < usual[0][0]:
        because = f"{gpu.nvlinks_active} NVLinks, its peers have {usual[0][0]}"
        yield _Reason(because, "check the NVLinks (nvidia-smi nvlink --status) and reset the GPU")


def _burned(gpu: GpuFacts, burn_in: BurnIn) -> Iterator[_Reason]:
    device = _device(gpu)
    yield from _wrong([wrong for wrong in burn_in.wrong if wrong.device == device])
    yield from _slowing([rate for rate in burn_in.rates if rate.device == device])
    for use in burn_in.gpus:
        if bare_uuid(use.uuid) == bare_uuid(gpu.uuid or ""):
            yield from _strained(use)


def _strained(use: GpuUse) -> Iterator[_Reason]:
    """What the driver reported of a GPU during the burn-in."""
    if use.new_ecc_errors:
        because = f"new uncorrected memory errors in the burn-in: {use.new_ecc_errors}"
        yield _Reason(because, GpuAction.RESET.value)
    if (use.throttled_share or 0) > MAX_THROTTLED_SHARE:
        because = f"lowered its clocks in the burn-in: {', '.join(use.throttle_reasons or ())}"
        yield _Reason(because, "check cooling and power")


def _device(gpu: GpuFacts) -> str | None:
    """As the burn-in names it; ``None`` where torch may not use it."""
    if gpu.cuda_index is None:
        return None
    return f"cuda:{gpu.cuda_index}"


def _wrong(found: Sequence[WrongResult]) -> Iterator[_Reason]:
    """Wrong results of one device."""
    own = [wrong for wrong in found if wrong.part.startswith(_OF_THE_DEVICE)]
    rounds = {wrong.round for wrong in own}
    if len(rounds) >= _CERTAIN_ROUNDS:
        because = f"computed wrong in {len(rounds)} rounds of the burn-in"
        yield _Reason(because, "replace it", Disposition.RETURN)
    elif rounds:
        because = f"computed wrong in one round of the burn-in ({own[0].part})"
        yield _Reason(because, "burn in for longer")
    if len(found) > len(own):
        parts = dict.fromkeys(wrong.part for wrong in found if wrong not in own)
        because = f"wrong data in the burn-in: {', '.join(parts)}"
        yield _Reason(because, "test the host's memory, reseat the card, check its links")


def _slowing(rates: Sequence[PartRate]) -> Iterator[_Reason]:
    for rate in rates:
        lost = rate.change is not None and rate.change < -MAX_LOSS
        if lost and rate.change_high is not None and rate.change_high < 0:
            because = f"{rate.part} became slower in the burn-in"
            yield _Reason(because, "check cooling, power and other processes")


def _lost(facts: NodeFacts) -> Iterator[tuple[str, _Reason]]:
    """GPUs that the driver counts and cannot reach, and those of the kernel's log that it does not
    even list."""
    if facts.driver is not None:
        for text in facts.driver.unreadable:
            yield text, _Reason("the driver cannot reach it", GpuAction.REBOOT.value)
    messages = facts.kernel.messages if facts.kernel is not None else ()
    known = " ".join(facts.driver.unreadable).lower() if facts.driver is not None else ""
    for message in messages:
        listed = gpu_at(message.pci_address, gpus_of(facts)) is not None
        if message.kind != "xid" or listed or message.pci_address in known:
            continue
        action = action_of(message)
        if action not in _OF_PROGRAMS:
            yield f"GPU at {message.pci_address}", _Reason(said(message), action.value)


def _reasons_of_node(
    facts: NodeFacts, checks: Sequence[Check], burn_in: BurnIn | None
) -> Iterator[_Reason]:
    """Failed checks that are of no single GPU, switches, and wrong results of CPUs, or of a device
    that is none of the GPUs that the driver lists."""
    for check in checks:
        named = check.group == GROUP or (check.id in _GPU_CHECKS and gpus_of(facts))
        if check.status is Status.FAIL and not named and check.id != "burn_in_results":
            yield _Reason(f"{check.title}: {check.seen}", check.advice or f"mend {check.title}")
    messages = facts.kernel.messages if facts.kernel is not None else ()
    for message in messages:
        action = action_of(message)
        if message.kind == "sxid" and action not in _OF_PROGRAMS:
            yield _Reason(f"NVSwitch {message.pci_address}: {said(message)}", action.value)
    if burn_in is not None:
        of_gpus = {_device(gpu) for gpu in gpus_of(facts)}
        yield from _wrong([wrong for wrong in burn_in.wrong if wrong.device not in of_gpus])
        listed = {bare_uuid(gpu.uuid or "") for gpu in gpus_of(facts)}
        for use in burn_in.gpus:
            if bare_uuid(use.uuid) not in listed:
                yield from _strained(use)
        if burn_in.error is not None:
            yield _Reason(f"the burn-in ended early: {burn_in.error}", "see its error")
