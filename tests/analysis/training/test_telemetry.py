from __future__ import annotations

from typing import Any

import pytest

from tests.factories import cells, launch_record, rank_record
from torchscale.analysis.diagnosis.signals import DeviceUse
from torchscale.analysis.training.flags import Flag, launch_flags
from torchscale.analysis.training.telemetry import device_use, digest_telemetry, joules
from torchscale.schema.launch.rank import RankRecord
from torchscale.schema.launch.telemetry import GpuReading, GpuUse, Reading, Telemetry
from torchscale.schema.node.environment import DeviceInfo


def reading(time: float, **gpu: Any) -> Reading:
    gpus = (GpuReading(uuid="GPU-1", **gpu),) if gpu else ()
    return Reading(
        time=time,
        cpu_busy=time / 100,
        memory_used_bytes=int(time),
        sent_bytes=int(1000 * time),
        gpus=gpus,
    )


def test_energy_is_what_the_counter_grew_by_between_the_ends() -> None:
    # 200 W until t = 12, then 400 W: from 10.5 to 13.5 that is 1.5 × 200 + 1.5 × 400 joules.
    energy = {9: 1800, 10: 2000, 11: 2200, 12: 2400, 13: 2800, 14: 3200}
    readings = [
        reading(time, energy_joules=value, power_watts=300.0) for time, value in energy.items()
    ]
    found = digest_telemetry(readings, 10.5, 13.5, gpus=("GPU-1",), sampler_cpu_seconds=0.1)
    assert found is not None
    assert (found.seconds, found.readings) == (3.0, 3)
    assert found.gpus[0].energy_joules == pytest.approx(900)
    assert joules([found]) == pytest.approx(900)
    assert found.sent_bytes_per_second == pytest.approx(1000)
    assert found.cpu_busy == pytest.approx(0.12)
    assert found.memory_used_peak_bytes == 13
    assert found.problem == ""


def test_a_gpus_readings_have_their_own_times() -> None:
    """The last of eight GPUs is read 0.3 s after the first: at a changing power that is energy of
    other steps."""
    energy = {9: 1800, 10: 2000, 11: 2200, 12: 2400, 13: 2800, 14: 3200}
    late = [
        reading(time).model_copy(
            update={
                "time": time - 0.3,
                "gpus": (GpuReading(uuid="GPU-1", time=float(time), energy_joules=value),),
            }
        )
        for time, value in energy.items()
    ]
    found = digest_telemetry(late, 10.5, 13.5)
    assert found is not None
    assert found.gpus[0].energy_joules == pytest.approx(900)


def test_without_a_counter_energy_is_power_over_time() -> None:
    readings = [
        reading(time, power_watts=watts) for time, watts in ((1, 100.0), (2, 200.0), (3, 300.0))
    ]
    found = digest_telemetry(readings, 0.5, 3.5)
    assert found is not None
    assert found.gpus[0].energy_joules is None
    assert joules([found]) == pytest.approx(200 * 3)


def test_counters_that_do_not_reach_around_the_steps_tell_nothing() -> None:
    readings = [reading(time, energy_joules=100.0 * time) for time in (2, 3)]
    found = digest_telemetry(readings, 1.5, 3.5)
    assert found is not None
    assert found.gpus[0].energy_joules is None
    assert joules([found]) is None
    assert found.sent_bytes_per_second is None


def test_energy_is_that_of_all_nodes_or_unknown() -> None:
    def node(energy: float | None) -> Telemetry:
        use = GpuUse(uuid="GPU-1", energy_joules=energy, throttle_reasons=())
        return Telemetry(
            seconds=1.0, readings=1, cpu_busy=0.1, memory_used_peak_bytes=1, gpus=(use,)
        )

    assert joules([node(100.0), node(250.0)]) == pytest.approx(350)
    assert joules([node(100.0), None]) is None
    assert joules([node(100.0), node(None)]) is None


def test_the_use_of_each_ranks_device_is_found_by_its_uuid() -> None:
    """Torch gives UUIDs without the prefix of the driver's; ranks may share a device, and be on
    several machines."""
    cell = cells(gpu_counts=[3])[0]

    def rank(number: int, uuid: str | None) -> RankRecord:
        device = DeviceInfo(kind="cuda", index=0, name="a GPU", uuid=uuid)
        return rank_record(cell, number, device=device)

    def machine(readings: int, **busy: float | None) -> Telemetry:
        gpus = tuple(GpuUse(uuid=f"GPU-{name}", busy=share) for name, share in busy.items())
        return Telemetry(seconds=10.0, readings=readings, gpus=gpus)

    machines = [machine(9, a=0.3, b=0.9), machine(7, c=0.5)]
    ranks = [rank(0, "c"), rank(1, "a"), rank(2, "a")]
    assert device_use(machines, ranks) == DeviceUse((0.5, 0.3, 0.3), 7)
    for unknown in ("d", None):
        assert device_use(machines, [*ranks, rank(3, unknown)]) is None
    assert device_use([machine(9, a=None)], [rank(0, "a")]) is None
    assert device_use([None, machines[1]], ranks) is None
    assert device_use([None], []) is None


def test_no_gpu_that_should_be_there_is_said_and_no_reading_is_none() -> None:
    found = digest_telemetry([reading(1.0)], 0.5, 1.5, gpus=("GPU-1",))
    assert found is not None
    assert found.gpus == ()
    assert "NVML" in found.problem
    assert joules([found]) is None
    assert digest_telemetry([reading(1.0)], 2.0, 3.0) is None
    assert digest_telemetry([], 2.0, 3.0) is None


def test_throttling_and_other_processes_on_the_gpu_make_flags() -> None:
    (cell,) = cells(gpu_counts=[1])
    device = DeviceInfo(kind="cuda", index=0, name="NVIDIA H200", uuid="1")
    rank = rank_record(cell, device=device)

    def flags(**use: Any) -> set[Flag]:
        telemetry = Telemetry(seconds=10.0, readings=10, gpus=(GpuUse(uuid="GPU-1", **use),))
        return launch_flags(
            launch_record(cell, ranks=[rank], telemetry=telemetry), cell.measurement
        )

    assert flags(throttle_reasons=(), processes_peak=1) == set()
    assert flags(throttle_reasons=("power brake",)) == {Flag.THROTTLED}
    assert flags(processes_peak=2) == {Flag.CONTENDED}
    assert flags() == set()  # the driver did not say


def test_a_clock_that_was_set_back_is_said() -> None:
    readings = [Reading(time=1000.0 + second, memory_used_bytes=1) for second in range(5)]
    telemetry = digest_telemetry(readings, 1001.0, 1001.0 - 7200)
    assert telemetry is not None
    assert telemetry.readings == 0
    assert "clock was set back" in telemetry.problem
