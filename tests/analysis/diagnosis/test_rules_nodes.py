"""A machine of which all ranks are slow, in a launch over several."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.analysis.diagnosis.test_diagnose import BATCHES, found, quiet, slow
from torchscale.analysis.diagnosis.rules_nodes import by_machine
from torchscale.analysis.diagnosis.signals import SignalOrigin, Signals
from torchscale.schema.profiles.finding import FindingKind
from torchscale.util.units import format_seconds

HOSTS = ("n0", "n0", "n1", "n1", "n2", "n2")


def slow_rows(*rows: int, extra: float = 0.02, hosts: tuple[str, ...] = HOSTS) -> Signals:
    """Ranks on machines, of which these compute longer."""
    signals = quiet(len(hosts), hosts=hosts)
    windows = signals.windows
    assert (
        signals.compute is not None
        and signals.wait is not None
        and signals.unsynchronized is not None
    )
    assert windows is not None and windows.quiet is not None
    added = np.array([[extra if row in rows else 0.0] for row in range(len(hosts))])
    blame = np.array(
        [
            0.9 / len(rows) if row in rows else 0.1 / (len(hosts) - len(rows))
            for row in range(len(hosts))
        ]
    )
    return replace(
        signals,
        compute=signals.compute + added,
        wait=signals.wait + (extra - added),
        unsynchronized=tuple(
            series + (extra if row in rows else 0.0)
            for row, series in enumerate(signals.unsynchronized)
        ),
        blame=blame,
        windows=replace(windows, compute=windows.compute + added, quiet=windows.quiet + added),
    )


def test_a_machine_of_which_all_ranks_are_slow_is_named() -> None:
    findings = found(slow_rows(2, 3))
    finding = findings[FindingKind.STRAGGLING_NODE]
    assert (finding.rank, finding.hosts) == (None, ("n1",))
    assert finding.summary.startswith("all 2 ranks of n1 (ranks 2 to 3) are late")
    assert finding.cost_seconds == np.clip(finding.cost_seconds, 0.01, 0.03)
    assert FindingKind.STRAGGLER not in findings, "one cause, named once"


def test_one_slow_rank_is_no_slow_machine() -> None:
    findings = found(replace(slow(2, 0.02, 6), hosts=HOSTS))
    assert findings[FindingKind.STRAGGLER].rank == 2
    assert FindingKind.STRAGGLING_NODE not in findings


def test_on_one_machine_there_is_none_to_compare_with() -> None:
    findings = found(replace(slow(1, 0.02), hosts=("n0",) * 4))
    assert findings[FindingKind.STRAGGLER].rank == 1
    assert FindingKind.STRAGGLING_NODE not in findings


def test_equal_machines_have_no_finding() -> None:
    assert FindingKind.STRAGGLING_NODE not in found(quiet(6, hosts=HOSTS))


def test_of_one_rank_on_each_machine_the_rank_is_named() -> None:
    findings = found(replace(slow(1, 0.02), hosts=("n0", "n1", "n2", "n3")))
    assert findings[FindingKind.STRAGGLER].rank == 1
    assert FindingKind.STRAGGLING_NODE not in findings


def test_a_machine_is_not_compared_with_one_that_has_a_single_rank() -> None:
    findings = found(slow_rows(0, 1, hosts=("n0", "n0", "n1")))
    assert FindingKind.STRAGGLING_NODE not in findings


def test_signals_by_machine_are_means_over_its_ranks() -> None:
    signals = quiet(4, hosts=("n0", "n0", "n1", "n1"), blame=np.array([0.1, 0.2, 0.3, 0.4]))
    machines = by_machine(signals, [[0, 1], [2, 3]])
    assert (
        signals.compute is not None and machines.compute is not None and machines.blame is not None
    )
    assert machines.ranks == (0, 1)
    assert np.allclose(machines.compute[1], (signals.compute[2] + signals.compute[3]) / 2)
    assert np.allclose(machines.blame, [0.3, 0.7])


def test_of_two_machines_one_can_be_slow() -> None:
    finding = found(slow_rows(0, 1, hosts=HOSTS[:4]))[FindingKind.STRAGGLING_NODE]
    assert finding.hosts == ("n0",)


def test_load_on_the_ranks_of_a_machine_is_load_on_the_machine() -> None:
    """Else a machine that others use would be called slow by itself."""
    signals = quiet(
        4, other_processes=np.array([0.1, 0.3, 0.0, 0.2]), host_bound=np.array([1.0, 3.0, 5.0, 7.0])
    )
    machines = by_machine(signals, [[0, 1], [2, 3]])
    assert machines.other_processes is not None and machines.host_bound is not None
    assert np.allclose(machines.other_processes, [0.2, 0.1])
    assert np.allclose(machines.host_bound, [2.0, 6.0])
    assert machines.busy is None


def test_ranks_of_a_machine_may_have_run_unequally_many_passes() -> None:
    signals = quiet(2, unsynchronized=(np.array([1.0, 2.0, 9.0]), np.array([3.0, 4.0])))
    (machine,) = by_machine(signals, [[0, 1]]).unsynchronized or ()
    assert machine.tolist() == [2.0, 3.0]


def machine_of(first: float, second: float) -> Signals:
    """Ranks that compute 100 s in a step of 120, without scatter, but for those of n1."""
    seconds = np.array([[100.0], [100.0], [first], [second], [100.0], [100.0]])
    compute = seconds * np.ones((1, BATCHES))
    signals = slow_rows(2, 3, extra=50.0)
    return replace(signals, step_seconds=120.0, compute=compute, windows=None)


@pytest.mark.parametrize(("least", "is_named"), [(103.0, True), (102.9, False)])
def test_each_rank_of_a_slow_machine_is_slow(least: float, is_named: bool) -> None:
    """By the three hundredths that make a straggler of a rank."""
    assert (FindingKind.STRAGGLING_NODE in found(machine_of(110.0, least))) is is_named


def test_a_slow_machine_is_told_with_the_compute_of_its_ranks() -> None:
    signals = slow_rows(0, 1, hosts=HOSTS[:4])
    assert signals.compute is not None
    means = signals.compute.mean(axis=1)
    mine, others = means[:2].mean(), means[2:].mean()
    assert found(signals)[FindingKind.STRAGGLING_NODE].summary == (
        "all 2 ranks of n0 (ranks 0 to 1) are late at the collective: their compute takes "
        f"{format_seconds(mine)} a step, that of the others {format_seconds(others)}"
    )


@pytest.mark.parametrize(("share", "about"), [(0.1, "about "), (0.09, "")])
def test_waits_for_a_machine_by_lengths_say_whether_they_are_an_estimate(
    share: float, about: str
) -> None:
    signals = replace(slow_rows(2, 3), unsynchronized=None)
    finding = found(replace(signals, origin=SignalOrigin.LENGTHS, estimated_share=share))[
        FindingKind.STRAGGLING_NODE
    ]
    cost = format_seconds(finding.cost_seconds)
    assert finding.summary.endswith(
        f"late at the collective: the others wait {about}{cost} a step for them"
    )


def test_a_machine_that_other_processes_load_is_not_called_slow() -> None:
    load = np.array([0.0, 0.0, 0.3, 0.3, 0.0, 0.0])
    assert FindingKind.STRAGGLING_NODE not in found(replace(slow_rows(2, 3), other_processes=load))


def test_a_machine_whose_pauses_make_it_slower_than_the_slow_one_is_not_named() -> None:
    """Windows leave pauses out, and by them the other machine is late."""
    signals = slow_rows(0, 1)
    assert found(signals)[FindingKind.STRAGGLING_NODE].hosts == ("n0",)
    assert signals.compute is not None
    paused = signals.compute.copy()
    paused[2:4] += 0.03
    assert FindingKind.STRAGGLING_NODE not in found(replace(signals, compute=paused))


def test_what_was_not_measured_of_ranks_is_not_known_of_machines() -> None:
    signals = Signals(SignalOrigin.TRACE, (0, 1, 2, 3), 0.1, 120)
    assert by_machine(signals, [[0, 1], [2, 3]]) == replace(signals, ranks=(0, 1))
    windows = quiet(4).windows
    assert windows is not None
    unknown = by_machine(
        replace(signals, windows=replace(windows, quiet=None)), [[0, 1], [2, 3]]
    ).windows
    assert unknown is not None
    assert unknown.quiet is None
    assert np.allclose(unknown.compute[0], windows.compute[:2].mean(axis=0))


def test_all_that_is_compared_is_the_mean_over_the_ranks_of_a_machine() -> None:
    signals = quiet(4, busy=np.array([0.01, 0.03, 0.05, 0.07]))
    machines = by_machine(signals, [[0, 1], [2, 3]])
    assert signals.wait is not None and machines.wait is not None and machines.busy is not None
    assert np.allclose(machines.wait[1], signals.wait[2:].mean(axis=0))
    assert np.allclose(machines.busy, [0.02, 0.06])
    assert signals.windows is not None and signals.windows.quiet is not None
    assert machines.windows is not None and machines.windows.quiet is not None
    assert np.allclose(machines.windows.quiet[0], signals.windows.quiet[:2].mean(axis=0))
    assert (machines.hosts, machines.pauses) == (None, None)
