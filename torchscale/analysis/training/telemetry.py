"""What a machine's devices did over the measured steps, from readings."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import numpy as np

from torchscale.analysis.diagnosis.signals import DeviceUse
from torchscale.schema.launch.telemetry import GpuReading, GpuUse, Reading, Telemetry
from torchscale.schema.node.environment import RankIdentity, bare_uuid
from torchscale.util.optional import complete, optional

_CLOCK_WENT_BACK = (
    "the system clock was set back while measuring, so it is not known which readings are of the "
    "measured steps"
)
_NO_GPU = "the driver did not answer (NVML)"


def digest_telemetry(
    readings: Sequence[Reading],
    start: float,
    end: float,
    *,
    gpus: Sequence[str] = (),
    sampler_cpu_seconds: float | None = None,
) -> Telemetry | None:
    """Readings between ``start`` and ``end`` (seconds since the epoch); ``None`` without any. Where
    the clock was set back meanwhile, what is left is the problem: no reading can be told to lie in
    the measured steps.

    Counters are taken at both ends, between the readings around each: of the readings alone, a
    second at either end would be missing. ``gpus`` are the UUIDs that should be there.
    """
    if end <= start:
        return Telemetry(
            seconds=0.0,
            readings=0,
            sampler_cpu_seconds=sampler_cpu_seconds,
            problem=_CLOCK_WENT_BACK,
        )
    inside = [reading for reading in readings if start <= reading.time <= end]
    if not inside:
        return None
    seconds = end - start
    problem = ""
    uses = tuple(_gpu_use(uuid, readings, inside, start, end) for uuid in gpu_uuids(inside))
    if len(gpus) > len(uses):
        problem = _NO_GPU
    return Telemetry(
        seconds=seconds,
        readings=len(inside),
        sampler_cpu_seconds=sampler_cpu_seconds,
        cpu_busy=_mean([reading.cpu_busy for reading in inside]),
        memory_used_peak_bytes=max(reading.memory_used_bytes for reading in inside),
        sent_bytes_per_second=_rate(
            [(reading.time, reading.sent_bytes) for reading in readings], start, end
        ),
        received_bytes_per_second=_rate(
            [(reading.time, reading.received_bytes) for reading in readings], start, end
        ),
        gpus=uses,
        problem=problem,
    )


def device_use(
    machines: Sequence[Telemetry | None], ranks: Sequence[RankIdentity]
) -> DeviceUse | None:
    """How busy the device of each rank was; ``None`` where one of them was not read."""
    read = [telemetry for telemetry in machines if telemetry is not None and telemetry.gpus]
    shares = {bare_uuid(use.uuid): use.busy for telemetry in read for use in telemetry.gpus}
    busy = complete(shares.get(bare_uuid(rank.device.uuid or "")) for rank in ranks)
    if not busy:
        return None
    return DeviceUse(tuple(busy), min(telemetry.readings for telemetry in read))


def joules(machines: Sequence[Telemetry | None]) -> float | None:
    """Energy of all GPUs of all machines over the measured steps: the counters', else mean power ×
    time; ``None`` where a GPU has neither, or a machine has none or was not read."""
    if not all(telemetry is not None and telemetry.gpus for telemetry in machines):
        return None
    parts = [
        _gpu_joules(use, telemetry.seconds)
        for telemetry in machines
        if telemetry is not None
        for use in telemetry.gpus
    ]
    return optional(sum, complete(parts))


def _gpu_joules(use: GpuUse, seconds: float) -> float | None:
    if use.energy_joules is not None:
        return use.energy_joules
    if use.power_watts is None:
        return None
    return use.power_watts * seconds


def gpu_uuids(readings: Sequence[Reading]) -> list[str]:
    """GPUs that were read, once each."""
    return list(dict.fromkeys(gpu.uuid for reading in readings for gpu in reading.gpus))


def _gpu_use(
    uuid: str, readings: Sequence[Reading], inside: Sequence[Reading], start: float, end: float
) -> GpuUse:
    timed = _timed(uuid, readings)
    here = [gpu for reading in inside for gpu in reading.gpus if gpu.uuid == uuid]
    power = [(time, gpu.energy_joules) for time, gpu in timed]
    rate = _rate(power, start, end)
    energy_joules = None
    if rate is not None:
        energy_joules = rate * (end - start)
    reasons = [gpu.throttle_reasons for gpu in here if gpu.throttle_reasons is not None]
    throttle_reasons, throttled_share = None, None
    if reasons:
        throttle_reasons = tuple(sorted({name for names in reasons for name in names}))
        throttled_share = sum(bool(names) for names in reasons) / len(reasons)

    def mean(pick: Callable[[GpuReading], float | None]) -> float | None:
        return _mean([pick(gpu) for gpu in here])

    def peak(pick: Callable[[GpuReading], float | None]) -> float | None:
        return max((value for gpu in here if (value := pick(gpu)) is not None), default=None)

    memory, processes = peak(lambda gpu: gpu.memory_used_bytes), peak(lambda gpu: gpu.processes)
    return GpuUse(
        uuid=uuid,
        busy=mean(lambda gpu: gpu.busy),
        memory_busy=mean(lambda gpu: gpu.memory_busy),
        memory_used_peak_bytes=optional(int, memory),
        power_watts=mean(lambda gpu: gpu.power_watts),
        energy_joules=energy_joules,
        temperature_peak_celsius=peak(lambda gpu: gpu.temperature_celsius),
        sm_clock_hertz=mean(lambda gpu: gpu.sm_clock_hertz),
        throttle_reasons=throttle_reasons,
        throttled_share=throttled_share,
        new_ecc_errors=_new_ecc_errors([gpu for _, gpu in timed]),
        pcie_bytes_per_second=mean(lambda gpu: gpu.pcie_bytes_per_second),
        nvlink_bytes_per_second=mean(lambda gpu: gpu.nvlink_bytes_per_second),
        processes_peak=optional(int, processes),
    )


def _timed(uuid: str, readings: Sequence[Reading]) -> list[tuple[float, GpuReading]]:
    """Readings of a GPU, and when they were taken."""
    timed = []
    for reading in readings:
        for gpu in reading.gpus:
            if gpu.uuid != uuid:
                continue
            time = gpu.time
            if time is None:
                time = reading.time
            timed.append((time, gpu))
    return timed


def _new_ecc_errors(readings: Sequence[GpuReading]) -> int | None:
    errors = [gpu.ecc_errors for gpu in readings if gpu.ecc_errors is not None]
    if not errors:
        return None
    return max(errors) - errors[0]


def _rate(counter: Sequence[tuple[float, float | None]], start: float, end: float) -> float | None:
    """Growth of a counter per second between two moments; ``None`` where readings do not reach
    around them, or where the counter fell."""
    known = [(time, value) for time, value in counter if value is not None]
    if len(known) < 2 or known[0][0] > start or known[-1][0] < end:
        return None
    times, values = zip(*known, strict=True)
    first, last = np.interp((start, end), times, values)
    if last >= first:
        return float(last - first) / (end - start)
    return None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    return statistics.fmean(known)
