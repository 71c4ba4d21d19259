"""The flight recorder, read piece by piece: on a recorder made up here, whose ring is small."""

from __future__ import annotations

import gc
import json
import os
import pickle
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from tests.worker.watch.recorders import dumps, entry, fails, has_recorders
from torchscale.worker.watch import beats, clock, ring_settings
from torchscale.worker.watch import recorder as module
from torchscale.worker.watch.marks import Marks
from torchscale.worker.watch.recorder import SETTLED, Recorder


class Ring:
    """Keeps the last collectives, as torch does."""

    def __init__(self, size: int) -> None:
        self.entries: deque[dict[str, Any]] = deque(maxlen=size)
        self.count = 0

    def call(self, *, p2p: bool = False, shape: tuple[int, ...] = (4,)) -> None:
        self.entries.append(
            {
                "record_id": self.count,
                "process_group": ("0", "default_pg"),
                "collective_seq_id": self.count + 1,
                "p2p_seq_id": 7 if p2p else 0,
                "is_p2p": p2p,
                "profiling_name": "gloo:all_reduce",
                "time_created_ns": 1_000 + self.count,
                "input_sizes": [list(shape)],
                "input_dtypes": ["Float"],
            }
        )
        self.count += 1

    def dump(self, *_: bool) -> bytes:
        return pickle.dumps({"version": "2.10", "entries": list(self.entries)})


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Ring:
    """A recorder of eight entries in torch's place."""
    made = Ring(8)
    has_recorders(monkeypatch, _dump_fr_trace=made.dump)
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "8")
    return made


def test_each_collective_is_read_once(ring: Ring) -> None:
    recorder = Recorder(Marks())
    for _ in range(5):
        ring.call()
    assert [sequence for _, sequence, _ in recorder.drain()] == [1, 2, 3, 4, 5]
    ring.call()
    assert [sequence for _, sequence, _ in recorder.drain()] == [6]
    assert recorder.drain() == []
    assert recorder.lost == 0


def test_what_was_overwritten_is_counted(ring: Ring) -> None:
    recorder = Recorder(Marks())
    for _ in range(20):
        ring.call()

    assert len(recorder.drain()) == 8
    assert recorder.lost == 12


@pytest.mark.parametrize("per_step", [1, 2, 3])
def test_a_ring_is_read_between_steps_before_it_is_full(ring: Ring, per_step: int) -> None:
    recorder = Recorder(Marks())
    read = 0
    for _ in range(200):
        for _ in range(per_step):
            ring.call()
        if recorder.is_due():
            read += len(recorder.drain())

    assert recorder.lost == 0
    assert read > 200 * per_step - 8


def test_a_key_is_an_operation_in_a_group_with_its_bytes(ring: Ring) -> None:
    recorder = Recorder(Marks())
    ring.call(shape=(4, 2))
    ring.call(shape=(4, 2))
    ring.call(shape=(3,), p2p=True)
    calls = recorder.drain()

    assert [key for _, _, key in calls] == [0, 0, 1]
    assert recorder.keys == [
        ("gloo", "0", "all_reduce", 32, False),
        ("gloo", "0", "all_reduce", 12, True),
    ]
    assert calls[2][1] == 7


def test_a_torch_without_a_recorder_has_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    has_recorders(monkeypatch)
    recorder = Recorder(Marks())

    assert not recorder.exists
    assert recorder.drain() == []


def test_this_torch_has_one() -> None:
    assert Recorder(Marks()).exists


def test_sizes_of_any_number_are_rounded(ring: Ring) -> None:
    recorder = Recorder(Marks())
    for length in range(1, 6001):
        ring.call(shape=(length,))
        recorder.drain()

    assert len(recorder.keys) < 1_020


@pytest.mark.parametrize(("asked", "kept"), [("", "512"), ("50", "512"), ("20000", "20000")])
def test_a_small_ring_is_enlarged(monkeypatch: pytest.MonkeyPatch, asked: str, kept: str) -> None:
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", asked)
    monkeypatch.delenv("TORCH_NCCL_TRACE_BUFFER_SIZE", raising=False)
    ring_settings.enlarge_ring()

    assert os.environ["TORCH_FR_BUFFER_SIZE"] == kept


