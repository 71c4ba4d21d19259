"""Causes of lost time and of failures, how each is injected into a job, and what is right to say of
it. Sizes, ranks, periods and places are drawn anew for each run."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

STEPS = 300
MOST_STEPS = 480
OVERHEAD_MS = 4.0
"""Of a step beside its kernels: matrix products, gloo, Python."""
LONGEST_STEP = 2.3
"""Times that: of a step whose parameters are sharded, over gloo."""
RARE = 20
"""Steps from one long step to the next, from which on they are rare enough to be called pauses."""
EVENTS = 8
"""Of a period that a run shows at least."""
ANYWHERE = ("ddp", "fsdp", "zero", "tensor", "pipeline", "plain")
EQUAL_ROWS = ("ddp", "fsdp", "zero", "plain")
"""Strategies whose ranks may have batches of different sizes, and in which a rank can compute by
itself."""


@dataclass(frozen=True)
class Answer:
    """What is right to say.

    Attributes:
        kinds: Of a finding; empty where nothing is to be found.
        rank: Whose; ``None`` for nobody's.
        places: File and function, any of which may be named; empty where no line is asked for.
        period: Steps from one to the next; ``None`` where none is asked for.
        since: Step from which on; ``None`` for the whole job.
        words: Any of these in the finding, as a regular expression; empty for none in particular.
        cost: Seconds a step; ``None`` where not known beforehand.
    """

    kinds: tuple[str, ...]
    rank: int | None = None
    places: tuple[tuple[str, str], ...] = ()
    period: int | None = None
    since: int | None = None
    words: str = ""
    cost: float | None = None


@dataclass(frozen=True)
class Injection:
    """A job with a cause.

    Attributes:
        program: File below ``jobs/``.
        arguments: Of the program; ``FOLDER`` stands for an empty folder.
        answer: What is right to say of it.
    """

    program: str
    arguments: tuple[str, ...]
    answer: Answer


@dataclass(frozen=True)
class Draw:
    """What a run draws by lot.

    Attributes:
        random: By the run's seed.
        ranks: Of the job.
    """

    random: Random
    ranks: int

    def rank(self) -> int:
        """A rank."""
        return self.random.randrange(self.ranks)

    def step_ms(self) -> float:
        """Kernels of a step."""
        return round(self.random.uniform(8, 16), 1)

    def extra_ms(self, step_ms: float, least: float = 0.1, most: float = 0.6) -> float:
        """Mean loss of a step, as a share of one."""
        return round((step_ms + OVERHEAD_MS) * self.random.uniform(least, most), 2)

    def period(self, least: int, most: int) -> int:
        """Steps; short ones are as likely as long ones, by their logarithm."""
        return round(math.exp(self.random.uniform(math.log(least), math.log(most))))


def _steps(period: int) -> int:
    return min(MOST_STEPS, max(STEPS, EVENTS * period))


def _job(program: str, answer: Answer, **options: object) -> Injection:
    """With options by name; a flag's value is True."""
    options.setdefault("steps", STEPS)
    arguments: list[str] = []
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            arguments.append(option)
        elif value is not False:
            arguments += [option, str(value)]
    return Injection(program, tuple(arguments), answer)


_FUNCTIONS = {"forward": "route_tokens", "backward": "scale_gradient", "host": "track_metrics"}
_SLOW = ("straggler", "uneven_stages")


def _place(name: str) -> tuple[tuple[str, str], ...]:
    return (("slow_rank.py", _FUNCTIONS[name]),)


def _none(draw: Draw) -> Injection:
    """Nothing, in jobs of several kinds; or what all ranks do alike."""
    step_ms, nothing = draw.step_ms(), Answer(())
    jobs = (
        _job("slow_rank.py", nothing, step_ms=step_ms, place="none"),
        _job("loading.py", nothing, step_ms=step_ms, slow="", workers=1),
        _job("keeping.py", nothing, step_ms=step_ms, does="none"),
        _job("slow_rank.py", nothing, step_ms=step_ms, extra_ms=draw.extra_ms(step_ms)),
    )
    return draw.random.choice(jobs)


