"""A machine of which all ranks are slow, in a launch over several."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.analysis.diagnosis.test_diagnose import found, quiet, slow
from torchscale.analysis.diagnosis.rules_nodes import by_machine
from torchscale.analysis.diagnosis.signals import Signals
from torchscale.schema.profiles.finding import FindingKind

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
