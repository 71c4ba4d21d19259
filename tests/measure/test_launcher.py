"""Which launches share processes, and how many there are of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.factories import experiment, experiment_file, machine
from torchscale.config.choices import DeviceKind
from torchscale.config.experiment import Experiment
from torchscale.launch.control import StopRequest
from torchscale.measure.early_start import shares_processes
from torchscale.measure.launcher import Launcher, Pending, in_order, open_launcher
from torchscale.plan.expand import make_plan
from torchscale.store.run_folder import RunFolder


def pending_of(launcher_config: Experiment) -> tuple[Pending, ...]:
    plan = make_plan(launcher_config, machine(cores=4))
    return tuple(Pending(cell, launch) for launch in range(2) for cell in plan.to_run)


@pytest.mark.parametrize(
    ("launch", "counts", "processes"),
    [
        ({}, [1, 2, 4], [4, 4, 4]),
        ({}, [2], [2]),
        # Ranks that share cores would have others than by themselves: those run apart.
        ({"oversubscribe": True, "threads_per_rank": 2}, [1, 2, 4], [2, 2, 4]),
    ],
)
def test_one_set_of_processes_runs_all_counts(
    launch: dict[str, Any], counts: list[int], processes: list[int]
) -> None:
    config = experiment(gpu_counts=counts, device="cpu", launch=launch)
    plan = make_plan(config, machine(cores=4))
    assert shares_processes(config, plan.device)
    pending = in_order(pending_of(config), shared=True)
    assert [item.launch for item in pending] == [0] * len(counts) + [1] * len(counts)
    folder: Any = SimpleNamespace(path=Path("run"))  # nothing is run
    launcher = Launcher(config, plan, folder, StopRequest(), lambda _: None, pending=pending)
    assert [launcher._processes(item) for item in pending[: len(counts)]] == processes
    assert launcher._processes(pending[0]) == processes[0]


def test_without_a_list_of_what_comes_a_launch_gets_its_own_number() -> None:
    config = experiment(gpu_counts=[1, 2], device="cpu", launch={"isolation": "group"})
    plan = make_plan(config, machine(cores=4))
    folder: Any = SimpleNamespace(path=Path("run"))
    launcher = Launcher(config, plan, folder, StopRequest(), lambda _: None)
    assert [launcher._processes(item) for item in pending_of(config)[:2]] == [1, 2]


@pytest.mark.parametrize(
    ("isolation", "device", "shared"),
    [
        ("auto", "cpu", True),
        ("auto", "cuda", False),
        ("cell", "cpu", False),
        ("group", "cuda", True),
    ],
)
def test_launches_share_processes_by_default_on_cpus_alone(
    isolation: str, device: DeviceKind, shared: bool
) -> None:
    config = experiment(gpu_counts=[2], device=device, launch={"isolation": isolation})
    assert shares_processes(config, device) is shared
    planned = pending_of(experiment(gpu_counts=[2], device="cpu"))
    assert shared or in_order(planned, shared=shared) == planned


def test_what_a_killed_session_left_goes_also_where_no_launch_is_left_to_run(
    tmp_path: Path,
) -> None:
    config = experiment(gpu_counts=[1], device="cpu")
    plan = make_plan(config, machine())
    folder = RunFolder.create(tmp_path / "run", experiment_file(config, plan.cells))
    channel = folder.path / ".group"
    channel.mkdir()
    (channel / "torchrun.log").write_text("of processes that are gone")
    with open_launcher(config, plan, folder, StopRequest(), lambda _: None):
        assert not channel.exists()


@pytest.mark.parametrize("isolation", ["auto", "cell", "group"])
def test_what_a_link_in_its_place_leads_to_is_kept(tmp_path: Path, isolation: str) -> None:
    config = experiment(gpu_counts=[1], device="cpu", launch={"isolation": isolation})
    plan = make_plan(config, machine())
    folder = RunFolder.create(tmp_path / "run", experiment_file(config, plan.cells))
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").write_text("content")
    (folder.path / ".group").symlink_to(tmp_path / "outside")
    with open_launcher(config, plan, folder, StopRequest(), lambda _: None) as launcher:
        (folder.path / ".group").symlink_to(tmp_path / "outside")
        launcher.close()
    assert (tmp_path / "outside" / "precious").read_text() == "content"
