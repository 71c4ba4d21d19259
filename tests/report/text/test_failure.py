"""Where a launch broke."""

from __future__ import annotations

from tests.factories import cells, failed_record
from tests.features.watch.hang.test_explain import IN_OWN_CODE, call, looped, rank, waiting
from torchscale.features.watch.hang.explain import explain_hang
from torchscale.report.text.autopsy import autopsy_lines
from torchscale.report.text.failure import failure_cause, failure_excerpt, failure_place
from torchscale.schema.launch.failure import FailureKind, RankFailure
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.state import State

TRACEBACK = """Traceback (most recent call last):
  File "/opt/torchscale/worker/__main__.py", line 40, in main
    run(task)
  File "/home/me/net.py", line 12, in forward
    check(x)
  File "/home/me/.venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1778, in _call_impl
    return forward_call(*args)
           ^^^^^^^^^^^^^^^^^^^
  File "/home/me/data.py", line 7, in check
    raise ValueError("bad sample 17")
ValueError: bad sample 17
"""


def failure(
    rank: int, kind: FailureKind = FailureKind.ERROR, traceback: str = TRACEBACK
) -> RankFailure:
    return RankFailure(
        rank=rank,
        kind=kind,
        type="ValueError",
        message="bad sample 17",
        traceback=traceback,
        time=1.0,
    )


def record(*failures: RankFailure, log_tail: str = "") -> LaunchRecord:
    broken = failed_record(cells()[0], State.CRASHED, "rank 1: ValueError: bad sample 17")
    return broken.model_copy(update={"failures": failures, "log_tail": log_tail})


def test_the_place_is_the_innermost_line_of_the_users_own_code() -> None:
    assert failure_place(failure(1)) == "/home/me/data.py:7 in check"
    of_libraries = "\n".join(TRACEBACK.splitlines()[:3])
    assert (
        failure_place(failure(1, traceback=of_libraries))
        == "/opt/torchscale/worker/__main__.py:40 in main"
    )
    assert failure_place(failure(1, traceback="")) == ""


def test_an_excerpt_has_the_place_the_end_of_the_traceback_and_the_log() -> None:
    broken = record(failure(0, FailureKind.PEER_LOST), failure(1))
    assert failure_cause(broken) == failure(1), "a rank that lost its peer is no cause"
    assert failure_excerpt(broken) == (
        "at /home/me/data.py:7 in check",
        "Traceback (most recent call last):",
        '  File "/home/me/net.py", line 12, in forward',
        "    check(x)",
        '  File "/home/me/data.py", line 7, in check',
        '    raise ValueError("bad sample 17")',
        "ValueError: bad sample 17",
        f"log: cells/{broken.cell_id}/launch-0/rank-1.stderr.log",
    )


def test_without_a_traceback_the_log_is_quoted() -> None:
    log = "\n".join(f"line {number}" for number in range(20))
    assert failure_excerpt(record(log_tail=log))[:2] == ("line 12", "line 13")
    assert failure_excerpt(record(log_tail=log))[-1].endswith("rank-0.stderr.log")
    assert failure_excerpt(record()) == ()


def test_of_a_log_the_failing_ranks_end_is_quoted_and_not_torchruns() -> None:
    banner = "\n".join(["Root Cause:", *["  time : now"] * 9])
    logs = f"rank 0:\nlost my peer\n\nrank 1:\nepoch 3\n\n{TRACEBACK}\n\nrank 2:\nlost my peer"
    excerpt = failure_excerpt(record(log_tail=f"{logs}\n\ntorchrun:\n{banner}"))
    assert excerpt[-4:-1] == (
        '  File "/home/me/data.py", line 7, in check',
        '    raise ValueError("bad sample 17")',
        "ValueError: bad sample 17",
    )
    assert excerpt[-1].endswith("rank-1.stderr.log")
    assert not any("peer" in line or "time" in line for line in excerpt)
    silent = failure_excerpt(record(log_tail=f"rank 0:\nlost my peer\n\ntorchrun:\n{banner}"))
    assert (silent[0], silent[1][-17:]) == ("lost my peer", "rank-0.stderr.log")
    assert failure_excerpt(record(log_tail=f"torchrun:\n{banner}"))[0] == "  time : now"


def test_a_hang_shows_what_its_verdict_rests_on() -> None:
    verdict = explain_hang([waiting(0), rank(1, looped(19), IN_OWN_CODE)])
    hung = failed_record(cells()[1], State.TIMEOUT, "no progress for 9 s").model_copy(
        update={"autopsy": verdict}
    )
    assert failure_excerpt(hung) == (
        "cause: rank missing (rank 1), confidence high",
        "rank 0: in all_reduce #20, at train.py:30 `step`",
        "rank 1: at dataset.py:88 `read`; its last collective was broadcast #19",
        f"log: cells/{hung.cell_id}/launch-0/rank-1.stderr.log",
    )
    many = verdict.model_copy(update={"evidence": tuple(f"line {number}" for number in range(40))})
    assert autopsy_lines(many)[-1] == "… and 28 more lines in record.json"


def test_a_failure_with_a_mismatch_shows_the_mismatch_first() -> None:
    verdict = explain_hang([waiting(0), rank(1, [*looped(19), call(20, "broadcast", done=False)])])
    excerpt = failure_excerpt(record(failure(1)).model_copy(update={"autopsy": verdict}))
    assert excerpt[0] == "cause: collective mismatch (rank 1), confidence medium"
    assert "at /home/me/data.py:7 in check" in excerpt
