"""The file of a history: rows are only added, one file, and clear errors for whatever else lies at
its path."""

from __future__ import annotations

import os
import shutil
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.histories import THROUGHPUT, nightly
from torchscale.errors import OutputError, StoreError, UsageError
from torchscale.features.compare.history.entry import history_entry
from torchscale.features.compare.history.file import HistoryFile, open_history
from torchscale.schema.state import State


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history of three nights."""
    path = tmp_path_factory.mktemp("history") / "torchscale.sqlite"
    with open_history(path, create=True) as history:
        for number in range(3):
            assert history.add(
                history_entry(nightly(number, [[100.0, 101.0], [50.0]])), f"folder-{number}"
            )
    return path


@pytest.fixture
def file(original: Path, tmp_path: Path) -> Path:
    """A copy of it for one test."""
    return Path(shutil.copy(original, tmp_path))


def changed(path: Path, *statements: str) -> Path:
    """The file after SQL that torchscale would not run."""
    connection = sqlite3.connect(path)
    for table in ("run", "cell", "outcome", "figure", "folder"):
        connection.execute(f"DROP TRIGGER {table}_update")
        connection.execute(f"DROP TRIGGER {table}_delete")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path


def test_what_was_added_is_read(file: Path) -> None:
    with open_history(file) as history:
        content = history.content()
        assert [run.name for run in content.runs] == ["night-0", "night-1", "night-2"]
        assert [run.driver for run in content.runs] == ["550.54"] * 3
        assert len(content.cells) == 2
        assert {outcome.state for outcome in content.outcomes} == {State.OK}
        assert [figure.metric for figure in content.figures] == [THROUGHPUT] * 6
        assert history.results(content.runs[1].number) == nightly(1, [[100.0, 101.0], [50.0]])
        assert history.facts(content.runs[1].number)["host"] == "node-1"
        assert history.has_folder("folder-1")
        assert not history.has_folder("folder-9")
        assert history.content(["memory"]).figures == ()
        assert len(history.content(["throughput"]).figures) == 6


def test_adding_a_run_twice_changes_nothing(file: Path) -> None:
    before = file.read_bytes()
    with open_history(file, create=True) as history:
        assert not history.add(history_entry(nightly(1, [[100.0, 101.0], [50.0]])), "folder-1")
    assert file.read_bytes() == before


def test_a_run_that_went_on_is_added_and_counts_once(file: Path) -> None:
    with open_history(file, create=True) as history:
        assert history.add(history_entry(nightly(1, [[100.0, 101.0, 102.0], [50.0]])))
        content = history.content()
        assert len(content.runs) == 3
        assert sorted(figure.launches for figure in content.figures) == [1, 1, 1, 2, 2, 3]


@pytest.mark.parametrize("table", ["run", "cell", "outcome", "figure", "folder"])
@pytest.mark.parametrize("statement", ["DELETE FROM {}", "UPDATE {} SET rowid = rowid"])
def test_rows_are_never_changed(file: Path, table: str, statement: str) -> None:
    before = file.read_bytes()
    with (
        closing(sqlite3.connect(file)) as connection,
        pytest.raises(sqlite3.IntegrityError, match="append-only"),
    ):
        connection.execute(statement.format(table))
    assert file.read_bytes() == before


def test_it_is_one_file_that_can_be_copied(file: Path, tmp_path: Path) -> None:
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    copy = Path(shutil.copy(file, tmp_path / "copy.sqlite"))
    with open_history(file) as original, open_history(copy) as copied:
        assert copied.content() == original.content()


def test_one_that_is_only_read_is_not_written(file: Path) -> None:
    file.chmod(0o400)
    with open_history(file) as history, pytest.raises(OutputError, match="cannot be written"):
        history.add(history_entry(nightly(9, [[1.0]])))


def test_an_interrupted_run_leaves_nothing_of_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise KeyboardInterrupt

    with open_history(file, create=True) as history, monkeypatch.context() as patch:
        patch.setattr(HistoryFile, "_insert_cell", fail)
        with pytest.raises(KeyboardInterrupt):
            history.add(history_entry(nightly(9, [[1.0]])))
        assert len(history.content().runs) == 3


def test_two_commands_at_a_time(file: Path) -> None:
    with open_history(file, create=True) as one, open_history(file, create=True) as other:
        assert one.add(history_entry(nightly(7, [[1.0]])))
        assert other.add(history_entry(nightly(8, [[1.0]])))
        assert len(one.content().runs) == 5


def _foreign_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE run (a)")


NOT_A_HISTORY: dict[str, Callable[[Path], object]] = {
    "text": lambda path: path.write_text("name: config\n"),
    "another database": _foreign_database,
}


@pytest.mark.parametrize("name", NOT_A_HISTORY)
def test_another_file_is_left_alone(name: str, tmp_path: Path) -> None:
    path = tmp_path / "torchscale.sqlite"
    NOT_A_HISTORY[name](path)
    before = path.read_bytes()
    for create in (True, False):
        with (
            pytest.raises(StoreError, match="is not a history that torchscale wrote"),
            open_history(path, create=create),
        ):
            pass
    assert path.read_bytes() == before


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no history"), open_history(tmp_path / "none.sqlite"):
        pass
    with pytest.raises(UsageError, match="is a directory"), open_history(tmp_path, create=True):
        pass
    with (
        pytest.raises(OutputError, match="is not a directory"),
        open_history(tmp_path / "a" / "b", create=True),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_becomes_a_history(tmp_path: Path) -> None:
    path = tmp_path / "empty.sqlite"
    path.touch()
    with open_history(path, create=True) as history:
        assert history.content().runs == ()


def test_a_newer_version_is_named(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("PRAGMA user_version = 7")
    with pytest.raises(StoreError, match="tables of version 7"), open_history(file):
        pass


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.95])
def test_a_truncated_file_is_one_clear_error(file: Path, share: float) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(StoreError) as caught, open_history(file) as history:
        history.content()
    assert "\n" not in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE cell SET content = '{' WHERE number = 1",
        "UPDATE cell SET content = '[]' WHERE number = 1",
        "UPDATE figure SET level = -1",
        "UPDATE figure SET level = 'fast'",
        "UPDATE figure SET metric = 'luck'",
        "UPDATE outcome SET state = 'fine'",
        "UPDATE run SET name = x'00ff'",
        "DROP TABLE figure",
        "ALTER TABLE figure DROP COLUMN low",
    ],
)
def test_damaged_rows_are_one_clear_error(file: Path, statement: str) -> None:
    changed(file, statement)
    with pytest.raises(StoreError, match="is damaged") as caught, open_history(file) as history:
        history.content()
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    "packed", [b"", b"no zlib", zlib.compress(b"{}"), zlib.compress(b"0" * (65 * 2**20))]
)
def test_damaged_results_of_a_run(file: Path, packed: bytes) -> None:
    changed(file, f"UPDATE run SET results = x'{packed.hex()}', facts = '[1]'")
    with open_history(file) as history:
        with pytest.raises(StoreError, match="the results of run 1"):
            history.results(1)
        with pytest.raises(StoreError, match="is damaged"):
            history.facts(1)
        with pytest.raises(StoreError, match="the results of run 99"):
            history.results(99)


def test_a_view_in_place_of_a_table_is_not_read(file: Path) -> None:
    """It may never end."""
    endless = (
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS run, x AS cell"
    )
    columns = ["state", "reason", "device", "flags", "conditions", "measured_at"]
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DROP TABLE outcome")
        rest = ", ".join(f"'' AS {name}" for name in columns)
        connection.execute(f"CREATE VIEW outcome AS {endless}, {rest} FROM n")
    with pytest.raises(StoreError, match="the table outcome is not complete"), open_history(file):
        pass


def test_a_pipe_is_no_history(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="is not a regular file"), open_history(tmp_path / "pipe"):
        pass
