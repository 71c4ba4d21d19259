"""What was read beside a launch, about once a second, by a process of its own."""

from __future__ import annotations

from torchscale.schema.base import (
    Count,
    EpochSeconds,
    Frozen,
    Name,
    Real,
    Seconds,
)


class GpuReading(Frozen):
    """One GPU at one moment; what it does not answer is ``None``. Shares are of 1.

    Attributes:
        uuid: UUID of the GPU.
        time: Seconds since the epoch; ``None`` in readings of older versions, which have the line's
            time.
        busy: Share of the last sampling period in which a kernel ran.
        memory_busy: Share of that period in which its memory was read or written.
        memory_used_bytes: Memory used by all processes.
        power_watts: Now.
        energy_joules: Since the driver was loaded.
        temperature_celsius: Temperature of the chip.
        sm_clock_hertz: Now.
        throttle_reasons: Why clocks are lowered; empty where they are not.
        ecc_errors: Uncorrected, since the last reboot.
        pcie_bytes_per_second, nvlink_bytes_per_second: Both directions together.
        processes: Number of processes that compute on it.
    """

    uuid: Name
    time: EpochSeconds | None = None
    busy: Real | None = None
    memory_busy: Real | None = None
    memory_used_bytes: Count | None = None
    power_watts: Real | None = None
    energy_joules: Real | None = None
    temperature_celsius: Real | None = None
    sm_clock_hertz: Real | None = None
    throttle_reasons: tuple[str, ...] | None = None
    ecc_errors: Count | None = None
    pcie_bytes_per_second: Real | None = None
    nvlink_bytes_per_second: Real | None = None
    processes: Count | None = None


class Reading(Frozen):
    """The machine at one moment, a line of ``telemetry.jsonl``.

    Attributes:
        time: Seconds since the epoch.
        cpu_busy: Share of all logical CPUs' time since the reading before.
        memory_used_bytes: Used memory of the host: what is not available.
        sent_bytes, received_bytes: Over all network interfaces, since boot.
        gpus: GPUs of the launch.
    """

    time: EpochSeconds
    cpu_busy: Real | None = None
    memory_used_bytes: Count
    sent_bytes: Count | None = None
    received_bytes: Count | None = None
    gpus: tuple[GpuReading, ...] = ()


class GpuUse(Frozen):
    """One GPU over the measured steps: means, but for what is named otherwise. ``None`` was not
    read."""

    uuid: Name
    busy: Real | None = None
    memory_busy: Real | None = None
    memory_used_peak_bytes: Count | None = None
    power_watts: Real | None = None
    energy_joules: Real | None = None
    temperature_peak_celsius: Real | None = None
    sm_clock_hertz: Real | None = None
    throttle_reasons: tuple[str, ...] | None = None
    throttled_share: Real | None = None
    new_ecc_errors: Count | None = None
    pcie_bytes_per_second: Real | None = None
    nvlink_bytes_per_second: Real | None = None
    processes_peak: Count | None = None


class Telemetry(Frozen):
    """A launch's readings over its measured steps.

    Attributes:
        seconds: How long the measured steps took.
        readings: Number of readings that lie in them.
        sampler_cpu_seconds: Processor time of the reading process, start-up included.
        cpu_busy: Mean share of all logical CPUs.
        memory_used_peak_bytes: Peak memory of the host.
        sent_bytes_per_second, received_bytes_per_second: Over all network interfaces.
        gpus: One entry for each of the launch's GPUs.
        problem: Why there is nothing of GPUs where there should be.
    """

    seconds: Seconds
    readings: Count
    sampler_cpu_seconds: Real | None = None
    cpu_busy: Real | None = None
    memory_used_peak_bytes: Count | None = None
    sent_bytes_per_second: Real | None = None
    received_bytes_per_second: Real | None = None
    gpus: tuple[GpuUse, ...] = ()
    problem: str = ""
