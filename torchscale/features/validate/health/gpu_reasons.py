"""Why a GPU is not simply kept: its memory, the kernel's log, its lanes and links, heat, and the
burn-in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torchscale.catalog.xids import GpuAction
from torchscale.features.validate.health.burn_in_checks import MAX_LOSS, MAX_THROTTLED_SHARE
from torchscale.features.validate.health.gpu import HOT_CELSIUS
from torchscale.features.validate.health.kernel_log import action_of, gpu_at, said
from torchscale.features.validate.health.rule import gpus_of
from torchscale.schema.launch.telemetry import GpuUse
from torchscale.schema.node.burn_in import BurnIn, PartRate, WrongResult
from torchscale.schema.node.environment import bare_uuid
from torchscale.schema.node.probe import GpuFacts, NodeFacts
from torchscale.schema.node.validation import Disposition

_OF_THE_DEVICE = ("matmul", "memory")
"""Parts of a burn-in that a device does alone. A copy and an all-reduce also pass the host's memory
and links."""
_CERTAIN_ROUNDS = 2
OF_PROGRAMS = (GpuAction.NOTHING, GpuAction.RESTART_PROGRAM)
"""What a program may have caused that ran on the GPU."""


@dataclass(frozen=True)
class PartReason:
    """Why a part is not simply kept: what was seen, and what to do first."""

    because: str
    action: str
    disposition: Disposition = Disposition.RETEST


def reasons_of_gpu(gpu: GpuFacts, facts: NodeFacts, burn_in: BurnIn | None) -> Iterator[PartReason]:
    """Of one GPU: memory, the kernel's log, its lanes and links, heat, the burn-in."""
    yield from _memory(gpu)
    yield from _logged(gpu, facts)
    yield from _joined(gpu, facts)
    if gpu.throttle_reasons:
        because = f"lowers its clocks at rest: {', '.join(gpu.throttle_reasons)}"
        yield PartReason(because, "check cooling and power")
    if (gpu.temperature_celsius or 0) > HOT_CELSIUS:
        yield PartReason(f"{gpu.temperature_celsius} °C at rest", "check cooling")
    if burn_in is not None:
        yield from _burned(gpu, burn_in)


def _memory(gpu: GpuFacts) -> Iterator[PartReason]:
    if gpu.remapping_failed:
        because = "a row of memory could not be remapped"
        yield PartReason(because, GpuAction.REPLACE.value, Disposition.RETURN)
    if gpu.ecc_uncorrected:
        because = f"uncorrected memory errors since the driver was loaded: {gpu.ecc_uncorrected}"
        yield PartReason(because, GpuAction.RESET.value)
    if gpu.remapping_pending:
        because = "remapping of memory rows is pending"
        yield PartReason(because, GpuAction.RESET.value)
    if gpu.ecc_enabled is False:
        because = "ECC is off: memory errors would not be seen"
        yield PartReason(because, "turn ECC on (nvidia-smi -e 1) and reset the GPU")


def _logged(gpu: GpuFacts, facts: NodeFacts) -> Iterator[PartReason]:
    messages = facts.kernel.messages if facts.kernel is not None else ()
    for message in messages:
        action = action_of(message)
        mine = message.kind == "xid" and gpu_at(message.pci_address, [gpu]) is not None
        if not mine or action in OF_PROGRAMS:
            continue
        disposition = Disposition.RETEST
        if action is GpuAction.REPLACE:
            disposition = Disposition.RETURN
        yield PartReason(said(message), action.value, disposition)


def _joined(gpu: GpuFacts, facts: NodeFacts) -> Iterator[PartReason]:
    if gpu.pcie_width and gpu.pcie_width_max and gpu.pcie_width < gpu.pcie_width_max:
        because = f"PCIe x{gpu.pcie_width} of x{gpu.pcie_width_max}"
        yield PartReason(because, "reseat the card or its riser")
    peers = [other.nvlinks_active for other in gpus_of(facts) if other.name == gpu.name]
    usual = Counter(count for count in peers if count is not None).most_common(1)
    if gpu.nvlinks_active is not None and usual and gpu.nvlinks_active < usual[0][0]:
        because = f"{gpu.nvlinks_active} NVLinks, its peers have {usual[0][0]}"
        yield PartReason(
            because, "check the NVLinks (nvidia-smi nvlink --status) and reset the GPU"
        )


def _burned(gpu: GpuFacts, burn_in: BurnIn) -> Iterator[PartReason]:
    device = burned_device(gpu)
    yield from wrong_results([wrong for wrong in burn_in.wrong if wrong.device == device])
    yield from _slowing([rate for rate in burn_in.rates if rate.device == device])
    for use in burn_in.gpus:
        if bare_uuid(use.uuid) == bare_uuid(gpu.uuid or ""):
            yield from strained(use)


def strained(use: GpuUse) -> Iterator[PartReason]:
    """What the driver reported of a GPU during the burn-in."""
    if use.new_ecc_errors:
        because = f"new uncorrected memory errors in the burn-in: {use.new_ecc_errors}"
        yield PartReason(because, GpuAction.RESET.value)
    if (use.throttled_share or 0) > MAX_THROTTLED_SHARE:
        because = f"lowered its clocks in the burn-in: {', '.join(use.throttle_reasons or ())}"
        yield PartReason(because, "check cooling and power")


def burned_device(gpu: GpuFacts) -> str | None:
    """As the burn-in names it; ``None`` where torch may not use it."""
    if gpu.cuda_index is None:
        return None
    return f"cuda:{gpu.cuda_index}"


def wrong_results(found: Sequence[WrongResult]) -> Iterator[PartReason]:
    """Wrong results of one device."""
    own = [wrong for wrong in found if wrong.part.startswith(_OF_THE_DEVICE)]
    rounds = {wrong.round for wrong in own}
    if len(rounds) >= _CERTAIN_ROUNDS:
        because = f"computed wrong in {len(rounds)} rounds of the burn-in"
        yield PartReason(because, "replace it", Disposition.RETURN)
    elif rounds:
        because = f"computed wrong in one round of the burn-in ({own[0].part})"
        yield PartReason(because, "burn in for longer")
    if len(found) > len(own):
        parts = dict.fromkeys(wrong.part for wrong in found if wrong not in own)
        because = f"wrong data in the burn-in: {', '.join(parts)}"
        yield PartReason(because, "test the host's memory, reseat the card, check its links")


def _slowing(rates: Sequence[PartRate]) -> Iterator[PartReason]:
    for rate in rates:
        lost = rate.change is not None and rate.change < -MAX_LOSS
        if lost and rate.change_high is not None and rate.change_high < 0:
            because = f"{rate.part} became slower in the burn-in"
            yield PartReason(because, "check cooling, power and other processes")