def _slow(draw: Draw, place: str, kinds: Sequence[str] = _SLOW, **more: object) -> Injection:
    step_ms, rank = draw.step_ms(), draw.rank()
    extra = draw.extra_ms(step_ms)
    burns = draw.random.random() < 0.3
    steady = "shape" not in more
    answer = Answer(tuple(kinds), rank, _place(place), cost=extra / 1e3 if steady else None)
    return _job(
        "slow_rank.py",
        answer,
        step_ms=step_ms,
        rank=rank,
        place=place,
        extra_ms=extra,
        burn=burns,
        **more,
    )


def _anywhere(draw: Draw) -> str:
    return draw.random.choice(list(_FUNCTIONS))


def _middle(draw: Draw) -> Injection:
    step_ms, rank, place = draw.step_ms(), draw.rank(), _anywhere(draw)
    first = round(MOST_STEPS * draw.random.uniform(0.35, 0.65))
    extra = draw.extra_ms(step_ms, 0.2)
    answer = Answer(_SLOW, rank, _place(place), since=first, cost=extra / 1e3)
    where = {"step_ms": step_ms, "rank": rank, "place": place, "first": first}
    return _job("slow_rank.py", answer, **where, shape="middle", extra_ms=extra, steps=MOST_STEPS)


def _growing(draw: Draw) -> Injection:
    step_ms, rank, place = draw.step_ms(), draw.rank(), _anywhere(draw)
    extra = 2 * draw.extra_ms(step_ms, 0.3)
    answer = Answer(_SLOW, rank, _place(place), words="longer and longer|grow|slower and slower")
    where = {"step_ms": step_ms, "rank": rank, "place": place}
    return _job("slow_rank.py", answer, **where, shape="growing", extra_ms=extra, steps=MOST_STEPS)


def _periodic(draw: Draw, rank: int | None) -> Injection:
    """A rank's, or of all ranks where it is ``None``."""
    step_ms, place, every = draw.step_ms(), _anywhere(draw), draw.period(2, 60)
    mean = draw.extra_ms(step_ms)
    kind = "periodic_work" if rank is None else "straggler"
    kinds = (kind, "pauses") if every >= RARE else (kind,)
    answer = Answer(kinds, rank, _place(place), period=every, cost=mean / 1e3)
    return _job(
        "slow_rank.py",
        answer,
        step_ms=step_ms,
        rank=-1 if rank is None else rank,
        place=place,
        every=every,
        extra_ms=round(mean * every, 1),
        steps=_steps(every),
    )


def _spells(draw: Draw) -> Injection:
    step_ms, rank, place = draw.step_ms(), draw.rank(), _anywhere(draw)
    extra = draw.extra_ms(step_ms, 0.3)
    answer = Answer(("intermittent_straggler",), rank, _place(place))
    where = {"step_ms": step_ms, "rank": rank, "place": place}
    return _job("slow_rank.py", answer, **where, shape="spells", extra_ms=extra, steps=MOST_STEPS)


def _loader(draw: Draw) -> Injection:
    step_ms, rank, workers = draw.step_ms(), draw.rank(), draw.random.choice((0, 1, 2))
    extra = draw.extra_ms(step_ms)
    # Workers decode while the step runs: what they take must be longer than it, under any strategy.
    hidden = workers * LONGEST_STEP * (step_ms + OVERHEAD_MS)
    seconds = round((hidden + extra * max(1, workers)) / 1e3, 4)
    places = (("loading.py", "decode"), ("loading.py", "train"))
    answer = Answer(
        ("input_pipeline",),
        rank,
        places[: 1 + (workers > 0)],
        cost=None if workers else extra / 1e3,
    )
    return _job(
        "loading.py",
        answer,
        step_ms=step_ms,
        rank=rank,
        slow="decoding",
        seconds=seconds,
        workers=workers,
    )


