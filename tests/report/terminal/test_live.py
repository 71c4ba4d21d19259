"""What a sweep prints while it runs, on a terminal of 80 columns and into a file."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from rich.console import Console

from tests.factories import cells, failed_record, launch_record, run, summarize_cell, trained
from torchscale.config.choices import DeviceKind
from torchscale.report.terminal.live import LaunchBar, LaunchLines, launch_label, live_view
from torchscale.schema.launch.progress import Progress
from torchscale.schema.run.content import CellRun
from torchscale.schema.state import State

COLUMNS = 80


class Screen:
    """A console whose output is kept, and the lines for ``--verbose``."""

    def __init__(self, *, terminal: bool) -> None:
        self.console = Console(
            file=io.StringIO(),
            width=COLUMNS,
            force_terminal=terminal,
            color_system=None,
            highlight=False,
        )
        self.details: list[str] = []

    @contextmanager
    def view(
        self, device: DeviceKind = "cpu", total: int = 2, repeats: int = 1
    ) -> Iterator[LaunchLines]:
        with live_view(self.console, device, total, repeats, self.details.append) as view:
            yield view

    @property
    def text(self) -> str:
        file = self.console.file
        assert isinstance(file, io.StringIO)
        return file.getvalue()


def first_cell() -> CellRun:
    """The one-rank cell of a finished run: 80 samples/s, 100 ms a step."""
    return run().cells[0]


def test_a_file_gets_a_line_for_each_launch_that_has_ended() -> None:
    screen, cell_run = Screen(terminal=False), first_cell()
    cell = trained(cell_run.planned)
    with screen.view() as view:
        assert not isinstance(view, LaunchBar)
        view.launch_started(cell, 0)
        view.launch_progress(Progress(phase="measuring", samples_per_second=80.0))
        assert screen.text == "", "nothing before it has ended"
        record = cell_run.launches[0].model_copy(update={"command": ("torchrun", "a b")})
        view.launch_finished(cell, record, summarize_cell(cell_run))
        (line,) = screen.text.splitlines()
        assert line.startswith(
            "[1/2] tiny ResNet, 1 CPU rank, batch 8 … 80.0 samples/s (80.0 to 80.0), 100 ms/step"
        )
        view.launch_finished(
            cell, record.model_copy(update={"forked": True}), summarize_cell(cell_run)
        )
    assert screen.details == [
        "torchrun 'a b'",
        "torchrun 'a b' (in its forks: torchrun's agent, world size 1)",
    ]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (State.OOM, "rank 0: CUDA out of memory"),
        (State.INTERRUPTED, "interrupted while measuring"),
        (State.CRASHED, "rank 0: ValueError: [bold]no markup[/bold]"),
    ],
)
def test_a_launch_without_a_measurement_says_its_state_and_reason(
    state: State, reason: str
) -> None:
    screen, cell_run = Screen(terminal=False), first_cell()
    cell = trained(cell_run.planned)
    record = failed_record(cell, state, reason)
    with screen.view() as view:
        view.launch_finished(cell, record, summarize_cell(CellRun(cell_run.planned, (record,))))
    assert screen.text == f"[1/2] tiny ResNet, 1 CPU rank, batch 8 … {state.value}: {reason}\n"


def test_the_counter_is_as_wide_as_the_total() -> None:
    screen, cell_run = Screen(terminal=False), first_cell()
    with screen.view(total=100) as view:
        view.launch_finished(
            trained(cell_run.planned), cell_run.launches[0], summarize_cell(cell_run)
        )
    assert screen.text.startswith("[  1/100] ")


def test_a_profile_that_failed_says_why() -> None:
    screen, cell_run = Screen(terminal=False), first_cell()
    cell = trained(cell_run.planned)
    with screen.view() as view:
        view.profile_started(cell)
        view.profile_finished(cell, None, "killed: rank 0 was ended by SIGKILL")
    expected = (
        "profile of tiny ResNet, 1 CPU rank, batch 8 … no profile: killed: rank 0 was ended by "
        "SIGKILL\n"
    )
    assert screen.text == expected


def test_a_terminal_gets_a_bar_with_phase_count_and_time_left_that_is_gone_in_the_end() -> None:
    screen, cell_run = Screen(terminal=True), first_cell()
    cell, summary = trained(cell_run.planned), summarize_cell(cell_run)
    with screen.view() as view:
        assert isinstance(view, LaunchBar)
        bar = view._bar
        (task,) = bar.tasks
        view.launch_started(cell, 0)
        assert (task.completed, task.total, task.fields["left"]()) == (0, 2, "")
        view.launch_progress(Progress(phase="warming up"))
        assert task.description == "tiny ResNet, 1 CPU rank, batch 8: warming up"
        view.launch_progress(Progress(phase="measuring", samples_per_second=1234.0))
        assert task.description.endswith(": measuring, 1,234 samples/s")
        bar.refresh()
        view.launch_finished(cell, cell_run.launches[0], summary)
        view.launch_started(cell, 1)
        assert task.completed == 1
        assert re.fullmatch(r"(about \d+ s left)?", task.fields["left"]())
        view.profile_started(cell)
        assert task.description == "profile of tiny ResNet, 1 CPU rank, batch 8"
    assert "80.0 samples/s" in screen.text.replace("\n", " ")
    assert screen.text.endswith("\x1b[2K"), "the bar is wiped, the lines stay"


@pytest.mark.parametrize(
    ("content", "device", "launch", "repeats", "expected"),
    [
        ({"gpu_counts": 2}, "cuda", 1, 3, "tiny ResNet, 2 GPUs, batch 8, launch 2 of 3"),
        ({"gpu_counts": 1}, "cuda", 0, 1, "tiny ResNet, 1 GPU, batch 8"),
        (
            {"gpu_counts": 2, "scaling": "strong", "training": {"precision": "bf16"}},
            "cpu",
            0,
            1,
            "tiny ResNet, 2 CPU ranks, global batch 8, bf16",
        ),
        (
            {"gpu_counts": 2, "parallel": {"strategy": "fsdp"}},
            "cpu",
            0,
            1,
            "tiny ResNet, 2 CPU ranks, batch 8, fsdp",
        ),
    ],
)
def test_a_cell_is_named_by_model_devices_and_what_differs_from_the_defaults(
    content: dict[str, object], device: DeviceKind, launch: int, repeats: int, expected: str
) -> None:
    assert launch_label(cells(**content)[0], device, launch, repeats) == expected


def test_flags_follow_the_figures() -> None:
    screen, cell_run = Screen(terminal=False), first_cell()
    cell = trained(cell_run.planned)
    record = launch_record(cell, batches=[1.0] * 5 + [2.0] * 5)
    summary = summarize_cell(CellRun(cell_run.planned, (record,)))
    assert summary.flags, "batches that differ by a factor of two are flagged"
    with screen.view() as view:
        view.launch_finished(cell, record, summary)
    assert screen.text.rstrip().endswith(
        f"warning: {', '.join(flag.value for flag in summary.flags)}"
    )


def test_a_log_says_what_runs_while_it_runs() -> None:
    screen, cell_run = Screen(terminal=False), first_cell()
    cell = trained(cell_run.planned)
    with screen.view() as view:
        view.print_running()
        assert screen.text == "", "nothing runs"
        view.launch_started(cell, 0)
        view.print_running()
        view.launch_progress(Progress(phase="measuring", samples_per_second=80.0))
        view.print_running()
        view.launch_finished(cell, cell_run.launches[0], summarize_cell(cell_run))
        view.print_running()
    lines = screen.text.splitlines()
    assert lines[0] == "1/2 tiny ResNet, 1 CPU rank, batch 8: starting"
    assert lines[1] == "1/2 tiny ResNet, 1 CPU rank, batch 8: measuring, 80.0 samples/s"
    assert lines[2].startswith("[1/2] tiny ResNet, 1 CPU rank, batch 8 … 80.0 samples/s")
    assert len(lines) == 3


def test_eighty_columns_hold_the_counter_and_the_time_left() -> None:
    screen, cell_run = Screen(terminal=True), first_cell()
    cell = trained(cell_run.planned).model_copy(
        update={"model": "a_package.with_a_long_name:and_a_long_function"}
    )
    with screen.view(total=54, repeats=3) as view:
        assert isinstance(view, LaunchBar)
        view._bar.tasks[0].fields["left"] = lambda: "about 12 min left"
        view.launch_started(cell, 1)
        view.launch_progress(Progress(phase="measuring", samples_per_second=1234.0))
        view._bar.refresh()
    shown = [
        line
        for line in re.split(r"[\r\n]|\x1b\[[0-9;?]*[A-Za-z]", screen.text)
        if "about 12 min left" in line
    ]
    assert shown
    assert all("0/54" in line and len(line) <= COLUMNS for line in shown)
