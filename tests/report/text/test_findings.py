"""What was not judged, in a line."""

from __future__ import annotations

from torchscale.report.text.findings import not_judged
from torchscale.schema.profiles.finding import Abstention, FindingKind


def _because(reason: str, *kinds: FindingKind) -> list[Abstention]:
    return [Abstention(kind=kind, reason=reason) for kind in kinds]


def test_kinds_that_were_not_measured_are_one_group() -> None:
    items = [
        *_because("not measured: when work was handed to the device", FindingKind.HOST_BOUND),
        *_because("one of 4 ranks is here", FindingKind.STRAGGLER, FindingKind.STRAGGLER),
        *_because("not measured: reasons for lowered clocks", FindingKind.THROTTLING),
        *_because("not measured: how busy it is", FindingKind.IDLE_DEVICE),
    ]
    assert not_judged(items, on_device=True) == (
        "Not judged: host-bound, throttling, idle GPUs (not measured); straggler (one of 4 ranks "
        "is here)"
    )


def test_a_job_on_cpus_has_no_kinds_of_devices() -> None:
    copies = _because("not measured: copies", FindingKind.COPY_BOUND, FindingKind.HOST_SYNC)
    assert not_judged(copies, on_device=False) == ""
    pressure = _because("not measured: page faults", FindingKind.MEMORY_PRESSURE)
    told = "Not judged: memory pressure (not measured)"
    assert not_judged([*copies, *pressure], on_device=False) == told


def test_of_a_long_reason_the_line_has_the_beginning() -> None:
    reason = "rank 3 computes longer than the others, but " + "not so in this phase, " * 20
    line = not_judged(_because(reason, FindingKind.STRAGGLER), on_device=True)
    assert line.startswith("Not judged: straggler (rank 3 computes longer than the others, but")
    assert line.endswith(" …)")
    assert len(line) < 120


def test_nothing_is_said_where_all_was_judged() -> None:
    assert not_judged([], on_device=True) == ""
