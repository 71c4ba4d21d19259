"""Verdicts from what NCCL's watchdog wrote into the logs of ranks."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.features.watch.hang.test_devices import recorded
from tests.features.watch.hang.test_flight_recorder import dump
from tests.features.watch.hang.watchdog_text import (
    VERSIONS,
    Version,
    asked_to_dump,
    broken,
    ended,
    timed_out,
)
from torchscale.errors import UsageError
from torchscale.features.watch.hang import log_files
from torchscale.features.watch.hang.collective_log import CollectiveLog, ProcessGroup
from torchscale.features.watch.hang.dumps import read_directory
from torchscale.features.watch.hang.explain import explain_hang
from torchscale.features.watch.hang.log_files import RankLog
from torchscale.features.watch.hang.watchdog.logs import WatchdogLogs, read_watchdog_logs
from torchscale.features.watch.hang.watchdog.record import (
    DEFAULT_GROUP,
    FailedWork,
    GroupStatus,
    RankWatchdog,
)
from torchscale.schema.launch.hang import Autopsy, HangCause, RankCondition
from torchscale.schema.profiles.finding import Confidence

DATA = Path(__file__).parents[4] / "data" / "nccl" / "timeouts"


def verdict(directory: Path) -> Autopsy:
    evidence, facts = read_directory(directory)
    return explain_hang(evidence, facts.notes)


def write(path: Path, *parts: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(("step 3 loss 0.2\n", *parts)))
    return path


def torchrun(
    directory: Path, texts: dict[int, str], *, attempt: int = 0, run: str = "j_x1"
) -> Path:
    folder = directory / run / f"attempt_{attempt}"
    for rank, text in texts.items():
        write(folder / str(rank) / "stderr.log", text)
        write(folder / str(rank) / "stdout.log")
    return folder


def one_missing(number: int = 54, size: int = 4, missing: int = 2) -> dict[int, str]:
    texts = {rank: timed_out(rank, number, 84, number - 1) for rank in range(size)}
    texts[missing] = asked_to_dump(missing, number - 1, number - 1)
    return texts


def test_the_rank_that_enqueued_less_never_called_it(tmp_path: Path) -> None:
    torchrun(tmp_path, one_missing())
    found = verdict(tmp_path)
    assert found.summary == "all_reduce #54 (6,400 elements): rank 2 never called it"
    assert (found.cause, found.ranks, found.confidence) == (
        HangCause.RANK_MISSING,
        (2,),
        Confidence.MEDIUM,
    )
    assert found.collective is not None
    assert (found.collective.elements, found.collective.payload_bytes) == (6400, None)
    said = "\n".join(found.evidence)
    assert "ranks 0, 1 and 3: NCCL's watchdog: all_reduce #54 timed out after 10 min 00 s" in said
    assert "rank 2: NCCL's watchdog: last enqueued #53, last completed #53" in said


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("missing", [0, 3])
def test_the_forms_of_all_versions_are_read(tmp_path: Path, version: Version, missing: int) -> None:
    for rank in range(5):
        text = timed_out(rank, 7, 9, 6, version=version)
        if rank == missing:
            text = asked_to_dump(rank, 6, 6, version=version)
        if rank == missing and version == "2.1":
            text = ""
        write(tmp_path / f"rank_{rank}.log", text)
    found = verdict(tmp_path)
    assert (found.cause, found.ranks) == (HangCause.RANK_MISSING, (missing,))
    assert found.collective is not None
    assert (found.collective.sequence, found.collective.elements) == (7, 6400)
    said = any("name no process group" in line for line in found.evidence)
    assert said == (version == "2.1")
    if version == "2.1":
        assert found.confidence is Confidence.LOW, "it only left no line"
        assert found.summary.endswith(f"rank {missing} left no line of NCCL's watchdog")


@pytest.mark.parametrize(
    "name",
    ["rank_{}.log", "worker-{}.err", "slurm-4711_{}.out", "{}.log", "train.{}.stderr", "err.{}"],
)
def test_files_beside_each_other_are_read_by_the_ranks_in_their_names(
    tmp_path: Path, name: str
) -> None:
    for rank, text in one_missing(missing=1).items():
        write(tmp_path / name.format(rank), text.replace(f"[rank{rank}]:", ""))
    assert verdict(tmp_path).ranks == (1,)


@pytest.mark.parametrize("version", ["2.1", "2.8"])
def test_one_log_of_several_ranks_is_told_apart_by_its_lines(
    tmp_path: Path, version: Version
) -> None:
    texts = [timed_out(rank, 7, 9, 6, version=version) for rank in (3, 0, 1)]
    write(tmp_path / "slurm-4711.out", *texts)
    found = verdict(tmp_path)
    assert (found.ranks, found.confidence) == ((2,), Confidence.LOW)
    assert found.summary.endswith("rank 2 left no line of NCCL's watchdog")
    assert len(found.positions) == 4


def test_a_log_of_each_machine_is_not_taken_for_one_of_a_rank(tmp_path: Path) -> None:
    texts = one_missing(size=6, missing=4)
    for node in (0, 1):
        write(tmp_path / f"log_{node}.txt", *(texts[3 * node + local] for local in range(3)))
    found = verdict(tmp_path)
    assert (found.ranks, len(found.positions)) == ((4,), 6)
    old = tmp_path / "old"
    for node in (0, 1):
        ranks = [rank for rank in range(3 * node, 3 * node + 3) if rank != 4]
        write(old / f"{node}.log", *(timed_out(rank, 7, 9, 6, version="2.1") for rank in ranks))
    found = verdict(old)
    assert (found.ranks, len(found.positions)) == ((4,), 6)


@pytest.mark.parametrize("name", ["{}/stderr.log", "rank_{}/out.txt", "worker-{}/log.out"])
def test_folders_named_after_ranks_are_read_without_torchruns_names(
    tmp_path: Path, name: str
) -> None:
    for rank, text in one_missing(missing=1).items():
        write(tmp_path / name.format(rank), text)
    assert verdict(tmp_path).ranks == (1,)


def test_the_latest_attempt_counts(tmp_path: Path) -> None:
    torchrun(tmp_path, one_missing(number=9, missing=0), attempt=0)
    torchrun(tmp_path, one_missing(number=31, missing=3), attempt=2)
    torchrun(tmp_path, one_missing(number=20, missing=1), attempt=1)
    found = verdict(tmp_path)
    assert (found.ranks, found.collective and found.collective.sequence) == ((3,), 31)
    assert verdict(tmp_path / "j_x1").ranks == (3,)
    assert verdict(tmp_path / "j_x1" / "attempt_0").ranks == (0,)


def test_the_newest_of_several_runs_counts(tmp_path: Path) -> None:
    old = torchrun(tmp_path, one_missing(missing=0), run="a")
    torchrun(tmp_path, one_missing(missing=3), run="b")
    for path in old.rglob("*.log"):
        os.utime(path, (1_700_000_000,) * 2)
    assert verdict(tmp_path).ranks == (3,)


def test_machines_that_share_a_directory_are_one_job(tmp_path: Path) -> None:
    """Each torchrun makes a folder of its own, in which ranks are numbered from 0."""
    texts = one_missing(size=6, missing=4)
    torchrun(tmp_path, {rank: texts[rank] for rank in range(3)}, run="j_1")
    torchrun(tmp_path, {rank - 3: texts[rank] for rank in range(3, 6)}, run="j_2")
    found = verdict(tmp_path)
    assert (found.ranks, len(found.positions)) == ((4,), 6)
    silent = tmp_path / "silent"
    torchrun(silent, {0: texts[0], 1: texts[1], 2: texts[2]}, run="j_1")
    torchrun(silent, {0: texts[3], 1: "", 2: texts[5]}, run="j_2")
    found = verdict(silent)
    assert (found.ranks, found.confidence) == ((4,), Confidence.LOW)


def test_a_log_that_goes_on_with_another_attempt(tmp_path: Path) -> None:
    first, second = one_missing(number=9, missing=0), one_missing(number=31, missing=3)
    down = "[rank{0}]:[E ProcessGroupNCCL.cpp:6] [Rank {0}] watchdog thread terminated with exception\n"
    for rank in range(4):
        write(tmp_path / f"rank_{rank}.log", first[rank], down.format(rank), second[rank])
    write(tmp_path / "rank_3.log", first[3], down.format(3), second[3])
    found = verdict(tmp_path)
    assert found.collective is not None and found.collective.sequence == 31


def test_what_is_said_again_when_the_process_ends_adds_nothing(tmp_path: Path) -> None:
    texts = one_missing(missing=1)
    for rank, text in texts.items():
        caught = text.splitlines()[0].partition("Watchdog caught")[2]
        again = (
            f"  what():  [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Process group watchdog thread "
            f"terminated with exception: [Rank {rank}] Watchdog caught{caught}\n"
        )
        write(tmp_path / f"rank_{rank}.log", text, again if rank != 1 else "")
    found = verdict(tmp_path)
    assert found.ranks == (1,)
    assert found.evidence == verdict(tmp_path).evidence


def test_ranks_that_called_different_collectives(tmp_path: Path) -> None:
    for rank in range(3):
        operation = "BROADCAST" if rank == 1 else "ALLREDUCE"
        write(tmp_path / f"rank_{rank}.log", timed_out(rank, 7, 7, 6, operation=operation))
    found = verdict(tmp_path)
    assert (found.cause, found.ranks) == (HangCause.COLLECTIVE_MISMATCH, (1,))
    for rank in range(3):
        elements = 100 if rank == 2 else 6400
        write(tmp_path / f"rank_{rank}.log", timed_out(rank, 7, 7, 6, elements=elements))
    found = verdict(tmp_path)
    assert (found.cause, found.ranks) == (HangCause.SIZE_MISMATCH, (2,))
    assert "rank 2 called all_reduce of 100 elements" in found.summary


def test_a_collective_that_all_enqueued_names_nobody(tmp_path: Path) -> None:
    for rank in range(3):
        write(tmp_path / f"rank_{rank}.log", timed_out(rank, 7, 9, 6))
    found = verdict(tmp_path)
    assert (found.cause, found.ranks) == (HangCause.UNKNOWN, ())
    assert found.summary.endswith(
        "every rank whose log tells of it has called it (ranks 0-2), and none has left"
    )


def test_a_rank_of_which_only_the_counts_are_known_is_in_the_first_that_is_not_complete(
    tmp_path: Path,
) -> None:
    write(tmp_path / "rank_0.log", timed_out(0, 7, 9, 6))
    write(tmp_path / "rank_1.log", asked_to_dump(1, 9, 6))
    write(tmp_path / "rank_2.log", asked_to_dump(2, -1, -1))
    found = verdict(tmp_path)
    assert found.ranks == (2,), "it has enqueued nothing"
    assert any(line.startswith("rank 1: in collective #7") for line in found.evidence)
    assert any("rank 2: NCCL's watchdog: last enqueued none" in line for line in found.evidence)


def test_numbers_that_were_never_set_are_not_believed(tmp_path: Path) -> None:
    for rank in (0, 1):
        write(tmp_path / f"rank_{rank}.log", timed_out(rank, 1, 1, 76280750235782912))
    found = verdict(tmp_path)
    assert not any("last completed" in line for line in found.evidence)


def test_the_ranks_of_a_group_follow_from_their_places_in_it(tmp_path: Path) -> None:
    """Lines of a group give the rank within it; torch sorts the ranks of a group."""
    group = {"group": "37", "description": "TENSOR"}
    for rank, place in ((4, 0), (5, 1), (7, 3)):
        text = timed_out(rank, 12, 13, 11, place=place, **group)  # type: ignore[arg-type]
        write(tmp_path / f"rank_{rank}.log", text)
    for rank in (0, 1, 2, 3, 6):
        write(tmp_path / f"rank_{rank}.log", asked_to_dump(rank, 3, 3, of=5))
    found = verdict(tmp_path)
    assert (found.ranks, found.confidence) == ((6,), Confidence.LOW)
    assert found.collective is not None
    assert (found.collective.group, found.collective.group_ranks) == ("TENSOR", ())


def test_what_is_not_said_of_a_group_is_not_concluded(tmp_path: Path) -> None:
    """The others were told of a timeout, and say what they called in the default group."""
    write(tmp_path / "rank_4.log", timed_out(4, 12, 13, 11, place=0, group="37"))
    for rank in (0, 1, 2, 3):
        write(tmp_path / f"rank_{rank}.log", asked_to_dump(rank, 3, 3, of=4))
    found = verdict(tmp_path)
    assert (found.cause, found.ranks) == (HangCause.UNKNOWN, ())


def test_two_groups_in_each_of_which_one_rank_of_two_waits(tmp_path: Path) -> None:
    write(tmp_path / "rank_0.log", timed_out(0, 5, 5, 4, place=0, group="1", description="dp"))
    write(tmp_path / "rank_1.log", timed_out(1, 8, 8, 7, place=1, group="2", description="tp"))
    found = verdict(tmp_path)
    assert found.cause is not HangCause.RANK_MISSING, "both wait"


def test_old_lines_of_a_rank_in_another_group_are_not_compared(tmp_path: Path) -> None:
    for rank in (6, 7):
        text = timed_out(rank, 100 + rank, 0, 0, version="2.1", place=rank - 6)
        write(tmp_path / f"rank_{rank}.log", text)
    found = verdict(tmp_path)
    assert (found.cause, found.ranks) == (HangCause.UNKNOWN, ())


def test_a_rank_whose_peers_lost_it_has_ended(tmp_path: Path) -> None:
    torchrun(tmp_path, {0: broken(0, 4), 1: ended(1), 2: broken(2, 4)})
    found = verdict(tmp_path)
    assert (found.cause, found.ranks) == (HangCause.RANK_GONE, (1,))
    assert found.summary == "all_reduce #4 (6,400 elements): rank 1 has ended"
    assert any("remote process exited or there was a network error" in x for x in found.evidence)
    late = tmp_path / "late"
    torchrun(late, {0: broken(0, 4), 1: ended(1, time="09:31:00.0"), 2: broken(2, 4)})
    assert verdict(late).cause is HangCause.RANK_MISSING, "it ended later than they failed"
    at_once = tmp_path / "at_once"
    torchrun(at_once, {0: broken(0, 4), 1: ended(1, time="09:29:06.5"), 2: broken(2, 4)})
    assert verdict(at_once).cause is HangCause.RANK_MISSING, "nothing tells which was first"
    silent = tmp_path / "silent"
    torchrun(silent, {0: broken(0, 4), 1: "", 2: broken(2, 4)})
    found = verdict(silent)
    assert (found.cause, found.ranks, found.confidence) == (
        HangCause.RANK_MISSING,
        (1,),
        Confidence.LOW,
    )


def test_what_may_be_sends_is_less_sure(tmp_path: Path) -> None:
    torchrun(
        tmp_path,
        {
            0: timed_out(0, 7, 7, 6, operation="COALESCED"),
            1: timed_out(1, 7, 7, 6, operation="COALESCED"),
            2: asked_to_dump(2, 6, 6),
        },
    )
    assert verdict(tmp_path).confidence is Confidence.LOW
    alone = tmp_path / "alone"
    torchrun(alone, {0: timed_out(0, 7, 7, 6, operation="RECV"), 1: asked_to_dump(1, 6, 6)})
    assert verdict(alone).ranks == (), "sends and receives are not judged"


def test_logs_tell_of_the_ranks_that_left_no_dump(tmp_path: Path) -> None:
    """A watchdog names what it knows in words of its own, and without types."""
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
    sizes = [[6400]]
    for rank in (0, 1):
        entries = [recorded(6, "completed"), recorded(7, "scheduled", input_sizes=sizes)]
        content = dump(*entries, pg_config=config)
        (tmp_path / f"trace_{rank}").write_text(json.dumps(content))
    torchrun(tmp_path, {2: timed_out(2, 7, 9, 6), 3: asked_to_dump(3, 6, 6)})
    found = verdict(tmp_path)
    assert (found.cause, found.ranks, found.confidence) == (
        HangCause.RANK_MISSING,
        (3,),
        Confidence.MEDIUM,
    )
    assert found.summary.startswith("all_reduce #7 (25.0 KiB): rank 3 never called it")
    torchrun(tmp_path, {2: timed_out(2, 7, 9, 6, operation="BROADCAST"), 3: timed_out(3, 7, 9, 6)})
    assert (verdict(tmp_path).cause, verdict(tmp_path).ranks) == (
        HangCause.COLLECTIVE_MISMATCH,
        (2,),
    )


def test_logs_are_not_needed_where_every_rank_left_a_dump(tmp_path: Path) -> None:
    for rank, state in ((0, "scheduled"), (1, "completed")):
        entries = [recorded(6, "completed"), recorded(7, state)][: 2 - rank]
        (tmp_path / f"trace_{rank}").write_text(json.dumps(dump(*entries)))
    write(tmp_path / "rank_0.log", timed_out(0, 99, 99, 98))
    found = verdict(tmp_path)
    assert (found.ranks, found.confidence) == ((1,), Confidence.HIGH)
    assert not any("watchdog" in line for line in found.evidence)


def test_where_the_collective_was_called_is_the_place(tmp_path: Path) -> None:
    stack = (
        "[rank0]:[E624 09:29:08.1 ProcessGroupNCCL.cpp:733] Stack trace of the failed collective: \n"
        "#0 all_reduce from /venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:9\n"
        "#1 step from /home/me/train.py:31\n\n"
    )
    write(tmp_path / "rank_0.log", timed_out(0, 7, 9, 6), stack)
    write(tmp_path / "rank_1.log", asked_to_dump(1, 6, 6))
    assert verdict(tmp_path).positions[0].place == "train.py:31 `step`"


@pytest.mark.parametrize(
    ("folder", "cause", "named", "said"),
    [
        ("absent", HangCause.RANK_MISSING, (1,), "all_reduce #4 (1,048,576 elements): rank 1"),
        ("coalesced", HangCause.RANK_MISSING, (1,), "all_reduce #5 (1,048,576 elements): rank 1"),
        ("group", HangCause.RANK_MISSING, (0,), "broadcast #4 (262,144 elements): rank 0"),
        ("operation", HangCause.RANK_GONE, (1,), "all_reduce #4 (1,048,576 elements): rank 1"),
    ],
)
def test_logs_of_real_timeouts(
    folder: str, cause: HangCause, named: tuple[int, ...], said: str
) -> None:
    found = verdict(DATA / folder / "logs")
    assert (found.cause, found.ranks) == (cause, named)
    assert found.summary.startswith(said)


@pytest.mark.parametrize(
    ("folder", "cause", "named"),
    [
        ("absent", HangCause.RANK_MISSING, (1,)),
        ("coalesced", HangCause.RANK_MISSING, (1,)),
        ("group", HangCause.ORDER, (0, 1)),
        ("operation", HangCause.RANK_GONE, (1,)),
    ],
)
def test_dumps_of_real_timeouts(folder: str, cause: HangCause, named: tuple[int, ...]) -> None:
    found = verdict(DATA / folder)
    assert (found.cause, found.ranks) == (cause, named)


def test_logs_without_a_watchdog_are_an_error_that_says_what_is_read(tmp_path: Path) -> None:
    torchrun(tmp_path, {0: "Traceback\n", 1: ""})
    with pytest.raises(UsageError, match=r"its logs \(4\).*NCCL's watchdog") as caught:
        read_directory(tmp_path)
    assert "torchrun's --log-dir" in str(caught.value.hint)
    assert "(.gz) and UTF-16 are not read" in str(caught.value.hint)
    assert "regular file" not in str(caught.value)


def test_a_directory_named_like_a_dump_is_none(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    (tmp_path / "trace_1").mkdir()
    with pytest.raises(UsageError, match="holds no dump") as caught:
        read_directory(tmp_path)
    assert "regular file" not in str(caught.value)


def test_what_ras_said_is_evidence_where_it_was_saved(tmp_path: Path) -> None:
    torchrun(tmp_path, one_missing())
    (tmp_path / "ncclras.txt").write_text(
        "NCCL version 2.28.9\n\nErrors\n======\n\n#0-0 (27a0) INCOMPLETE\n"
        "  Missing communicator data from 1 process\n\nWarnings\n========\n\n"
        "#0-0 (27a0) MISMATCH\n  6 ranks have launched up to operation 66\n\nOther\n=====\n#1 x\n"
    )
    found = verdict(tmp_path)
    assert "NCCL RAS: #0-0 (27a0) INCOMPLETE; Missing communicator data from 1 process" in (
        found.evidence
    )
    assert not any("#1 x" in line for line in found.evidence)


def test_another_attempt_is_seen_though_the_first_was_killed(tmp_path: Path) -> None:
    for first, second, missing in ((9, 31, 3), (31, 9, 1), (9, 31, 0)):
        old, new = one_missing(number=first, missing=0), one_missing(second, missing=missing)
        for rank in range(4):
            write(tmp_path / f"rank_{rank}.log", old[rank], new[rank])
        found = verdict(tmp_path)
        assert (found.ranks, found.collective and found.collective.sequence) == ((missing,), second)


def test_of_several_that_time_out_in_one_process_the_first_counts(tmp_path: Path) -> None:
    later = [timed_out(rank, 8, 9, 6) for rank in range(2)]
    for rank in range(2):
        write(tmp_path / f"rank_{rank}.log", timed_out(rank, 7, 9, 6), later[rank])
    write(tmp_path / "rank_2.log", asked_to_dump(2, 6, 6))
    found = verdict(tmp_path)
    assert (found.ranks, found.collective and found.collective.sequence) == ((2,), 7)


@pytest.mark.parametrize(
    ("last", "error"),
    [
        ("RuntimeError: boom\n", "RuntimeError: boom"),
        ("[rank1]: torch.OutOfMemoryError: CUDA out of memory\n\n", "torch.OutOfMemoryError: CUDA"),
        ("KeyboardInterrupt\n[rank1]:[W624 09:29:05.0 a.cpp:1] Warning: x\n", "KeyboardInterrupt"),
    ],
)
def test_the_exception_with_which_a_log_ends_is_told(tmp_path: Path, last: str, error: str) -> None:
    torchrun(tmp_path, {0: broken(0, 4), 1: f"Traceback\n{last}", 2: broken(2, 4)})
    found = verdict(tmp_path)
    assert (found.cause, found.ranks) == (HangCause.RANK_GONE, (1,))
    assert any(f"its log ends with {error}" in line for line in found.evidence)
    waiting = tmp_path / "waiting"
    torchrun(waiting, {0: timed_out(0, 4, 4, 3), 1: f"Traceback\n{last}"})
    assert verdict(waiting).cause is HangCause.RANK_MISSING, "it may hang while it ends"


def test_a_log_without_an_exception_at_its_end_tells_of_none(tmp_path: Path) -> None:
    text = "ValueError: caught\n" + "step done, no Error here\n" * 9
    torchrun(tmp_path, {0: broken(0, 4), 1: text})
    found = verdict(tmp_path)
    assert found.cause is HangCause.RANK_MISSING
    assert not any("its log ends" in line for line in found.evidence)


def test_ranks_whose_watchdog_only_saw_the_signal_of_another_are_not_silent(tmp_path: Path) -> None:
    observed = (
        "[rank{0}]:[E624 09:29:07.0 ProcessGroupNCCL.cpp:1849] [PG ID 0 PG GUID 0(default_pg) Rank "
        "{0}] Observed flight recorder dump signal from another rank via TCPStore.\n"
    )
    texts = [timed_out(rank, 7, 7, 6, elements=1) for rank in (1, 3)]
    write(tmp_path / "all.log", *texts, *(observed.format(rank) for rank in (0, 2)))
    found = verdict(tmp_path)
    assert (found.ranks, found.confidence) == ((0, 2), Confidence.LOW)
    assert found.summary == "all_reduce #7 (1 element): ranks 0 and 2 left no count of collectives"


def test_the_last_that_a_device_started_tells_which_is_behind(tmp_path: Path) -> None:
    for rank in range(4):
        started = 6 if rank == 2 else 7
        text = timed_out(rank, 7, 9, 6, version="2.13").replace(
            "last started work: 7", f"last started work: {started}"
        )
        write(tmp_path / f"rank_{rank}.log", text)
    found = verdict(tmp_path)
    assert (found.cause, found.ranks) == (HangCause.DEVICE_BEHIND, (2,))
    unmeasured = tmp_path / "unmeasured"
    for rank in range(2):
        text = timed_out(rank, 7, 9, 6, version="2.13").replace(
            "started work: 7", "started work: -1"
        )
        write(unmeasured / f"rank_{rank}.log", text)
    assert verdict(unmeasured).cause is HangCause.UNKNOWN


FAILED = FailedWork(11, "ALLREDUCE", 8)


def aside(other: GroupStatus | None = None) -> WatchdogLogs:
    """Of four ranks, the third being in no collective that failed; ``other`` is what rank 3 says of
    a third group."""
    ranks = {
        0: RankWatchdog(groups={"1": GroupStatus("dp", 0, failed=FAILED)}),
        1: RankWatchdog(groups={"2": GroupStatus("tp", 0, failed=FAILED)}),
        3: RankWatchdog(groups={"1": GroupStatus("dp", 2, failed=FAILED)}),
    }
    if other is not None:
        ranks[3].groups = {"1": GroupStatus("dp", 2), "3": other}
    return WatchdogLogs(ranks, frozenset(range(4)))


def test_a_rank_aside_is_taken_for_a_member_of_the_group_with_a_place_for_it() -> None:
    found = aside().evidence(range(4), [])
    for rank in (0, 3):
        log = found[rank].log
        assert log is not None
        assert log.groups["1"] == ProcessGroup("dp", (0, 2, 3), is_inferred=True)
    assert found[2].silence == "is in no collective that failed, as all other ranks are"
    assert (found[2].log, found[2].problem) == (None, "no line of NCCL's watchdog")
    assert all(evidence.is_from_log for evidence in found.values())


def test_a_group_whose_ranks_a_recorder_has_stays_as_it_is() -> None:
    recorded_group = ProcessGroup("dp", (0, 3, 9))
    found = aside().evidence(range(4), [CollectiveLog((), {"1": recorded_group})])
    log = found[0].log
    assert log is not None and log.groups["1"] == recorded_group


def test_a_member_that_tells_of_no_collective_of_the_group_stays_as_it_is() -> None:
    found = aside(GroupStatus("pp", 1, failed=FAILED)).evidence(range(4), [])
    log = found[3].log
    assert log is not None and list(log.groups) == ["3"]
    found = aside(GroupStatus("pp", 1)).evidence(range(4), [])
    assert (found[3].log, found[3].problem) == (None, "no count of its collectives")


@pytest.mark.parametrize(
    ("watchdog", "failures", "is_gone"),
    [
        (RankWatchdog(exited_at=4.0), (5.0, 6.0), True),
        (RankWatchdog(exited_at=5.0), (5.0, 6.0), False),
        (RankWatchdog(exited_at=5.5), (5.0, 6.0), False),
        (RankWatchdog(exited_at=4.0), (), False),
        (RankWatchdog(exited_at=4.0), (None, 6.0), True),
        (RankWatchdog(exited_at=4.0, failed_at=4.5), (5.0,), False),
        (RankWatchdog(), (5.0,), False),
    ],
)
def test_a_rank_has_gone_that_ended_before_any_collective_failed(
    watchdog: RankWatchdog, failures: tuple[float | None, ...], is_gone: bool
) -> None:
    ranks = {rank: RankWatchdog(failed_at=failed_at) for rank, failed_at in enumerate(failures, 1)}
    logs = WatchdogLogs({0: watchdog, **ranks}, frozenset({0}))
    condition = logs.evidence([0], [])[0].condition
    assert condition is (RankCondition.GONE if is_gone else RankCondition.RUNNING)


def said_of(directory: Path, *texts: str) -> WatchdogLogs:
    """What is said in one log that has no rank in its name."""
    return read_watchdog_logs([[RankLog(write(directory / "all.log", *texts))]])


def test_a_peer_is_lost_where_a_communicator_says_so(tmp_path: Path) -> None:
    assert said_of(tmp_path, broken(0, 4)).lost_a_peer
    assert not said_of(tmp_path, timed_out(0, 4, 4, 3)).lost_a_peer
    assert not said_of(tmp_path, asked_to_dump(0, 4, 3)).lost_a_peer


def test_what_is_said_of_a_rank(tmp_path: Path) -> None:
    def notes(text: str) -> list[str]:
        said = said_of(tmp_path, text).notes
        return [note.removeprefix("rank 0: NCCL's watchdog: ") for note in said]

    text = timed_out(0, 1, 1, 0, version="2.13").replace("600000", "30000")
    assert notes(text) == [
        "all_reduce #1 timed out after 30.0 s; last enqueued #1, last started #1, last completed "
        "none"
    ]
    unmeasured = text.replace("started work: 1", "started work: 0")
    assert notes(unmeasured.replace(", Timeout(ms)=30000", "")) == [
        "all_reduce #1 timed out; last enqueued #1, last completed none"
    ]
    observed = (
        "[rank0]:[E624 09:29:07.0 ProcessGroupNCCL.cpp:1849] [PG ID 3 PG GUID 7(dp) Rank 0] Observed "
        "flight recorder dump signal from another rank via TCPStore.\n"
    )
    assert notes(observed + asked_to_dump(0, 1, 1)) == ["last enqueued #1, last completed #1"]
    caught = observed.replace("Observed", "WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=7")
    assert notes(caught) == ["all_reduce #5 timed out (group dp)"]
    assert notes(asked_to_dump(0, 1, 1)) == ["last enqueued #1, last completed #1"]
    assert notes(asked_to_dump(0, 0, -1)) == ["last enqueued none, last completed none"]
    assert notes(asked_to_dump(0, 3, 4)) == ["last enqueued #3"], "a count that was never set"
    named = timed_out(0, 5, 5, 4, group="7", description="dp")
    assert notes(named)[0].endswith("; last enqueued #5, last completed #4 (group dp)")
    assert notes(named.replace("(dp)", ""))[0].endswith("last completed #4 (group 7)")
    assert notes(broken(0, 4))[0].startswith(
        "all_reduce #4 failed: NCCL error: remote process exited or there was a network error"
    )


def test_32_lines_of_watchdogs_are_shown(tmp_path: Path) -> None:
    texts = [asked_to_dump(rank, 5 + rank, 5) for rank in range(34)]
    assert len(said_of(tmp_path, *texts[:32]).notes) == 32
    notes = said_of(tmp_path, *texts).notes
    assert (len(notes), notes[-1]) == (33, "2 more lines of NCCL's watchdog")


def test_logs_of_which_the_end_alone_was_read_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = asked_to_dump(0, 5, 5)
    monkeypatch.setattr(log_files, "_MAX_FILE_BYTES", len(text))
    assert said_of(tmp_path, "x" * 99, "\n", text).notes[-1] == (
        "of 1 long logs only the end was read, as of all.log"
    )


def test_a_log_in_which_no_watchdog_tells_of_collectives_says_nothing(tmp_path: Path) -> None:
    found = said_of(tmp_path, ended(0))
    assert found == WatchdogLogs(files=1)
    assert found.evidence([0], []) == {}
    assert WatchdogLogs().files == 0


def test_runs_of_other_ranks_are_of_the_same_job(tmp_path: Path) -> None:
    def run(*texts: tuple[int, str]) -> list[RankLog]:
        name = f"{len(list(tmp_path.iterdir()))}"
        return [
            RankLog(write(tmp_path / name / f"rank_{rank}.log", text), rank) for rank, text in texts
        ]

    first = run((0, asked_to_dump(0, 5, 5)), (1, ""))
    silent, other = run((2, ""), (3, "")), run((4, asked_to_dump(4, 6, 6)))
    again = run((1, asked_to_dump(1, 9, 9)), (7, asked_to_dump(7, 9, 9)))
    found = read_watchdog_logs([first, silent, other, again])
    assert (set(found.named), found.files, sorted(found.ranks)) == ({0, 1, 2, 3, 4}, 7, [0, 4])
    second_node = run((0, asked_to_dump(4, 5, 5)), (1, ""))
    assert read_watchdog_logs([second_node]).named == {4, 5}
    other_names = run((0, asked_to_dump(4, 5, 5)), (1, asked_to_dump(9, 5, 5)), (2, ""))
    assert read_watchdog_logs([other_names]).named == {4, 9}
    shared = run((0, asked_to_dump(0, 5, 5) + asked_to_dump(1, 5, 5)), (7, ""))
    assert read_watchdog_logs([shared]).named == {0, 1}
    of_all = RankLog(write(tmp_path / "all.log", *(asked_to_dump(rank, 5, 5) for rank in (2, 3))))
    assert read_watchdog_logs([[of_all, *run((7, ""))]]).named == {2, 3}


def test_of_two_logs_of_a_rank_the_first_that_says_something_counts(tmp_path: Path) -> None:
    texts = [ended(0), asked_to_dump(0, 5, 5), asked_to_dump(0, 9, 9)]
    logs = [
        RankLog(write(tmp_path / f"{number}.log", text), 0) for number, text in enumerate(texts)
    ]
    found = read_watchdog_logs([logs])
    assert found.ranks[0].groups[DEFAULT_GROUP].enqueued == 5
