"""What processes of a job leave as they end: real programs without torch, with the collector's
start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torchscale.features.watch.ends.files import EndFiles
from torchscale.features.watch.job.program_processes import watching_environment
from torchscale.schema.watch.ends import ProcessEnd
from torchscale.worker.watch import ends

pytestmark = pytest.mark.slow


def _run(
    tmp_path: Path, program: str, **variables: str
) -> tuple[list[dict[str, Any]], subprocess.CompletedProcess[str]]:
    """What a program left, and how it ended; it ends and prints as it does by itself."""
    job, script = tmp_path / "job", tmp_path / "train.py"
    job.mkdir()
    script.write_text(program)
    plain = {**os.environ, **variables}
    command = [sys.executable, str(script)]
    alone, watched = (
        subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        for environment in (plain, watching_environment(job, plain))
    )
    assert (watched.returncode, watched.stdout) == (alone.returncode, alone.stdout)
    assert watched.stderr == alone.stderr
    left = [json.loads(path.read_text()) for path in sorted((job / "ends").glob("*"))]
    assert len(EndFiles(job).of_attempt(0)) == len([end for end in left if end["attempt"] == 0])
    assert list(job.glob("problem-*")) == []
    return left, watched


def test_a_program_that_dies_at_import_leaves_its_exception(tmp_path: Path) -> None:
    left, _ = _run(tmp_path, "import os\nimport no_such_module\n", RANK="3", WORLD_SIZE="4")

    (end,) = left
    assert (end["kind"], end["type"]) == ("raised", "ModuleNotFoundError")
    assert end["text"] == "No module named 'no_such_module'"
    assert end["frames"][-1] == [str(tmp_path / "train.py"), 2, "<module>"]
    assert (end["rank"], end["world_size"], end["attempt"]) == (3, 4, 0)


def test_the_innermost_frame_is_the_last_and_classes_have_their_modules(tmp_path: Path) -> None:
    program = """
import json
def load():
    json.loads("{")
load()
"""
    (end,), _ = _run(tmp_path, program, TORCHELASTIC_RESTART_COUNT="2")

    assert end["type"] == "json.decoder.JSONDecodeError"
    assert [frame[2] for frame in end["frames"]][:2] == ["<module>", "load"]
    assert end["attempt"] == 2


def test_code_that_cannot_be_parsed_has_its_own_line(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("x = 1\ndef (\n")
    (end,), _ = _run(tmp_path, "import model\n")

    assert end["frames"][-1] == [str(tmp_path / "model.py"), 2, "<module>"]


@pytest.mark.parametrize(
    "program",
    [
        "pass",
        "import sys; sys.exit(4)",
        "import sys; sys.exit('no such file')",
        "import os; os._exit(3)",
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass",
        "import multiprocessing as m\nm.Process(target=int).start()",
    ],
    ids=["ends", "code", "text", "at once", "caught", "child that ends"],
)
def test_a_program_that_raises_nothing_leaves_nothing(tmp_path: Path, program: str) -> None:
    assert _run(tmp_path, program)[0] == []


def test_what_cannot_be_shown_is_left_out(tmp_path: Path) -> None:
    program = """
class Bad(Exception):
    def __str__(self):
        raise RuntimeError("no")
raise Bad
"""
    (end,), _ = _run(tmp_path, program)
    assert (end["type"], end["text"]) == ("Bad", "its text cannot be shown")


def test_a_long_text_has_both_ends_and_recursion_its_innermost_frames(tmp_path: Path) -> None:
    program = """
def deep(n):
    if n == 0:
        raise ValueError("a" * 5_000 + "b" * 5_000)
    deep(n - 1)
deep(300)
"""
    (end,), _ = _run(tmp_path, program)

    assert end["text"] == "a" * 1_000 + " … " + "b" * 1_000
    assert len(end["frames"]) == 100


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_process_of_multiprocessing_leaves_what_it_raised(tmp_path: Path, method: str) -> None:
    program = f"""
import multiprocessing
def work():
    raise KeyError("lost")
if __name__ == "__main__":
    process = multiprocessing.get_context("{method}").Process(target=work, name="worker")
    process.start()
    process.join()
"""
    (end,), _ = _run(tmp_path, program)

    assert (end["type"], end["text"], end["frames"][-1][2]) == ("KeyError", "'lost'", "work")


def test_an_exit_within_a_handler_keeps_what_was_raised(tmp_path: Path) -> None:
    """As the processes of torch.multiprocessing.spawn end."""
    program = """
import multiprocessing, sys
def work():
    try:
        raise KeyError("lost")
    except Exception:
        sys.exit(1)
if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=work)
    process.start()
    process.join()
"""
    (end,), _ = _run(tmp_path, program)
    assert end["type"] == "KeyError"


def test_a_process_that_a_rank_started_is_told_apart(tmp_path: Path) -> None:
    noted = {ends.RANK_VARIABLE: "4711:1:2", "RANK": "1", "WORLD_SIZE": "2"}
    (end,), _ = _run(tmp_path, "1 / 0", **noted)
    assert (end["of_rank"], end["attempt"]) == (4711, 0)


def test_a_rank_that_one_which_trained_alone_has_started_is_of_the_next_attempt(
    tmp_path: Path,
) -> None:
    noted = {ends.RANK_VARIABLE: "4711:0:1", "RANK": "1", "WORLD_SIZE": "2"}
    (end,), _ = _run(tmp_path, "1 / 0", **noted)
    assert (end["of_rank"], end["attempt"]) == (None, 1)


def test_an_interactive_program_leaves_few(tmp_path: Path) -> None:
    program = """
import code
code.InteractiveInterpreter().runsource
console = code.InteractiveInterpreter()
console.write = lambda text: None
from torchscale_collector import ends
for number in range(9):
    console.runsource(f"raise ValueError({number})")
    ends.look()
"""
    job, script = tmp_path / "job", tmp_path / "train.py"
    job.mkdir()
    script.write_text(program)
    subprocess.run(
        [sys.executable, str(script)], env=watching_environment(job, os.environ), check=True
    )
    assert len(list((job / "ends").iterdir())) == 3


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    (end,), _ = _run(tmp_path, "raise SystemError('x')", LOCAL_RANK="1")
    assert ProcessEnd.model_validate_json(json.dumps(end)).local_rank == 1
