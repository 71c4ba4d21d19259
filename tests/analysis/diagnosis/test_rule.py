from __future__ import annotations

from dataclasses import replace

from tests.analysis.diagnosis.test_diagnose import quiet
from torchscale.analysis.diagnosis.rule import (
    BLAME,
    COMPUTE,
    EARLIER,
    PROBE,
    WAIT,
    Earlier,
    Judgement,
    in_host_memory,
    not_staged,
    rule,
    several_ranks,
    staged,
)
from torchscale.analysis.diagnosis.signals import LinkProbe, Matrix, SignalOrigin, Signals
from torchscale.schema.profiles.finding import FindingKind


@rule(FindingKind.SLOW_LINK, PROBE, EARLIER, where=(several_ranks, not_staged))
def probed(signals: Signals, probe: LinkProbe, earlier: Earlier) -> Judgement:
    return f"{len(signals.ranks)} ranks, {probe.payload_bytes} bytes, {len(earlier)} before"


@rule(FindingKind.STRAGGLER, COMPUTE, also=(WAIT, BLAME))
def compared(_: Signals, compute: Matrix) -> Judgement:
    return f"{len(compute)} rows"


def test_a_rule_is_given_what_it_names() -> None:
    signals = replace(quiet(4), probe=LinkProbe(1024, 0.1, 0.1))
    assert probed.judge(signals, ()) == "4 ranks, 1024 bytes, 0 before"
    assert compared.judge(signals, ()) == "4 rows"


def test_a_rule_without_its_signals_is_not_called_and_names_all_that_are_missing() -> None:
    assert probed.judge(replace(quiet(4), probe=None), ()) == (
        "not measured: all-reduces timed with nothing else running"
    )
    without = replace(quiet(4), compute=None, blame=None)
    assert compared.judge(without, ()) == (
        "not measured: each rank's compute time per step, which rank arrives last"
    )


def test_a_rule_is_asked_only_about_what_it_is_about() -> None:
    assert probed.applies_to(quiet(2))
    assert not probed.applies_to(quiet(1))
    assert not probed.applies_to(replace(quiet(2), staged=True))
    assert staged(replace(quiet(2), staged=True))


def test_the_hosts_allocator_is_judged_by_launches_on_cpus_alone() -> None:
    on_cpu = replace(quiet(2), on_device=False)
    assert in_host_memory(on_cpu)
    assert not in_host_memory(replace(on_cpu, on_device=True))
    assert not in_host_memory(replace(on_cpu, origin=SignalOrigin.TRACE))