@pytest.mark.parametrize(
    ("version", "earlier"), [("2.7.1+cu126", "512"), ("2.8.0", None), ("2.13.0+cpu", None)]
)
def test_a_ring_is_made_under_the_name_that_torch_knows(
    monkeypatch: pytest.MonkeyPatch, version: str, earlier: str | None
) -> None:
    """A newer torch prints a warning where the earlier name is set."""
    monkeypatch.setattr("torch.__version__", version)
    for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):
        monkeypatch.setenv(name, "")  # restored at the end
        monkeypatch.delenv(name)
    ring_settings.enlarge_ring()

    assert os.environ["TORCH_FR_BUFFER_SIZE"] == "512"
    assert os.environ.get("TORCH_NCCL_TRACE_BUFFER_SIZE") == earlier


@pytest.mark.parametrize(("asked", "kept"), [("", "2000"), ("50", "50"), ("0", "0")])
def test_ranks_of_a_launch_have_a_recorder_unless_the_user_decides(
    monkeypatch: pytest.MonkeyPatch, asked: str, kept: str
) -> None:
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", asked)
    monkeypatch.delenv("TORCH_NCCL_TRACE_BUFFER_SIZE", raising=False)
    ring_settings.ask_for_ring()

    assert os.environ["TORCH_FR_BUFFER_SIZE"] == kept


