"""Which rank ended first, why, and what follows from it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.features.watch.ends.left import LOST, attempt, exited, facts, left, raised
from tests.features.watch.job.folders import USE
from torchscale.features.watch.ends.failed_attempt import FailedAttempt
from torchscale.features.watch.ends.failure import find_failure
from torchscale.features.watch.ends.kernel import KernelNews
from torchscale.features.watch.ends.ranks import RankEnd
from torchscale.schema.launch.hang import Autopsy, HangCause
from torchscale.schema.profiles.finding import Confidence
from torchscale.schema.watch.failure import FailureCause, JobFailure
from torchscale.schema.watch.rank import RankUse


def found(failed: FailedAttempt) -> JobFailure:
    failure = find_failure(failed)
    assert failure is not None
    return failure


def test_the_first_exception_is_the_cause_and_lost_peers_are_not() -> None:
    failure = found(
        attempt(
            raised(0, 10.1, "RuntimeError", LOST),
            raised(2, 10.2, "RuntimeError", LOST),
            raised(3, 10.5, "ValueError", "bad record 17"),
            exited(3, 11.0, 1),
            exited(1, 11.2, -15),
        )
    )
    assert (failure.cause, failure.rank, failure.exit_code) == (FailureCause.EXCEPTION, 3, 1)
    assert failure.summary == "rank 3 raised ValueError: bad record 17 at train.py:12 (load)"
    assert (failure.error, failure.message) == ("ValueError", "bad record 17")
    assert failure.world_size == 4
    assert failure.evidence == (
        "ranks 0 and 2 lost the connection to another rank then",
        "rank 1 was ended by SIGTERM, as torchrun ends the other ranks",
    )


def test_an_earlier_exception_comes_before_a_later_one() -> None:
    failure = found(
        attempt(raised(1, 10.0, "KeyError", "'a'"), raised(0, 10.4, "ValueError", "b {x}"))
    )
    assert failure.rank == 1
    assert failure.evidence == ("rank 0 raised ValueError: b {x} at train.py:12 (load)",)


def test_a_host_is_named_where_there_are_several() -> None:
    failure = found(
        attempt(
            raised(3, 10.0, "ValueError", "no", host="node-b"),
            raised(0, 10.4, "RuntimeError", LOST, host="node-a"),
        )
    )
    assert failure.summary.startswith("rank 3 (node-b) raised")
    assert failure.host == "node-b"


def test_what_all_ranks_raise_is_said_of_all() -> None:
    ends = [raised(rank, 10.0 + rank, "ModuleNotFoundError", "No module") for rank in range(4)]
    failure = found(attempt(*ends))
    assert failure.summary.startswith("ranks 0-3 raised ModuleNotFoundError: No module")
    assert failure.evidence == ()


def test_a_program_of_one_process_is_named() -> None:
    failure = found(attempt(raised(None, 1.0, "ValueError", "no", world_size=None), exit_code=1))
    assert failure.summary == "train.py raised ValueError: no at train.py:12 (load)"
    assert (failure.rank, failure.exit_code) == (None, 1)


def test_a_rank_comes_before_a_launcher_that_has_none() -> None:
    failure = found(
        attempt(
            raised(None, 9.0, "subprocess.CalledProcessError", "exit status 1", pid=90),
            raised(1, 10.0, "ValueError", "no"),
        )
    )
    assert failure.rank == 1


def test_an_error_of_torchrun_is_its_own() -> None:
    name = "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError"
    failure = found(attempt(raised(None, 1.0, name, "The connection failed.", world_size=None)))
    assert failure.summary == f"torchrun raised {name}: The connection failed."


def test_a_killed_rank_comes_before_those_that_abort_then() -> None:
    failure = found(attempt(exited(0, 10.0, -6), exited(1, 10.001, -9)))
    assert (failure.rank, failure.signal, failure.exit_code) == (1, "SIGKILL", None)
    assert "sent the signal" in failure.evidence[0]


@pytest.mark.parametrize(
    ("kernel", "kills", "cause", "text"),
    [
        (KernelNews(killed=frozenset({101})), 0, FailureCause.OOM_KILL, "killed by the kernel"),
        (KernelNews(), 1, FailureCause.OOM_KILL, "the kernel killed 1 process for lack"),
        (KernelNews(), 0, FailureCause.SIGNAL, "rank 1 was ended by SIGKILL"),
    ],
    ids=["log", "counter", "neither"],
)
def test_a_kill_for_lack_of_memory(
    kernel: KernelNews, kills: int, cause: FailureCause, text: str
) -> None:
    uses = {0: RankUse.model_validate(USE)}
    failure = found(attempt(exited(1, 10.0, -9), kernel=kernel, oom_kills=kills, uses=uses))
    assert failure.cause is cause
    assert text in failure.summary
    memory = "rank 0 held up to 300 MiB resident, as of its last note"
    assert (memory in failure.evidence) is (cause is FailureCause.OOM_KILL)


def test_an_allocation_that_failed_shows_what_ranks_held() -> None:
    use = RankUse.model_validate(
        {**USE, "peak_allocated_bytes": 1 << 30, "peak_reserved_bytes": 2 << 30}
    )
    failure = found(
        attempt(raised(1, 1.0, "torch.OutOfMemoryError", "CUDA out of memory."), uses={1: use})
    )
    assert failure.cause is FailureCause.OUT_OF_MEMORY
    assert failure.evidence == (
        "rank 1 held up to 300 MiB resident, up to 1.00 GiB allocated and 2.00 GiB reserved on its "
        "device, as of its last note",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("DataLoader worker (pid 123) is killed by signal: Killed. ", "was killed by SIGKILL"),
        ("DataLoader worker (pid 123) is killed by signal: Bus error. It", "was killed by SIGBUS"),
        ("DataLoader worker (pid(s) 123, 124) exited unexpectedly", "exited unexpectedly"),
    ],
)
def test_a_worker_of_a_loader_that_died(text: str, said: str) -> None:
    failure = found(attempt(raised(1, 1.0, "RuntimeError", text)))
    assert failure.cause is FailureCause.LOADER_WORKER
    assert f"of rank 1 {said} at train.py:12 (load)" in failure.summary
    assert any("/dev/shm" in line for line in failure.evidence) is ("SIGKILL" not in said)


@pytest.mark.parametrize("error", ["ConnectionResetError", "EOFError", "FileNotFoundError"])
def test_a_worker_that_torch_has_not_seen_end_yet(error: str) -> None:
    loader = "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py"
    frames = (("/home/me/train.py", 12, "train"), (loader, 1310, "_try_get_data"))
    failure = found(attempt(raised(1, 1.0, error, "no such process", frames=frames)))
    assert (failure.cause, failure.rank) == (FailureCause.LOADER_WORKER, 1)
    assert failure.summary == (
        "a DataLoader worker of rank 1 was gone as it handed over a batch at train.py:12 (train)"
    )
    assert failure.evidence[0] == f"rank 1 raised {error}: no such process"
    own = found(attempt(raised(1, 1.0, error, "no such process")))
    assert own.cause is FailureCause.EXCEPTION


def test_a_rank_that_exits_without_a_word() -> None:
    failure = found(attempt(exited(1, 1.0, 4), raised(0, 1.1, "RuntimeError", LOST)))
    assert (failure.cause, failure.exit_code) == (FailureCause.EXIT, 4)
    assert failure.summary == "rank 1 exited with code 4 and left no traceback"


def test_only_lost_peers_point_to_another_host() -> None:
    ranks = {0: facts(0), 1: facts(1)}
    failure = found(attempt(raised(0, 1.0, "RuntimeError", LOST), ranks=ranks))
    assert failure.cause is FailureCause.PEER_LOST
    assert "other hosts" in failure.evidence[0]


def test_a_signal_that_torchrun_got_ended_the_job() -> None:
    name = "torch.distributed.elastic.multiprocessing.api.SignalException"
    failure = found(
        attempt(raised(None, 1.0, name, "Process 9 got signal: 15"), exited(1, 1.1, -15))
    )
    assert (failure.cause, failure.signal) == (FailureCause.INTERRUPTED, "SIGTERM")


def test_ctrl_c_is_no_failure() -> None:
    ends = [raised(None, 1.0, "KeyboardInterrupt", "", world_size=None)]
    assert find_failure(attempt(*ends, exit_code=130)) is None
    assert find_failure(attempt(exit_code=143)) is None


def test_where_nothing_was_left_the_exit_code_is_all() -> None:
    failure = found(attempt(exit_code=3))
    assert failure.summary == "train.py exited with code 3 and left no traceback of Python"
    killed = found(attempt(exit_code=137, oom_kills=2))
    assert (killed.cause, killed.signal) == (FailureCause.OOM_KILL, "SIGKILL")
    assert find_failure(attempt(exit_code=None)) is None


def test_an_abort_in_a_collective_names_it() -> None:
    c10d = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
    frames = (("/home/me/train.py", 8, "report"), (c10d, 3252, "all_reduce"))
    failure = found(attempt(left("crash", 3, 9.9, frames=frames), exited(3, 10.0, -6)))
    assert failure.summary == "rank 3 was ended by SIGABRT in all_reduce at train.py:8 (report)"
    assert "another rank calls a different collective" in failure.evidence[0]


def test_an_abort_is_a_mismatch_where_the_collectives_say_so() -> None:
    verdict = Autopsy(
        cause=HangCause.SIZE_MISMATCH,
        ranks=(3,),
        confidence=Confidence.HIGH,
        summary="rank 3 called a, where rank 0 called b",
        evidence=("why",),
    )
    asked: list[Sequence[RankEnd]] = []

    def collectives(ends: Sequence[RankEnd]) -> Autopsy:
        asked.append(ends)
        return verdict

    stack = left("crash", 3, 9.9, frames=(("/home/me/train.py", 8, "report"),))
    ends = [stack, exited(3, 10.0, -6), raised(0, 10.0, "RuntimeError", LOST)]
    failure = found(attempt(*ends, collectives=collectives))
    assert (failure.cause, failure.autopsy) == (FailureCause.COLLECTIVES, verdict)
    assert failure.summary == f"{verdict.summary}; rank 3 was ended by SIGABRT"
    assert failure.evidence[0] == "why"
    assert len(asked[0]) == 2

    failure = found(attempt(*ends))
    assert failure.cause is FailureCause.SIGNAL
    assert failure.summary == "rank 3 was ended by SIGABRT at train.py:8 (report)"


def test_ranks_that_were_gone_at_the_same_moment_are_not_put_in_order() -> None:
    failure = found(
        attempt(
            left("gone", 0, 10.2),
            left("gone", 1, 10.4),
            left("gone", 2, 12.0),
            exit_code=None,
        )
    )
    assert (failure.cause, failure.rank) == (FailureCause.SIGNAL, None)
    assert failure.summary == (
        "ranks 0 and 1 were gone: they left no exception, as processes that are killed"
    )
    assert failure.evidence[1:] == ("rank 2 was gone, as what starts the ranks ends the others",)


def test_a_rank_that_was_gone_is_the_cause_where_others_lost_a_peer() -> None:
    failure = found(
        attempt(
            raised(0, 10.1, "RuntimeError", LOST),
            left("gone", 1, 10.4),
            left("gone", 2, 12.0),
            exit_code=None,
        )
    )
    assert (failure.cause, failure.rank) == (FailureCause.SIGNAL, 1)
    assert failure.summary == ("rank 1 was gone: it left no exception, as a process that is killed")
    assert failure.evidence[1:] == (
        "rank 0 lost the connection to another rank then",
        "rank 2 was gone, as what starts the ranks ends the others",
    )


def test_a_rank_that_was_gone_after_an_exception_is_no_cause() -> None:
    failure = found(
        attempt(raised(2, 10.1, "ValueError", "bad"), left("gone", 1, 10.4), exit_code=None)
    )
    assert failure.rank == 2
    assert failure.evidence == ("rank 1 was gone, as what starts the ranks ends the others",)
