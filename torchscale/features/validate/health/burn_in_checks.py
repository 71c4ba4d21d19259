"""Checks of a burn-in: results, rates, and what the GPUs did meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.features.validate.health import fixes
from torchscale.features.validate.health.burn_in import MIN_BLOCKS
from torchscale.features.validate.health.rule import (
    RuleOutcome,
    failed,
    gpus_of,
    not_applicable,
    passed,
    warned,
)
from torchscale.schema.launch.telemetry import GpuUse
from torchscale.schema.node.burn_in import BurnIn, PartRate
from torchscale.schema.node.check import Check
from torchscale.schema.node.environment import bare_uuid
from torchscale.schema.node.probe import GpuFacts, NodeFacts
from torchscale.util.interval_text import format_ends
from torchscale.util.units import format_change, format_percent, format_seconds

MAX_LOSS = 0.05
"""A GPU that warms up loses 1 to 3 % of its clock; more comes from cooling, power or another
load."""
MAX_THROTTLED_SHARE = 0.05
"""A single reading may show a short reason; a twentieth of the time is a condition."""


def burn_in_checks(burn_in: BurnIn, facts: NodeFacts) -> list[Check]:
    """Whether every result was exact, rates held, and GPUs kept their clocks and had no memory
    errors."""
    return [
        _results(burn_in, facts).check("burn_in_results", "burn-in", "results"),
        _throughput(burn_in, facts).check("burn_in_throughput", "burn-in", "throughput over time"),
        _gpus(burn_in, facts).check("burn_in_gpus", "burn-in", "GPUs meanwhile"),
    ]


def _results(burn_in: BurnIn, facts: NodeFacts) -> RuleOutcome:
    ran = (
        f"{burn_in.rounds:,} rounds on {burn_in.world_size} ranks in "
        f"{format_seconds(burn_in.seconds)}"
    )
    if burn_in.product_share is not None:
        ran += f", {format_percent(burn_in.product_share, 0)} of it in products"
    if burn_in.wrong:
        first = burn_in.wrong[0]
        where = ""
        if first.first is not None:
            value = first.first
            where = (
                f", first at offset {value.offset_bytes} (address {value.address:#x}): {value.seen}"
            )
            where += f" instead of {value.expected}"
        seen = (
            f"{burn_in.wrong_results:,} wrong parts, the first: {first.part} on rank {first.rank} "
            f"({first.device}), "
        )
        seen += f"round {first.round}, {first.wrong:,} elements{where}; {ran}"
        advice = "do not train on this device; check its memory (ECC), and test the host's memory"
        return failed(seen, "every bit right", advice, fixes.wrong_sums(gpus_of(facts)))
    if burn_in.error is not None:
        advice = "see the error; run it for a shorter time or with fewer devices to find which"
        return failed(f"{burn_in.error}; {ran}", "a run to its end", advice, fixes.DRIVER_BROKEN)
    if burn_in.rounds == 0:
        return not_applicable("ended before the first round")
    if burn_in.interrupted:
        return passed(f"every bit right; {ran}, interrupted")
    return passed(f"every bit right; {ran}")


def _throughput(burn_in: BurnIn, facts: NodeFacts) -> RuleOutcome:
    known = [(rate, rate.change) for rate in burn_in.rates if rate.change is not None]
    if not known:
        return not_applicable(f"a trend needs at least {MIN_BLOCKS} rounds")
    slower = [
        rate
        for rate, change in known
        if change < -MAX_LOSS and rate.change_high is not None and rate.change_high < 0
    ]
    if slower:
        seen = "; ".join(_trend_text(rate) for rate in slower[:8])
        commands = fixes.gpu_commands(gpus_of(facts), *fixes.PERFORMANCE) or fixes.CPU_LOAD
        advice = "check cooling, power and other processes: the rate does not hold"
        return warned(seen, f"a loss of at most {format_percent(MAX_LOSS, 0)}", advice, commands)
    return passed(f"largest loss: {_trend_text(min(known, key=lambda it: it[1])[0])}")


def _gpus(burn_in: BurnIn, facts: NodeFacts) -> RuleOutcome:
    if not burn_in.gpus:
        return not_applicable("no GPU that the driver reports on")
    gpus = gpus_of(facts)
    faulty = [use for use in burn_in.gpus if use.new_ecc_errors]
    if faulty:
        seen = ", ".join(
            f"{use.uuid}: {use.new_ecc_errors} new uncorrected errors" for use in faulty
        )
        advice = "drain the node; reset or replace the GPU"
        return failed(seen, "none", advice, fixes.gpu_commands(gpus, *fixes.ECC_RESET))
    slow = [use for use in burn_in.gpus if (use.throttled_share or 0) > MAX_THROTTLED_SHARE]
    if slow:
        seen = "; ".join(
            f"{use.uuid}: {', '.join(use.throttle_reasons or ())} for "
            f"{format_percent(use.throttled_share or 0, 0)} of the time"
            for use in slow
        )
        return warned(
            seen,
            "none",
            "check cooling and power",
            fixes.gpu_commands(gpus, *fixes.PERFORMANCE),
        )
    peaks = [
        use.temperature_peak_celsius
        for use in burn_in.gpus
        if use.temperature_peak_celsius is not None
    ]
    seen = "no new ECC errors, no throttling"
    if peaks:
        seen += f", at most {max(peaks):.0f} °C"
    return passed(seen + _power_text(burn_in.gpus, gpus))


def _power_text(uses: Sequence[GpuUse], gpus: Sequence[GpuFacts]) -> str:
    """Mean power of the GPU that drew the least of its limit; empty where NVML does not give
    both."""
    limits = {bare_uuid(gpu.uuid): gpu.power_limit_watts for gpu in gpus if gpu.uuid is not None}
    known = []
    for use in uses:
        limit = limits.get(bare_uuid(use.uuid))
        if use.power_watts is not None and limit:
            known.append((use.power_watts / limit, use.power_watts, limit))
    if not known:
        return ""
    share, watts, limit = min(known)
    least = f"{watts:.0f} of {limit:.0f} W"
    if len(known) == 1:
        return f", mean power {least} ({format_percent(share, 0)})"
    return f", mean power of each GPU at least {least} ({format_percent(share, 0)})"


def _trend_text(rate: PartRate) -> str:
    text = f"{rate.part} on rank {rate.rank} {format_change(rate.change or 0)}"
    if rate.change_low is None or rate.change_high is None:
        return text
    ends = format_ends(format_change(rate.change_low), format_change(rate.change_high))
    return f"{text} (95 % interval {ends})"