def _shards(draw: Draw) -> Injection:
    step_ms, every, workers = draw.step_ms(), draw.period(5, 50), draw.random.choice((0, 1))
    rank = draw.random.choice((None, draw.rank()))
    extra = draw.extra_ms(step_ms, 0.2) * every
    # A worker is two batches ahead.
    hidden = workers * 3 * LONGEST_STEP * (step_ms + OVERHEAD_MS)
    places = (("loading.py", "open_shard"), ("loading.py", "train"))
    answer = Answer(("input_pipeline",), rank, places[: 1 + workers], period=every)
    return _job(
        "loading.py",
        answer,
        step_ms=step_ms,
        rank=-1 if rank is None else rank,
        slow="shard",
        seconds=round((extra + hidden) / 1e3, 3),
        every=every,
        workers=workers,
        steps=_steps(every),
    )


def _sample(draw: Draw) -> Injection:
    step_ms, rank, workers = draw.step_ms(), draw.rank(), draw.random.choice((0, 1))
    at = draw.random.randrange(80, 220)
    places = (("loading.py", "open_shard"), ("loading.py", "train"))
    return _job(
        "loading.py",
        Answer(("input_pipeline", "pauses"), rank, places[: 1 + workers]),
        step_ms=step_ms,
        rank=rank,
        slow="sample",
        seconds=round(draw.random.uniform(3, 6), 1),
        every=at,
        workers=workers,
    )


def _saves(draw: Draw, rank: int | None) -> Injection:
    """A rank's, or of all ranks where it is ``None``."""
    every = draw.period(20, 60)
    form = "torch" if rank is not None else draw.random.choice(("torch", "together"))
    function = "save_checkpoint" if form == "torch" else "save_together"
    answer = Answer(("checkpoints",), rank, (("saving.py", function),), period=every)
    return _job(
        "saving.py",
        answer,
        step_ms=draw.step_ms(),
        rank=-1 if rank is None else rank,
        form=form,
        every=every,
        megabytes=draw.random.randrange(64, 192) // (draw.ranks if rank is None else 1),
        folder="FOLDER",
        steps=_steps(every),
    )


def _evaluations(draw: Draw, rank: int | None) -> Injection:
    """A rank's, or of all ranks where it is ``None``."""
    every = draw.period(20, 60)
    places = (("evaluating.py", "evaluate"), ("training.py", "forward"))
    return _job(
        "evaluating.py",
        Answer(("evaluations",), rank, places, period=every),
        step_ms=draw.step_ms(),
        rank=-1 if rank is None else rank,
        every=every,
        batches=draw.random.randrange(10, 30),
        steps=_steps(every),
    )


def _garbage(draw: Draw) -> Injection:
    called = draw.random.random() < 0.6
    rank = draw.random.choice((None, draw.rank()))
    every = draw.random.randrange(15, 30)
    places = (("keeping.py", "free_memory"),) if called else ()
    return _job(
        "keeping.py",
        Answer(("garbage_collection",), rank, places, period=every if called else None),
        step_ms=draw.step_ms(),
        rank=-1 if rank is None else rank,
        does="collect" if called else "churn",
        every=every,
        shift=every // draw.ranks if rank is None else 0,
        amount=draw.random.randrange(300_000, 600_000),
    )


def _compilations(draw: Draw) -> Injection:
    rank = draw.random.choice((None, draw.rank()))
    return _job(
        "compiling.py",
        Answer(("recompilation",), rank, (("compiling.py", "mix"),)),
        step_ms=draw.step_ms(),
        rank=-1 if rank is None else rank,
        changes=draw.random.choice(("lengths", "settings")),
        every=draw.random.randrange(8, 25),
        backend=draw.random.choice(("eager", "aot_eager")),
    )


def _memory(draw: Draw) -> Injection:
    rank = draw.rank()
    return _job(
        "keeping.py",
        Answer(("memory_growth",), rank),
        step_ms=draw.step_ms(),
        rank=rank,
        does="remember",
        amount=draw.random.randrange(1000, 4000),
        steps=MOST_STEPS,
    )


def _logs(draw: Draw) -> Injection:
    rank = draw.rank()
    return _job(
        "keeping.py",
        Answer(("straggler", "host_sync"), rank, (("keeping.py", "log_metrics"),)),
        step_ms=draw.step_ms(),
        rank=rank,
        does="log",
        amount=draw.random.randrange(4000, 12_000),
    )


