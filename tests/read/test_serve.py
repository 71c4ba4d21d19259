"""What the live page says of a sweep."""

from __future__ import annotations

from pathlib import Path

from tests.factories import run
from torchscale.read.serve import RunPage, describe_progress, expected_launches
from torchscale.store.changes import RunningLaunch, ended_launches, running_launch
from torchscale.store.lock import locked_folder
from torchscale.store.run_folder import RunFolder

SECOND = 10**9


def test_progress_is_told_in_words_with_a_count_and_the_time_left() -> None:
    file = run({}, benchmark={"repeats": 3}).experiment
    first, second = (entry.cell.id for entry in file.plan)
    assert expected_launches(file) == {first: 3, second: 3}
    assert describe_progress(file, [], None) == "0 of 6 launches ended, the next one starts"
    running = RunningLaunch(second, 0, "measuring", 40)
    ended = [(first, 0), (second, 20 * SECOND), (first, 40 * SECOND)]
    assert describe_progress(file, ended, running) == (
        "launch 4 of 6: tiny ResNet, 2 CPU ranks, batch 8, launch 1 of 3: measuring, 40 steps; "
        "about 60 s left"
    )
    other = RunningLaunch("cell-of-another-command", 0, "starting", 1)
    assert (
        describe_progress(file, [], other)
        == "launch 1 of 6: cell-of-another-command: starting, 1 step"
    )
    everything = [(first, number * SECOND) for number in range(6)]
    assert describe_progress(file, everything, None) == "finishing"


def test_a_page_before_the_sweep_waits_for_it(tmp_path: Path) -> None:
    page = RunPage(tmp_path / "results" / "later")
    assert (page.version(), page.running()) == ("waiting", "")
    assert "No measurement has begun in" in page.render(page.version())
    folder = RunFolder.create(tmp_path / "results" / "later", run({}).experiment)
    assert page.version() != "waiting"
    assert page.running() == "", "no command holds the folder"
    with locked_folder(folder.path):
        assert page.running() == "0 of 2 launches ended, the next one starts"


def test_launches_are_read_from_the_folder(tmp_path: Path) -> None:
    content = run()
    folder = RunFolder.create(tmp_path / "run", content.experiment)
    assert (running_launch(folder.path), ended_launches(folder.path)) == (None, [])
    cell = folder.experiment.plan[0].cell
    (folder.begin_launch(cell, 2) / "progress.jsonl").write_text(
        '{"phase":"measuring","steps":40}\n'
    )
    assert running_launch(folder.path) == RunningLaunch(cell.id, 2, "measuring", 40)
    folder.finish_launch(cell, content.cells[0].launches[0].model_copy(update={"launch": 2}))
    assert running_launch(folder.path) is None
    assert [name for name, _ in ended_launches(folder.path)] == [cell.id]