def test_a_size_under_the_earlier_name_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_FR_BUFFER_SIZE", raising=False)
    monkeypatch.setenv("TORCH_NCCL_TRACE_BUFFER_SIZE", "4000")
    ring_settings.enlarge_ring()

    assert "TORCH_FR_BUFFER_SIZE" not in os.environ
    assert os.environ["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "4000"


@pytest.mark.parametrize(("took", "interval"), [(0.001, 1.0), (0.008, 2.0), (0.5, 3.0)])
def test_a_ring_whose_reading_takes_long_is_read_less_often(
    ring: Ring, monkeypatch: pytest.MonkeyPatch, took: float, interval: float
) -> None:
    """0.4 % of the main thread's time, and never more than three seconds of a job that is killed."""
    now, spent = [3e9], [0.0]
    monkeypatch.setattr(beats, "time", lambda: now[0])
    monkeypatch.setattr(module, "thread_time", lambda: spent[0])

    def dump(*_: bool) -> bytes:
        spent[0] += took
        return ring.dump()

    has_recorders(monkeypatch, _dump_fr_trace=dump)
    recorder = Recorder(Marks())
    assert recorder.is_due()  # nothing is known of it yet
    ring.call()
    recorder.drain()
    now[0] += interval - 0.01
    assert not recorder.is_due()
    now[0] += 0.02
    assert recorder.is_due()


def test_ranks_read_at_the_same_moment(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever each of them began: what delays one rank delays all."""
    now = [3e9 + 0.2]
    monkeypatch.setattr(beats, "time", lambda: now[0])
    recorders = [Recorder(Marks()), Recorder(Marks())]
    ring.call()
    assert recorders[0].is_due()
    recorders[0].drain()
    now[0] += 0.3
    assert recorders[1].is_due()
    recorders[1].drain()
    now[0] += 0.49
    assert not any(recorder.is_due() for recorder in recorders)
    now[0] += 0.02
    assert all(recorder.is_due() for recorder in recorders)


@pytest.mark.parametrize("was_enabled", [True, False])
def test_reading_begins_no_garbage_collection(
    monkeypatch: pytest.MonkeyPatch, *, was_enabled: bool
) -> None:
    """Which would look through all objects of the program."""
    enabled = []

    def dump(*_: bool) -> bytes:
        enabled.append(gc.isenabled())
        return pickle.dumps({"entries": []})

    has_recorders(monkeypatch, _dump_fr_trace=dump)
    (gc.enable if was_enabled else gc.disable)()
    try:
        Recorder(Marks()).drain()
        enabled.append(gc.isenabled())
    finally:
        gc.enable()

    assert enabled == [False, was_enabled]


def test_the_calls_of_all_recorders_are_one_list_in_the_order_of_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """gloo's ring is empty on most GPUs, and each backend of a group has numbers of its own."""
    has_recorders(
        monkeypatch,
        _dump_fr_trace=dumps(entry(1, "broadcast", backend="gloo", time_created_ns=20)),
        _dump_nccl_trace=dumps(
            entry(1, "all_reduce", backend="nccl", time_created_ns=10),
            entry(2, "all_reduce", backend="nccl", time_created_ns=30),
        ),
    )
    recorder = Recorder(Marks())
    calls = recorder.drain()
    assert [(time, sequence) for time, sequence, _ in calls] == [(10, 1), (20, 1), (30, 2)]
    assert [recorder.keys[key].backend for _, _, key in calls] == ["nccl", "gloo", "nccl"]
    assert recorder.counts == {"gloo": 1, "nccl": 2}
    assert recorder.drain() == []


def test_a_recorder_that_fails_is_read_no_more_and_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nccl = dumps(entry(1, "all_reduce", backend="nccl"))
    has_recorders(monkeypatch, _dump_fr_trace=fails, _dump_nccl_trace=nccl)
    recorder = Recorder(Marks())
    assert len(recorder.drain()) == 1
    assert recorder.problems == {"gloo": "RuntimeError: CUDA error"}
    has_recorders(monkeypatch, _dump_fr_trace=dumps(entry(1, "x", backend="gloo")))
    assert recorder.drain() == []


def test_a_recorder_that_begins_anew_is_read_from_its_start(ring: Ring) -> None:
    recorder = Recorder(Marks())
    for _ in range(5):
        ring.call()
    recorder.drain()
    ring.entries.clear()
    ring.count = 0
    ring.call()
    assert len(recorder.drain()) == 1
    assert recorder.lost == 0


class Timed:
    """A recorder whose lengths come later, on a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.set_by = 1_000, 0
        monkeypatch.setenv("TORCH_NCCL_ENABLE_TIMING", "1")
        monkeypatch.setattr(clock, "now_ns", lambda: self.now)
        monkeypatch.setattr(clock, "set_by_ns", lambda: self.set_by)
        self.entries: list[dict[str, Any]] = []
        has_recorders(monkeypatch, _dump_nccl_trace=lambda *_: dumps(*self.entries)())
        self.recorder = Recorder(Marks())

    def call(self, number: int, time: int, **changes: Any) -> None:
        changes = {"state": "scheduled", "retired": False, **changes}
        self.entries.append(
            entry(number, "all_reduce", backend="nccl", time_created_ns=time, **changes)
        )

    def end(self, number: int, milliseconds: float | None) -> None:
        ended = {"retired": True, "state": "completed", "duration_ms": milliseconds}
        self.entries[number - 1].update(ended)

    def rows(self) -> list[tuple[int, int, int]]:
        """The rows of a reading."""
        self.recorder.drain()
        taken = self.recorder.take_lengths()
        return list(zip(taken[::3], taken[1::3], taken[2::3], strict=True))


def test_the_length_of_a_collective_is_read_when_it_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timed = Timed(monkeypatch)
    timed.call(1, time=100)
    timed.call(2, time=200)
    assert timed.rows() == [(99, SETTLED, 0)]
    timed.end(1, 1.5)
    timed.call(3, time=300)
    assert timed.rows() == [(1, 0, 1_500_000), (199, SETTLED, 0)]
    timed.end(2, 0.25)
    timed.end(3, 2.0)
    assert timed.rows() == [(2, 0, 250_000), (3, 0, 2_000_000), (1_000, SETTLED, 0)]
    timed.now = 2_000
    assert timed.rows() == [(2_000, SETTLED, 0)]


@pytest.mark.parametrize("step", [3_600_000_000_000, -3_600_000_000_000, -(10**18), 5_000_000])
def test_a_wall_clock_that_is_set_moves_no_collective(
    monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Torch goes by the wall clock, the job by one that nobody can set."""
    second = 1_000_000_000
    began = 10**18
    timed = Timed(monkeypatch)
    timed.now = began
    timed.recorder = Recorder(Marks())
    timed.call(1, time=began + second)
    timed.now = began + 2 * second
    calls = timed.recorder.drain()
    timed.call(2, time=began + 3 * second)  # the clock is set after it
    timed.call(3, time=began + 5 * second + step)
    timed.set_by, timed.now = step, began + 6 * second
    calls += timed.recorder.drain()
    timed.call(4, time=began + 7 * second + step)
    timed.now = began + 8 * second
    calls += timed.recorder.drain()
    assert timed.recorder.take_lengths()[-3:] == [began + second - 1, SETTLED, 0]

    expected = [began + passed * second for passed in (1, 3, 5, 7)]
    off = [called - time for (called, _, _), time in zip(calls, expected, strict=True)]
    assert max(map(abs, off)) <= (0 if abs(step) > 10 * second else abs(step))


def test_no_length_of_gloo_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its steps would be held back, also those of NCCL beside it."""
    timed = Timed(monkeypatch)
    gloos = dumps(entry(1, "all_reduce", backend="gloo", retired=False, time_created_ns=100))
    has_recorders(monkeypatch, _dump_fr_trace=gloos)
    assert timed.rows() == [(1_000, SETTLED, 0)]
    assert timed.recorder.counts == {"gloo": 1}


def test_what_never_has_a_length_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a coalesced collective has no events, and what timed out has no end. torch retires
    an entry a moment before it notes the length."""
    timed = Timed(monkeypatch)
    timed.call(1, time=100)
    timed.call(2, time=200)
    timed.call(3, time=300)
    timed.end(2, 1.0)
    timed.end(3, None)
    assert timed.rows() == [(2, 0, 1_000_000), (99, SETTLED, 0)]
    timed.end(3, 4.0)
    assert timed.rows() == [(3, 0, 4_000_000), (1_000, SETTLED, 0)]


def test_an_entry_that_is_overwritten_before_its_length_came_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timed = Timed(monkeypatch)
    timed.call(1, time=100)
    timed.call(2, time=200)
    timed.rows()
    del timed.entries[0]
    assert timed.rows() == [(199, SETTLED, 0)]


def test_without_timing_no_lengths_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_NCCL_ENABLE_TIMING", raising=False)
    has_recorders(
        monkeypatch, _dump_nccl_trace=dumps(entry(1, "x", backend="nccl", duration_ms=1.0))
    )
    recorder = Recorder(Marks())
    recorder.drain()
    assert recorder.take_lengths() == []


def test_a_ring_with_lengths_is_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NCCL_ENABLE_TIMING", "true")
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "")
    monkeypatch.delenv("TORCH_NCCL_TRACE_BUFFER_SIZE", raising=False)
    ring_settings.enlarge_ring()

    assert os.environ["TORCH_FR_BUFFER_SIZE"] == "2000"


def test_what_nccl_wrote_on_a_gpu_has_the_length_of_each_collective(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A real dump; another of the same rank, at the end of its last step, lacks the last lengths."""
    recorded = Path(__file__).parents[2] / "data" / "nccl"
    whole = (recorded / "timed-rank-0.pickle").read_bytes()
    monkeypatch.setenv("TORCH_NCCL_ENABLE_TIMING", "1")
    has_recorders(monkeypatch, _dump_fr_trace=dumps(), _dump_nccl_trace=lambda *_: whole)
    recorder = Recorder(Marks())
    calls = recorder.drain()
    rows = recorder.take_lengths()
    assert (len(calls), len(rows) // 3 - 1) == (58, 58)
    assert rows[-2] == SETTLED
    operations = {recorder.keys[key].operation for _, _, key in calls}
    assert {"all_reduce", "_all_gather_base", "allreduce_coalesced", "send 0->1"} <= operations
    running = pickle.dumps(json.loads((recorded / "running-rank-0.json").read_text()))
    has_recorders(monkeypatch, _dump_nccl_trace=lambda *_: running)
    recorder = Recorder(Marks())
    assert len(recorder.drain()) == 50
    assert len(recorder.take_lengths()) // 3 - 1 == 44


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"time_created_ns": None}, id="no time"),
        pytest.param({"time_created_ns": float("nan")}, id="a time that is no number"),
        pytest.param({"time_created_ns": 1 << 70}, id="a time that no file holds"),
        pytest.param({"collective_seq_id": float("inf")}, id="an infinite number"),
        pytest.param({"collective_seq_id": -1}, id="a negative number"),
        pytest.param({"profiling_name": None}, id="no name"),
        pytest.param({"process_group": ()}, id="no group"),
        pytest.param({"input_sizes": [["?"]]}, id="no size"),
        pytest.param({"input_sizes": [[1 << 40, 1 << 40]]}, id="a size that no memory has"),
    ],
)
def test_an_entry_of_an_unknown_form_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, odd: dict[str, Any]
) -> None:
    timed = Timed(monkeypatch)
    for number in (1, 2, 3):
        timed.call(number, time=100 * number)
        timed.end(number, 1.5)
    timed.entries[1].update(odd)
    assert timed.rows() == [(1, 0, 1_500_000), (3, 0, 1_500_000), (1_000, SETTLED, 0)]
    assert timed.recorder.problems == {}
    assert timed.recorder.counts == {"nccl": 2}
    assert timed.recorder.lost == 1


@pytest.mark.parametrize(
    "key",
    [
        "record_id",
        "pg_id",
        "process_group",
        "collective_seq_id",
        "p2p_seq_id",
        "profiling_name",
        "time_created_ns",
        "input_sizes",
        "input_dtypes",
        "state",
        "retired",
        "is_p2p",
        "duration_ms",
    ],
)
def test_an_entry_that_lacks_something_ends_no_reading(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    timed = Timed(monkeypatch)
    for number in (1, 2, 3):
        timed.call(number, time=100 * number)
        timed.end(number, 1.5)
    del timed.entries[1][key]
    assert {(1, 0, 1_500_000), (3, 0, 1_500_000)} <= set(timed.rows())
    assert timed.recorder.problems == {}
    timed.now = 2_000
    timed.rows()
    assert timed.rows() == [(2_000, SETTLED, 0)]


@pytest.mark.parametrize(
    "length", [0.0, -1.0, float("nan"), float("inf"), 1e13, "1.5", [1.5], None]
)
def test_a_length_that_cannot_be_is_none(monkeypatch: pytest.MonkeyPatch, length: object) -> None:
    """Of zero another rank would have waited for this one."""
    timed = Timed(monkeypatch)
    timed.call(1, time=100)
    timed.call(2, time=200)
    timed.entries[0].update(retired=True, state="completed", duration_ms=length)
    timed.end(2, 1.5)
    rows = timed.rows() + timed.rows()
    assert [row for row in rows if row[1] != SETTLED] == [(2, 0, 1_500_000)]
    timed.now = 2_000
    assert timed.rows() == [(2_000, SETTLED, 0)]
    assert timed.recorder.problems == {}


@pytest.mark.parametrize("entries", [None, {}, "none", [None, 1, {"record_id": "1"}]])
def test_a_ring_of_an_unknown_form_is_empty(
    monkeypatch: pytest.MonkeyPatch, entries: object
) -> None:
    has_recorders(
        monkeypatch,
        _dump_fr_trace=lambda *_: pickle.dumps({"entries": entries}),
        _dump_nccl_trace=dumps(entry(1, "all_reduce", backend="nccl")),
    )
    recorder = Recorder(Marks())
    assert len(recorder.drain()) == 1
    assert recorder.counts == {"gloo": 0, "nccl": 1}
