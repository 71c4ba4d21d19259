"""Rules from signals to causes. Each says what it needs and abstains where that was not measured; definitions and
limits in ``docs/diagnosis.md``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from torchscale.analysis.signals import Origin, Series, Signals
from torchscale.analysis.stats import mean_interval
from torchscale.schema.finding import Abstention, Confidence, Diagnosis, Finding, FindingKind
from torchscale.units import format_bytes, format_percent, format_seconds

MIN_COMPARED = 20
MIN_SAMPLES = 3
COST_FLOOR = 0.02
"""A share of the step below which nothing is called a bottleneck."""
OWN_EXCESS = 0.03
CHARGE_FLOOR = 0.5
STEADY_SHARE = 0.5
EXPOSED_FLOOR = 0.05
IMBALANCE_FLOOR = 0.12
INPUT_FLOOR = 0.05
HOST_FLOOR = 0.10
PAUSE_FLOOR = 0.03
VARIANCE_FLOOR = 0.20
SMALL_BUCKET_BYTES = 1 << 20
BUCKET_GAIN = 1.3
SLOW_LINK_SHARE = 0.5

Judgement = Finding | str | None
"""A finding; why the rule does not judge; or nothing found."""


@dataclass(frozen=True)
class Rule:
    """One rule: what it finds, the signals it needs, how it judges given what was found before it."""

    kind: FindingKind
    needs: tuple[str, ...]
    judge: Callable[[Signals, tuple[Finding, ...]], Judgement]


def diagnose(signals: Signals) -> Diagnosis:
    """Every rule in turn; the costliest finding first."""
    findings: list[Finding] = []
    abstentions: list[Abstention] = []
    for rule in _RULES:
        missing = dict.fromkeys(_NAMES[need] for need in rule.needs if getattr(signals, need) is None)
        if missing:
            abstentions.append(Abstention(kind=rule.kind, reason=f"not measured: {', '.join(missing)}"))
            continue
        judgement = rule.judge(signals, tuple(findings))
        if isinstance(judgement, Finding):
            doubtful = not signals.trusted
            findings.append(judgement.model_copy(update={"confidence": Confidence.LOW}) if doubtful else judgement)
        elif isinstance(judgement, str):
            abstentions.append(Abstention(kind=rule.kind, reason=judgement))
    findings.sort(key=lambda finding: -finding.cost_percent)
    return Diagnosis(findings=tuple(findings), abstentions=tuple(abstentions))


def _straggler(signals: Signals, found: tuple[Finding, ...]) -> Judgement:
    """Over 20 collectives or steps: waits of ≥ 2 % of the step, own time ≥ 3 % above the median of the others with an
    interval that excludes 0, and with more than two ranks half of the charge. Then whether that can be trusted."""
    own, wait, charge = signals.own, signals.wait, signals.charge
    assert own is not None and wait is not None and charge is not None  # noqa: S101 - in `needs`
    if (refusal := _cannot_name(signals)) is not None:
        return refusal
    if own.shape[1] < MIN_SAMPLES:
        return "too few samples of each rank's own time"
    row = int(np.argmax(own.mean(axis=1)))
    others = _median_of_others(own, row)
    excess, typical = own[row] - others, float(np.mean(others))
    mean, half = mean_interval(excess.tolist())
    caused = float(charge[row] * wait.mean(axis=1).sum() / (len(own) - 1))
    late_data = sum(item.cost_seconds for item in found if item.rank == signals.ranks[row])
    cost = min(mean, caused)  # what it is late for another reason is that reason's
    slow = half is not None and mean >= OWN_EXCESS * typical and mean > half
    waited_for = cost >= COST_FLOOR * signals.step_seconds and (len(own) == 2 or charge[row] >= CHARGE_FLOOR)
    if not slow or not waited_for or mean < 0.5 * late_data:
        return None
    if (doubt := _doubt(signals, row, excess)) is not None:
        return doubt
    rank, share = signals.ranks[row], format_percent(float(charge[row]), 0)
    return Finding(
        kind=FindingKind.STRAGGLER,
        rank=rank,
        cost_percent=_percent(cost, signals),
        cost_seconds=cost,
        confidence=Confidence.HIGH,
        summary=f"rank {rank} arrives {format_seconds(mean)} late at the gradient exchange ({share} of waits); "
        f"its own work takes {format_percent(mean / typical, 0)} longer than the others'",
        evidence=(
            f"own time {format_seconds(float(own[row].mean()))} a step against {format_seconds(typical)} (median of "
            f"the others): {format_seconds(mean)} ± {format_seconds(half or 0.0)} more, over {signals.steps} steps",
            *_alone_evidence(signals, row),
            *_host_evidence(signals, row, mean),
        ),
        advice=f"compare rank {rank}'s device with the others (clocks, temperature, ECC, PCIe width, NUMA binding, "
        "other processes) and its share of the data; swap it to see whether slowness moves with the device",
    )


def _doubt(signals: Signals, row: int, excess: Series) -> str | None:
    """Why a rank that is slower in its steps is not called a straggler all the same."""
    rank, mean = signals.ranks[row], float(excess.mean())
    quarters = [float(part.mean()) for part in np.array_split(excess, 4) if len(part)]
    if min(quarters) < STEADY_SHARE * mean:  # a slow rank is slow in every part of a run
        parts = ", ".join(format_seconds(max(0.0, quarter)) for quarter in quarters)
        return f"rank {rank} is slower by itself, but not steadily: {parts} a step from quarter to quarter"
    if signals.origin is Origin.LAUNCH:
        alone = _alone(signals, row)
        if alone is None:
            return "no window without synchronisation was measured to check each rank's own compute"
        if not alone.slower:
            return (
                f"rank {rank} is {format_seconds(mean)} a step slower in training, but not without synchronisation "
                f"({format_seconds(alone.mine)} against {format_seconds(alone.others)})"
            )
    if signals.foreign is not None:
        foreign = max(0.0, float(signals.foreign[row] - np.median(np.delete(signals.foreign, row))))
        if foreign * signals.step_seconds > 0.5 * mean:
            share = format_percent(foreign, 0)
            return f"other processes took {share} more of rank {rank}'s cores; that alone can make it slow"
    return None


def _alone_evidence(signals: Signals, row: int) -> list[str]:
    alone = _alone(signals, row)
    if alone is None:
        return []
    excess = alone.mine / alone.others - 1
    return [
        f"without synchronisation {format_seconds(alone.mine)} against {format_seconds(alone.others)} a step "
        f"({'+' if excess > 0 else '−'}{format_percent(abs(excess))})"
    ]


def _host_evidence(signals: Signals, row: int, excess: float) -> list[str]:
    if signals.host_bound is None:
        return []
    host = float(signals.host_bound[row] - np.median(np.delete(signals.host_bound, row)))
    if host <= 0.5 * excess:
        return []
    where = "with the device waiting for the host" if signals.on_device else "between operators, not in them"
    return [f"{format_seconds(host)} of it are spent {where}"]


def _input_pipeline(signals: Signals, found: tuple[Finding, ...]) -> Judgement:
    del found
    data = signals.data_wait
    assert data is not None  # noqa: S101 - in `needs`
    means = data.mean(axis=1)
    advice = "give the loader more workers, prefetch and pin; keep decoding and augmentation off the training process"
    everyone = float(means.min())
    if len(data) > 1 and signals.trusted and data.shape[1] >= MIN_SAMPLES and signals.steps >= MIN_COMPARED:
        row = int(means.argmax())
        mean, half = mean_interval((data[row] - _median_of_others(data, row)).tolist())
        alone = mean > max(OWN_EXCESS * signals.step_seconds, everyone) and half is not None and mean - half > 0
        if alone:
            rank = signals.ranks[row]
            return Finding(
                kind=FindingKind.INPUT_PIPELINE,
                rank=rank,
                cost_percent=_percent(mean, signals),
                cost_seconds=mean,
                confidence=Confidence.HIGH,
                summary=f"rank {rank} waits {format_seconds(float(means[row]))} a step for data, the others "
                f"{format_seconds(float(np.median(np.delete(means, row))))}; all wait for it",
                evidence=(f"{format_seconds(mean)} ± {format_seconds(half or 0.0)} more, over {signals.steps} steps",),
                advice=f"look at rank {rank}'s storage, its shard and its loader's cores; {advice}",
            )
    if everyone < INPUT_FLOOR * signals.step_seconds:
        return None
    return Finding(
        kind=FindingKind.INPUT_PIPELINE,
        cost_percent=_percent(everyone, signals),
        cost_seconds=everyone,
        confidence=Confidence.HIGH if signals.steps >= MIN_COMPARED else Confidence.LOW,
        summary=f"every rank waits at least {format_seconds(everyone)} a step for data",
        evidence=(f"mean wait by rank: {', '.join(format_seconds(float(value)) for value in means[:16])}",),
        advice=advice,
    )


def _pauses(signals: Signals, found: tuple[Finding, ...]) -> Judgement:
    del found
    pauses = signals.pauses
    assert pauses is not None  # noqa: S101 - in `needs`
    cost, most = pauses.seconds_per_step, max(pauses.count)
    collection = pauses.collection_seconds_per_step
    if most < 3 or cost < PAUSE_FLOOR * signals.step_seconds:
        return None
    by_collection = collection is not None and collection > 0.5 * cost
    cause = "Python's garbage collection" if by_collection else "something other than garbage collection"
    if collection is None:
        cause = "a cause that was not recorded"
    return Finding(
        kind=FindingKind.PAUSES,
        cost_percent=_percent(cost, signals),
        cost_seconds=cost,
        confidence=Confidence.HIGH if by_collection or most >= 5 else Confidence.MEDIUM,
        summary=f"rare long steps ({most} of {signals.steps} on the rank with most) cost {format_seconds(cost)} a step "
        f"on average, from {cause}",
        evidence=(
            "long steps by rank: "
            + ", ".join(f"{rank}: {count}" for rank, count in zip(signals.ranks, pauses.count, strict=True)),
            *([] if collection is None else [f"garbage collection: {format_seconds(collection)} a step"]),
        ),
        advice="call gc.freeze() after set-up and collect at a fixed interval on all ranks together"
        if by_collection
        else "look for what runs now and then: checkpoints, logging, evaluation, other processes, periodic jobs",
    )


def _load_imbalance(signals: Signals, found: tuple[Finding, ...]) -> Judgement:
    wait, charge = signals.wait, signals.charge
    assert wait is not None and charge is not None  # noqa: S101 - in `needs`
    if (refusal := _cannot_name(signals)) is not None:
        return refusal
    named = [signals.ranks.index(finding.rank) for finding in found if finding.rank is not None]
    left = float(wait.mean()) * float(1 - charge[named].sum())  # the slowest of a step minus the mean
    if any(finding.kind is FindingKind.PAUSES for finding in found):
        left -= sum(finding.cost_seconds for finding in found if finding.kind is FindingKind.PAUSES)
    top = int(charge.argmax())
    if left < IMBALANCE_FLOOR * signals.step_seconds or (not named and charge[top] > 0.9):
        return None
    return Finding(
        kind=FindingKind.LOAD_IMBALANCE,
        cost_percent=_percent(left, signals),
        cost_seconds=left,
        confidence=Confidence.MEDIUM,
        summary=f"ranks wait {format_seconds(left)} a step for one another, and take turns at being late",
        evidence=(
            "last to arrive, share of waiting: "
            + ", ".join(
                f"rank {rank}: {format_percent(float(share), 0)}"
                for rank, share in zip(signals.ranks, charge, strict=True)
            ),
        ),
        advice="make the work of a step equal: bucket sequences by length, balance experts and shards, "
        "pad to a fixed shape; on a shared machine, look for other processes",
    )


def _small_buckets(signals: Signals, found: tuple[Finding, ...]) -> Judgement:
    del found
    buckets, probe, transfer = signals.bucket_bytes, signals.probe, signals.transfer
    assert buckets is not None and probe is not None and transfer is not None  # noqa: S101 - in `needs`
    typical = float(np.median(buckets))
    gain = probe.as_bucketed_seconds - probe.merged_seconds
    if len(buckets) < 4 or typical >= SMALL_BUCKET_BYTES:
        return None
    if probe.as_bucketed_seconds < BUCKET_GAIN * probe.merged_seconds:
        return None
    cost = min(gain, float(transfer.mean()))
    if cost < COST_FLOOR * signals.step_seconds:
        return None
    return Finding(
        kind=FindingKind.SMALL_BUCKETS,
        cost_percent=_percent(cost, signals),
        cost_seconds=cost,
        confidence=Confidence.HIGH,
        summary=f"gradients go in {len(buckets)} buckets of {format_bytes(typical)} (median); the same bytes in "
        f"buckets of 25 MiB take {format_seconds(probe.merged_seconds)} instead of "
        f"{format_seconds(probe.as_bucketed_seconds)}",
        evidence=(
            f"both measured alone, {format_bytes(probe.payload_bytes)} of gradients",
            f"exposed exchange in training: {format_seconds(float(transfer.mean()))} a step",
        ),
        advice="raise bucket_cap_mb of DistributedDataParallel (its default is 25)",
    )


def _slow_link(signals: Signals, found: tuple[Finding, ...]) -> Judgement:
    del found
    probe, rated, transfer = signals.probe, signals.link_bytes_per_second, signals.transfer
    assert probe is not None and rated is not None and transfer is not None  # noqa: S101 - in `needs`
    ranks = len(signals.ranks)
    reached = probe.payload_bytes * 2 * (ranks - 1) / ranks / probe.merged_seconds
    cost = float(transfer.mean())
    if reached >= SLOW_LINK_SHARE * rated or cost < EXPOSED_FLOOR * signals.step_seconds:
        return None
    gain = cost * (1 - reached / rated)
    return Finding(
        kind=FindingKind.SLOW_LINK,
        cost_percent=_percent(gain, signals),
        cost_seconds=gain,
        confidence=Confidence.HIGH if reached < 0.3 * rated else Confidence.MEDIUM,
        summary=f"all-reduce reaches {format_bytes(reached)}/s bus bandwidth; the link is rated at "
        f"{format_bytes(rated)}/s",
        evidence=(
            f"{format_bytes(probe.payload_bytes)} of gradients take {format_seconds(probe.merged_seconds)} alone",
            f"exposed exchange in training: {format_seconds(cost)} a step",
        ),
        advice="measure the link by itself (`iperf3`, `ib_write_bw`, nccl-tests); look for shaping, a wrong interface "
        "(NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME), negotiated speed, cables",
    )


def _exposed_communication(signals: Signals, found: tuple[Finding, ...]) -> Judgement:
    transfer = signals.transfer
    assert transfer is not None  # noqa: S101 - in `needs`
    cost = float(transfer.mean())
    causes = (FindingKind.SMALL_BUCKETS, FindingKind.SLOW_LINK)
    cost -= sum(finding.cost_seconds for finding in found if finding.kind in causes)
    if cost < EXPOSED_FLOOR * signals.step_seconds:
        return None
    evidence = [f"over {signals.steps} steps" if signals.steps else "over the whole recording"]
    if signals.overlap is not None:
        evidence.append(f"{format_percent(signals.overlap, 0)} of communication is hidden under compute")
    if signals.bucket_bytes is not None:
        total = format_bytes(float(sum(signals.bucket_bytes)))
        evidence.append(f"{total} of gradients in {len(signals.bucket_bytes)} buckets")
    return Finding(
        kind=FindingKind.EXPOSED_COMMUNICATION,
        cost_percent=_percent(cost, signals),
        cost_seconds=cost,
        confidence=Confidence.HIGH if signals.steps >= MIN_COMPARED and signals.trusted else Confidence.LOW,
        summary=f"exchanging gradients takes {format_seconds(cost)} a step that no compute hides",
        evidence=tuple(evidence),
        advice="raise the batch size or accumulate gradients, send fewer bytes (bf16 gradients), "
        "use a faster link, or tune bucket_cap_mb so that more overlaps with the backward pass",
    )


def _sync_variance(signals: Signals, found: tuple[Finding, ...]) -> Judgement:
    p50, p95 = signals.exposed_p50, signals.exposed_p95
    assert p50 is not None and p95 is not None  # noqa: S101 - in `needs`
    explained = (FindingKind.STRAGGLER, FindingKind.LOAD_IMBALANCE, FindingKind.PAUSES, FindingKind.INPUT_PIPELINE)
    if any(finding.kind in explained for finding in found):
        return None
    if p50 <= 0 or (p95 - p50) / p50 <= VARIANCE_FLOOR or p50 <= EXPOSED_FLOOR * signals.step_seconds:
        return None
    cost = 0.0 if signals.transfer is None or signals.wait is None else max(0.0, _mean_exposed(signals) - p50)
    return Finding(
        kind=FindingKind.SYNC_VARIANCE,
        cost_percent=_percent(cost, signals),
        cost_seconds=cost,
        confidence=Confidence.MEDIUM,
        summary=f"the exposed gradient exchange takes {format_seconds(p50)} in the median step and "
        f"{format_seconds(p95)} in one of twenty",
        evidence=(f"(p95 − p50) ÷ p50 = {format_percent((p95 - p50) / p50, 0)}, over {signals.steps} steps",),
        advice="look for traffic of others on the link, for congestion, and for ranks that are late now and then",
    )


def _host_bound(signals: Signals, found: tuple[Finding, ...]) -> Judgement:
    del found
    idle = signals.host_bound
    assert idle is not None  # noqa: S101 - in `needs`
    cost = float(idle.min())  # what one rank alone does is a straggler's
    if cost < HOST_FLOOR * signals.step_seconds:
        return None
    return Finding(
        kind=FindingKind.HOST_BOUND,
        cost_percent=_percent(cost, signals),
        cost_seconds=cost,
        confidence=Confidence.HIGH if signals.steps >= MIN_COMPARED else Confidence.LOW,
        summary=f"the device has nothing to do for {format_seconds(cost)} a step because the host hands out work late"
        if signals.on_device
        else f"{format_seconds(cost)} a step go to host work between operators",
        evidence=(f"by rank: {', '.join(format_seconds(float(value)) for value in idle[:16])}",),
        advice="move Python work out of the step (logging, metrics, checks), use torch.compile or CUDA graphs, "
        "fused optimizers, larger batches",
    )


def _host_sync(signals: Signals, found: tuple[Finding, ...]) -> Judgement:
    del found
    count, cost = signals.readbacks, signals.readback_wait
    assert count is not None and cost is not None  # noqa: S101 - in `needs`
    if count < 1 or cost < COST_FLOOR * signals.step_seconds:
        return None
    return Finding(
        kind=FindingKind.HOST_SYNC,
        cost_percent=_percent(cost, signals),
        cost_seconds=cost,
        confidence=Confidence.MEDIUM,
        summary=f"the step reads values back from the device {count:.0f} times (.item(), bool(), printing a tensor); "
        f"the device then idles {format_seconds(cost)} a step",
        evidence=(f"over {signals.steps} steps",),
        advice="read losses and metrics every many steps, after the step; keep decisions on the device",
    )


def _pageable_copies(signals: Signals, found: tuple[Finding, ...]) -> Judgement:
    del found
    cost = signals.pageable
    assert cost is not None  # noqa: S101 - in `needs`
    if cost < COST_FLOOR * signals.step_seconds:
        return None
    return Finding(
        kind=FindingKind.PAGEABLE_COPIES,
        cost_percent=_percent(cost, signals),
        cost_seconds=cost,
        confidence=Confidence.HIGH,
        summary=f"copies from memory that is not pinned take {format_seconds(cost)} a step outside compute",
        evidence=("the recording names the memory of each copy",),
        advice="pin_memory=True in the DataLoader and non_blocking=True in .to()",
    )


def _throttling(signals: Signals, found: tuple[Finding, ...]) -> Judgement:
    del found
    throttled = signals.throttled
    assert throttled is not None  # noqa: S101 - in `needs`
    hit = [(rank, reasons) for rank, reasons in zip(signals.ranks, throttled, strict=True) if reasons]
    if not hit:
        return None
    return Finding(
        kind=FindingKind.THROTTLING,
        rank=hit[0][0] if len(hit) == 1 else None,
        cost_percent=0.0,
        cost_seconds=0.0,
        confidence=Confidence.HIGH,
        summary="clocks were lowered while it was measured: "
        + "; ".join(f"rank {rank}: {', '.join(reasons)}" for rank, reasons in hit[:8]),
        evidence=("what the driver said between batches; its cost cannot be told from this alone",),
        advice="check cooling, power limits and the fans; `nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER`",
    )


def _memory_pressure(signals: Signals, found: tuple[Finding, ...]) -> Judgement:
    del found
    retries, faults = signals.allocation_retries, signals.page_faults
    if retries is None and faults is None:
        return "not measured: allocation retries, page faults"
    if not retries and (faults is None or faults < 1):
        return None
    what = (
        f"the allocator emptied its cache and tried again {retries} times"
        if retries
        else f"{faults:.0f} pages a step came back from disk"
    )
    return Finding(
        kind=FindingKind.MEMORY_PRESSURE,
        cost_percent=0.0,
        cost_seconds=0.0,
        confidence=Confidence.HIGH,
        summary=f"memory ran short: {what}",
        evidence=("counted while measuring; its cost cannot be told from this alone",),
        advice="lower the batch size, checkpoint activations, or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
        if retries
        else "free memory on the host, or lower the batch size",
    )


_RULES = (
    Rule(FindingKind.INPUT_PIPELINE, ("data_wait",), _input_pipeline),
    Rule(FindingKind.STRAGGLER, ("own", "wait", "charge"), _straggler),
    Rule(FindingKind.PAUSES, ("pauses",), _pauses),
    Rule(FindingKind.LOAD_IMBALANCE, ("wait", "charge"), _load_imbalance),
    Rule(FindingKind.SMALL_BUCKETS, ("bucket_bytes", "probe", "transfer"), _small_buckets),
    Rule(FindingKind.SLOW_LINK, ("probe", "link_bytes_per_second", "transfer"), _slow_link),
    Rule(FindingKind.EXPOSED_COMMUNICATION, ("transfer",), _exposed_communication),
    Rule(FindingKind.SYNC_VARIANCE, ("exposed_p50", "exposed_p95"), _sync_variance),
    Rule(FindingKind.HOST_BOUND, ("host_bound",), _host_bound),
    Rule(FindingKind.HOST_SYNC, ("readbacks", "readback_wait"), _host_sync),
    Rule(FindingKind.PAGEABLE_COPIES, ("pageable",), _pageable_copies),
    Rule(FindingKind.THROTTLING, ("throttled",), _throttling),
    Rule(FindingKind.MEMORY_PRESSURE, (), _memory_pressure),
)

_NAMES = {
    "own": "each rank's own time per step",
    "wait": "waits at collectives, compared over ranks",
    "charge": "who arrives last",
    "data_wait": "waits for data",
    "pauses": f"at least {MIN_COMPARED} steps, one by one",
    "bucket_bytes": "bucket sizes",
    "probe": "the link alone",
    "transfer": "exposed communication",
    "link_bytes_per_second": "what the link is rated at",
    "exposed_p50": f"exposed communication of at least {MIN_COMPARED} steps",
    "exposed_p95": f"exposed communication of at least {MIN_COMPARED} steps",
    "host_bound": "when work was handed to the device",
    "readbacks": "values read back from the device",
    "readback_wait": "the host's waits for the device",
    "pageable": "the memory that copies go from and to",
    "throttled": "reasons for lowered clocks",
}


def _cannot_name(signals: Signals) -> str | None:
    """Why no rank may be blamed, or ``None``."""
    if len(signals.ranks) < 2:
        return "one rank alone"
    if not signals.trusted:
        return "the recording is too short or its ranks cannot be compared with confidence"
    if max(signals.steps, signals.collectives or 0) < MIN_COMPARED:
        return f"fewer than {MIN_COMPARED} steps or collectives"
    return None


@dataclass(frozen=True)
class _Alone:
    """A rank's step without any exchange against the median of the others'. ``slower``: by 3 % and beyond noise."""

    mine: float
    others: float
    slower: bool


def _alone(signals: Signals, row: int) -> _Alone | None:
    alone = signals.alone
    if alone is None or any(len(series) < MIN_SAMPLES for series in alone):
        return None
    intervals = [mean_interval(series.tolist()) for series in alone]
    mine, half = intervals[row]
    rest = [interval for index, interval in enumerate(intervals) if index != row]
    others = float(np.median([mean for mean, _ in rest]))
    noise = float(np.hypot(half or 0.0, max(width or 0.0 for _, width in rest)))
    return _Alone(mine, others, mine - others > noise and mine - others >= OWN_EXCESS * others)


def _mean_exposed(signals: Signals) -> float:
    wait, transfer = signals.wait, signals.transfer
    if wait is None or transfer is None:
        return 0.0
    return float(wait.mean() + transfer.mean())


def _median_of_others(values: Series, row: int) -> Series:
    return np.asarray(np.median(np.delete(values, row, axis=0), axis=0))


def _percent(seconds: float, signals: Signals) -> float:
    return seconds / signals.step_seconds * 100