def _start(draw: Draw) -> Injection:
    rank, late = draw.rank(), draw.random.choice(("data", "import", "cache"))
    places = {
        "data": (("starting.py", "prepare_data"),),
        "import": (("starting.py", "import_tokenizer"), ("slow_module.py", "<module>")),
        "cache": (("starting.py", "fill_cache"),),
    }
    return _job(
        "starting.py",
        Answer(("slow_start",), rank, places[late]),
        step_ms=draw.step_ms(),
        rank=rank,
        late=late,
        seconds=round(draw.random.uniform(4, 8), 1),
    )


def _uneven(draw: Draw) -> Injection:
    step_ms, rank = draw.step_ms(), draw.rank()
    more = round(draw.random.uniform(0.15, 0.6), 2)
    places = (("training.py", "forward"), ("training.py", "backward"))
    answer = Answer(("straggler",), rank, places, cost=more * step_ms / 1e3)
    return _job("uneven.py", answer, step_ms=step_ms, rank=rank, more=more)


@dataclass(frozen=True)
class Cause:
    """A kind of lost time.

    Attributes:
        make: Draws a job that has it.
        strategies: In which it can be.
    """

    make: Callable[[Draw], Injection]
    strategies: tuple[str, ...] = ANYWHERE


CAUSES: dict[str, Cause] = {
    "none": Cause(_none),
    "forward": Cause(lambda draw: _slow(draw, "forward")),
    "backward": Cause(lambda draw: _slow(draw, "backward")),
    "middle": Cause(_middle),
    "growing": Cause(_growing),
    "every k-th": Cause(lambda draw: _periodic(draw, draw.rank())),
    "all every k-th": Cause(lambda draw: _periodic(draw, None)),
    "loader": Cause(_loader),
    "shards": Cause(_shards),
    "save on rank 0": Cause(lambda draw: _saves(draw, 0)),
    "save on all": Cause(lambda draw: _saves(draw, None)),
    "evaluate on one": Cause(lambda draw: _evaluations(draw, draw.rank()), EQUAL_ROWS),
    "evaluate on all": Cause(lambda draw: _evaluations(draw, None), EQUAL_ROWS),
    "garbage": Cause(_garbage),
    "compilations": Cause(_compilations, EQUAL_ROWS),
    "growing memory": Cause(_memory),
    "logs": Cause(_logs),
    "sample": Cause(_sample),
    "spells": Cause(_spells),
    "start": Cause(_start),
    "uneven": Cause(_uneven, EQUAL_ROWS),
}

_SAID = {
    "raise": "ValueError",
    "exit": r"exit(ed)?\b.*\b3\b",
    "kill": "SIGKILL|signal 9",
    "mismatch": "(?i)all_?reduce|mismatch|different collective",
    "worker": r"(?i)\bworkers?\b",
    "memory": "(?i)memory",
    "import": "ModuleNotFoundError|a_module_that_is_not_installed",
    "absent": "(?i)not join|has not joined|never joined|missing",
    "settings": "KeyError",
}
"""Fault → what the first line has to say, as a regular expression."""
ALL_FAIL = ("settings",)
"""Faults of all ranks."""
FAULTS = tuple(_SAID)


def fault(name: str, draw: Draw) -> Injection:
    """A job that fails; ``words`` of its answer are for the first line."""
    rank = None if name in ALL_FAIL else draw.rank()
    at = draw.random.randrange(5, 80)
    shown = -1 if rank is None else rank
    answer = Answer((), rank, words=_SAID[name])
    where = {"step_ms": draw.step_ms(), "rank": shown, "at": at, "steps": 120}
    return _job("failing.py", answer, fault=name, **where)


def says(line: str, answer: Answer) -> bool:
    """Whether the first line on a job that failed has what it has to say, and the rank."""
    ranks = {int(number) for number in re.findall(r"\brank (\d+)", line)}
    return bool(re.search(answer.words, line)) and (answer.rank is None or answer.rank in ranks)
