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
from torchscale.features.watch.hang.dumps import read_directory
from torchscale.features.watch.hang.explain import explain_hang
from torchscale.schema.launch.hang import Autopsy, HangCause
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
