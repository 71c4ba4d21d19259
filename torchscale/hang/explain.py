"""From what ranks left while they hang to the cause: which collective, which rank did not arrive,
how sure.

Ranks wait for each other, so most of them are victims. The one to name is found by following who
waits for whom: a rank that is missing in one collective and itself waits in another is a victim as
well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torchscale.hang.activity import Activity, busy_among_idle
from torchscale.hang.collectives import (
    GroupLog,
    Signature,
    Stall,
    due_signature,
    find_stalls,
    first_mismatch,
    group_logs,
    leaves_loop,
    odd_ranks,
    payload_bytes,
    payload_dtype,
    swapped,
)
from torchscale.hang.stacks import (
    LineRange,
    collective_in,
    has_left_loop,
    is_ending,
    is_in_backward,
    is_joining,
    is_loading,
    place,
    purpose,
)
from torchscale.schema.launch.collective_log import CollectiveCall, CollectiveLog
from torchscale.schema.launch.hang import (
    Autopsy,
    HangCause,
    RankCondition,
    RankPosition,
    StackFrame,
    StuckCollective,
)
from torchscale.schema.profiles.finding import Confidence
from torchscale.util.optional import optional, sole
from torchscale.util.units import format_bytes, format_seconds

_SIZE_ERROR = re.compile(
    r"preamble\.length <= op\.nbytes\. (?P<received>\d{1,18}) vs (?P<expected>\d{1,18})"
)
_BACKWARD = "backward pass"
_LEFT_BECAUSE = "may have had fewer batches, returned early or caught an exception"
"""Of ranks that have left a loop before others."""
_MAX_PLACES = 4
"""Of ranks in one line; the evidence lists all."""
_DEFAULT_DESCRIPTION = "default_pg"
"""torch's, of the group that ``init_process_group`` makes."""


@dataclass(frozen=True)
class RankEvidence:
    """What is known of one rank.

    Attributes:
        rank: Global rank.
        condition: Of its process.
        frames: Python stack of its main thread, outermost first; empty where unknown.
        log: Its collectives; ``None`` without a recorder.
        problem: Why there is no ``log``.
        is_unread: Whether it left a dump that could not be read.
        pid: Of its process, where known.
        size_error: Bytes that gloo received and that it expected, if it ended the rank for that.
        activity: Whether it computes or sleeps; ``None`` where that is not known, or says nothing
            about waiting.
        loops: For each of ``frames`` the outermost loop around its line; empty where its source is
            not known.
    """

    rank: int
    condition: RankCondition = RankCondition.RUNNING
    frames: tuple[StackFrame, ...] = ()
    log: CollectiveLog | None = None
    problem: str = ""
    pid: int | None = None
    size_error: tuple[int, int] | None = None
    activity: Activity | None = None
    loops: tuple[LineRange | None, ...] = ()
    is_unread: bool = False


@dataclass(frozen=True)
class _Job:
    """All ranks, and where their collectives stand."""

    ranks: Mapping[int, RankEvidence]
    groups: Sequence[GroupLog]
    stalls: Sequence[Stall]
    notes: tuple[str, ...] = ()
    waits_in: Mapping[int, Sequence[Stall]] = field(default_factory=dict)

    @property
    def nearest_first(self) -> list[Stall]:
        """Stalls; first those in which no missing rank waits for others itself, so that the cause
        is in them."""
        return sorted(
            self.stalls, key=lambda stall: sum(bool(self.waits_in[rank]) for rank in stall.missing)
        )

    def where(self, rank: int) -> str:
        """The line a rank is at; empty where unknown."""
        return place(self.ranks[rank].frames)

    @property
    def busy(self) -> tuple[int, ...]:
        """The ranks that compute while all others sleep; empty where that is not so or not
        known."""
        return busy_among_idle({rank: evidence.activity for rank, evidence in self.ranks.items()})

    @property
    def all_sleep(self) -> bool:
        """Whether every rank is known to sleep."""
        return all(evidence.activity is Activity.IDLE for evidence in self.ranks.values())

    def with_condition(self, condition: RankCondition) -> tuple[int, ...]:
        """Ranks whose process is in this state."""
        return tuple(
            rank for rank, evidence in sorted(self.ranks.items()) if evidence.condition is condition
        )


def explain_hang(
    ranks: Sequence[RankEvidence], notes: Sequence[str] = (), moved_seconds_ago: float | None = None
) -> Autopsy:
    """Why these ranks make no progress.

    Args:
        ranks: Every rank of the job.
        notes: Further evidence, a line each, which the verdict repeats.
        moved_seconds_ago: When the last progress was, if the job may be slow and not hang: then no
            rank is named.
    """
    job = _job(ranks, notes)
    if moved_seconds_ago is not None:
        summary = (
            f"the last progress was {format_seconds(moved_seconds_ago)} earlier, so the ranks may "
            "not hang"
        )
        return _verdict(job, HangCause.UNKNOWN, (), Confidence.LOW, summary)
    return (
        _mismatch_where_they_are(job)
        or _mismatch_with_ended(job)
        or _ended_or_stopped(job)
        or _mismatch_before(job)
        or _cycle(job)
        or _missing(job)
        or _by_stacks(job)
        or _by_activity(job)
        or _unknown(job)
    )


def explain_failure(ranks: Sequence[RankEvidence]) -> Autopsy | None:
    """Whether ranks of a launch that failed called collectives that do not fit together, for which
    gloo ends a rank; ``None`` where nothing says so."""
    job = _job(ranks, ())
    stall = first_mismatch(job.groups)
    if stall is None:
        return _mismatch_with_ended(job)
    return _mismatch(job, stall)


def size_error(text: str) -> tuple[int, int] | None:
    """Bytes received and bytes expected, from the message with which gloo ends a rank that receives
    more than it expects."""
    match = _SIZE_ERROR.search(text)
    if match is None:
        return None
    return int(match["received"]), int(match["expected"])


def ranks_label(ranks: Sequence[int]) -> str:
    """``rank 1``, ``ranks 0 and 2``, ``ranks 0, 2-7 and 9``; ``no rank`` for none."""
    parts: list[str] = []
    ordered = sorted(ranks)
    start = 0
    for index, rank in enumerate(ordered):
        if index + 1 < len(ordered) and ordered[index + 1] == rank + 1:
            continue
        run = ordered[start : index + 1]
        if len(run) > 2:
            parts.append(f"{run[0]}-{run[-1]}")
        else:
            parts += map(str, run)
        start = index + 1
    if not parts:
        return "no rank"
    noun = _agreeing(ordered, "rank", "ranks")
    if len(parts) == 1:
        return f"{noun} {parts[0]}"
    return f"{noun} {', '.join(parts[:-1])} and {parts[-1]}"


def collective_label(collective: StuckCollective) -> str:
    """``all_reduce #4312 (gradients, 25.0 MiB)``; with the group and its ranks unless it is the
    default group."""
    name = collective.operation
    if collective.sequence is not None:
        name += f" #{collective.sequence}"
    details = []
    if collective.purpose:
        details.append(collective.purpose)
    if collective.payload_bytes is not None:
        details.append(format_bytes(collective.payload_bytes))
    if collective.group:
        details.append(f"group {collective.group} of {ranks_label(collective.group_ranks)}")
    if not details:
        return name
    return f"{name} ({', '.join(details)})"


def _job(ranks: Sequence[RankEvidence], notes: Sequence[str]) -> _Job:
    by_rank = {
        evidence.rank: evidence for evidence in sorted(ranks, key=lambda evidence: evidence.rank)
    }
    logs = {rank: evidence.log for rank, evidence in by_rank.items() if evidence.log is not None}
    groups = group_logs(logs, tuple(by_rank))
    stalls = find_stalls(groups)
    waits_in: dict[int, list[Stall]] = {rank: [] for rank in by_rank}
    for stall in stalls:
        for rank in stall.waiting:
            waits_in[rank].append(stall)
    return _Job(by_rank, groups, stalls, tuple(notes), waits_in)


def _mismatch_where_they_are(job: _Job) -> Autopsy | None:
    """Ranks that wait in one collective with different arguments."""
    for stall in job.stalls:
        if stall.is_mismatch and stall.waiting:
            return _mismatch(job, stall)
    return None


def _mismatch_before(job: _Job) -> Autopsy | None:
    """Ranks whose calls differed earlier, in a collective that completed by chance."""
    for stall in job.stalls:
        if stall.is_mismatch:
            return _mismatch(job, stall)
    return None


def _mismatch_with_ended(job: _Job) -> Autopsy | None:
    """A rank that gloo ended because it received more than its call expects. Either that rank
    passed too little, or another one too much: the calls of the ranks that are left decide."""
    ended = tuple(rank for rank, evidence in job.ranks.items() if evidence.size_error is not None)
    stall = next((stall for stall in job.nearest_first if set(ended) & set(stall.silent)), None)
    if stall is None:
        return None
    victim = next(rank for rank in ended if rank in stall.silent)
    signature, *others = sorted(set(stall.signatures.values()))
    due = due_signature(stall)
    known = tuple(sorted(stall.signatures))
    odd: tuple[int, ...]
    if others:
        return _mismatch(job, stall)
    unseen = tuple(rank for rank in (*stall.missing, *stall.silent) if rank != victim)
    if unseen:
        odd, confidence, why = (
            (*unseen, victim),
            Confidence.LOW,
            f"what {ranks_label(unseen)} called is not known",
        )
    elif len(known) > 1:
        odd, confidence, why = (victim,), Confidence.HIGH, "all other ranks called the same"
    elif due is None:
        odd, confidence, why = (
            (*known, victim),
            Confidence.LOW,
            "nothing says which of them is wrong",
        )
    else:
        odd = known
        if due == signature:
            odd = (victim,)
        confidence, why = (
            Confidence.MEDIUM,
            f"earlier rounds called at this point what {ranks_label(odd)} did not",
        )
    received, expected = job.ranks[victim].size_error or (0, 0)
    collective = _collective(job, stall, ())
    cause = HangCause.SIZE_MISMATCH
    if odd == known and due is not None:
        cause = _cause_of([due, signature])
    called = f"{ranks_label(known)} called {_arguments(stall.call(known[0]))}"
    summary = (
        f"{collective_label(collective)}: rank {victim} received {format_bytes(received)} where "
        f"its call expects {format_bytes(expected)}, and was ended by gloo; {called}"
    )
    return _verdict(job, cause, odd, confidence, summary, collective=collective, evidence=[why])


def _cause_of(signatures: Sequence[Signature]) -> HangCause:
    """In what calls under one number differ."""
    if len({tuple(operation for operation, _, _ in signature) for signature in signatures}) > 1:
        return HangCause.COLLECTIVE_MISMATCH
    if len({tuple(dtypes for _, _, dtypes in signature) for signature in signatures}) > 1:
        return HangCause.DTYPE_MISMATCH
    return HangCause.SIZE_MISMATCH


def _mismatch(job: _Job, stall: Stall) -> Autopsy:
    odd, clear = odd_ranks(stall)
    named = len(odd) < len(stall.signatures)
    calls = {rank: stall.call(rank) for rank in sorted(stall.signatures)}
    cause = _cause_of(list(stall.signatures.values()))
    if swapped(stall):
        cause = HangCause.ORDER
    sides: dict[str, list[int]] = {}
    for rank, call in calls.items():
        sides.setdefault(_arguments(call), []).append(rank)
    ordered = sorted(
        sides.items(), key=lambda side: (not (named and set(side[1]) <= set(odd)), side[1])
    )
    said = ", ".join(f"{ranks_label(ranks)} called {text}" for text, ranks in ordered)
    evidence = []
    if named:
        collective, confidence = _collective(job, stall, odd), Confidence.MEDIUM
    else:
        collective, confidence = _collective(job, stall, ()), Confidence.LOW
        evidence.append("nothing says which of them is wrong")
    summary = f"{collective.operation} #{stall.number}{_of_group(stall)}: {said}"
    if named and clear:
        confidence = Confidence.HIGH
    elif named:
        summary += f"; {ranks_label(odd)} {_agreeing(odd, 'differs', 'differ')} from earlier rounds"
    if cause is HangCause.ORDER:
        summary += "; they call the same collectives in different orders"
    return _verdict(job, cause, odd, confidence, summary, collective=collective, evidence=evidence)


def _ended_or_stopped(job: _Job) -> Autopsy | None:
    """A rank whose process has ended or is stopped: the others cannot go on, whatever they wait
    in."""
    for condition, cause, verbs, text in (
        (RankCondition.GONE, HangCause.RANK_GONE, ("has", "have"), "ended"),
        (
            RankCondition.STOPPED,
            HangCause.RANK_STOPPED,
            ("is", "are"),
            "stopped by a signal or a debugger",
        ),
    ):
        ranks = job.with_condition(condition)
        if ranks and len(ranks) < len(job.ranks):
            summary = f"{ranks_label(ranks)} {_agreeing(ranks, *verbs)} {text}"
            collective: StuckCollective | None = None
            for stall in job.nearest_first:
                if set(ranks) & {*stall.silent, *stall.missing}:
                    collective = _collective(job, stall, ranks)
                    summary = f"{collective_label(collective)}: {summary}"
                    break
            return _verdict(job, cause, ranks, Confidence.HIGH, summary, collective=collective)
    return None


def _cycle(job: _Job) -> Autopsy | None:
    """Ranks that wait in different groups, each for the other: they call the same collectives in
    different orders."""
    for first in job.stalls:
        for second in {
            id(stall): stall for rank in first.missing for stall in job.waits_in[rank]
        }.values():
            here = sorted(set(first.waiting) & set(second.missing))
            there = sorted(set(second.waiting) & set(first.missing))
            if here and there:
                label, other = (
                    collective_label(_collective(job, stall, ())) for stall in (first, second)
                )
                summary = (
                    f"{ranks_label([*here, *there])} wait for each other: {ranks_label(here)} in "
                    f"{label}, {ranks_label(there)} in {other}; they call these collectives in "
                    "different orders"
                )
                return _verdict_on_cycle(job, summary, (first, here), (second, there))
    return None


def _verdict_on_cycle(job: _Job, summary: str, *sides: tuple[Stall, Sequence[int]]) -> Autopsy:
    """Names the side that does not do what it did in earlier rounds, else both. The collective is
    that of the others, which the named side should have called."""
    leaving = [
        (stall, ranks)
        for stall, ranks in sides
        if all(leaves_loop(job.ranks[rank].log, stall.call(rank)) for rank in ranks)
    ]
    if len(leaving) == 1:
        odd = tuple(leaving[0][1])
        stall = next(stall for stall, _ in sides if stall is not leaving[0][0])
        evidence = [f"earlier rounds called at this point what {ranks_label(odd)} did not"]
        confidence = Confidence.MEDIUM
    else:
        odd, stall = tuple(sorted({rank for _, ranks in sides for rank in ranks})), sides[0][0]
        evidence = ["nothing says which of them is wrong"]
        confidence = Confidence.LOW
    collective = _collective(job, stall, odd)
    return _verdict(
        job, HangCause.ORDER, odd, confidence, summary, collective=collective, evidence=evidence
    )


def _missing(job: _Job) -> Autopsy | None:
    """Ranks that did not call a collective that others are in, and wait in no other themselves."""
    for stall in job.nearest_first:
        missing = [rank for rank in stall.missing if not job.waits_in[rank]]
        # The recorder of gloo holds no sends and receives: a rank whose stack is in one waits for
        # others as well.
        absent = [rank for rank in missing if not _wait_of(job.ranks[rank].frames)]
        silent = [
            rank for rank in stall.silent if rank in job.ranks and not _seems_to_wait(job, rank)
        ]
        absent = absent or silent or missing
        if not absent:
            continue
        chosen = _likeliest(stall, absent)
        has_log = set(chosen) <= set(stall.missing)
        waits_unrecorded = any(_wait_of(job.ranks[rank].frames) for rank in chosen)
        few = len(chosen) <= len(stall.waiting)
        confidence = Confidence.MEDIUM
        if waits_unrecorded or not (has_log or all(job.ranks[rank].frames for rank in chosen)):
            confidence = Confidence.LOW
        elif has_log and few:
            confidence = Confidence.HIGH
        collective = _collective(job, stall, chosen)
        cause, text = _absence(job, chosen, has_log)
        summary = f"{collective_label(collective)}: {text}"
        return _verdict(job, cause, chosen, confidence, summary, collective=collective)
    return None


def _likeliest(stall: Stall, absent: Sequence[int]) -> tuple[int, ...]:
    """Of the ranks that are missing those that called the fewest collectives of the group: others
    may wait for them in ways that the recorder does not see."""
    counts = {rank: stall.log.last(rank) for rank in absent}
    fewest = min(counts.values())
    return tuple(sorted(rank for rank in absent if counts[rank] == fewest))


def _absence(job: _Job, ranks: Sequence[int], has_log: bool) -> tuple[HangCause, str]:
    """Why ranks are missing, and the sentence."""
    frames = [job.ranks[rank].frames for rank in ranks]
    they_are = _agreeing(ranks, "it is", "they are")
    places = {place(stack) for stack in frames} - {""}
    where = ""
    if 0 < len(places) < 3:
        where = f" in {' and '.join(sorted(places))}"
    never = f"{ranks_label(ranks)} left no dump"
    if any(job.ranks[rank].is_unread for rank in ranks):
        never = f"{ranks_label(ranks)} left no dump that can be read"
    if has_log:
        never = f"{ranks_label(ranks)} never called it"
    if all(map(is_loading, frames)):
        return HangCause.LOADER, f"{never}; {they_are} loading data{where}"
    waits = {_wait_of(stack) for stack in frames}
    if len(waits) == 1 and "" not in waits:
        return (
            HangCause.RANK_MISSING,
            f"{never}; {they_are} in {waits.pop()}{where.replace(' in ', ', at ', 1)}",
        )
    if all(map(is_ending, frames)):
        return HangCause.TEARDOWN, f"{never}; {they_are} in teardown{where}"
    if not where:
        return HangCause.RANK_MISSING, never
    return HangCause.RANK_MISSING, f"{never}; {they_are}{where}"


def _by_stacks(job: _Job) -> Autopsy | None:
    """Where no recorder shows a collective that does not complete, the Python stacks say who waits
    for others."""
    if job.stalls:
        return None
    known = {rank: evidence.frames for rank, evidence in job.ranks.items() if evidence.frames}
    waiting = {rank: name for rank, frames in known.items() if (name := _wait_of(frames))}
    in_backward = dict.fromkeys(_wait_in_backward(job), _BACKWARD)
    explicit = bool(waiting) and all(
        job.ranks[rank].activity is Activity.IDLE for rank in in_backward
    )
    waiting.update(in_backward)
    if len(waiting) == len(job.ranks):
        return _apart(job, waiting)
    others = tuple(sorted(set(job.ranks) - set(waiting)))
    if waiting and others:
        operation = max(waiting.values(), key=list(waiting.values()).count)
        frames = known[min(waiting)]
        collective = StuckCollective(operation=operation, purpose=purpose(operation, frames))
        cause, text = _absence(job, others, has_log=all(rank in known for rank in others))
        summary = (
            f"{collective_label(collective)}: {text.replace('never called it', 'is not in it', 1)}"
        )
        if len(others) > 1:
            summary = summary.replace("is not in it", "are not in it", 1)
        confidence = Confidence.LOW
        if (
            (explicit or job.busy == others)
            and len(others) <= len(waiting)
            and set(others) <= set(known)
        ):
            confidence = Confidence.MEDIUM
        return _verdict(job, cause, others, confidence, summary, collective=collective)
    if waiting:
        return None
    return _without_collectives(job, known)


def _wait_in_backward(job: _Job) -> list[int]:
    """Ranks in the backward pass alone that may wait there: DDP waits for gradients in C++, so that
    the stack shows the pass, in which a rank may compute as well."""
    inside = [rank for rank, evidence in job.ranks.items() if is_in_backward(evidence.frames)]
    unnamed = [rank for rank in inside if not _wait_of(job.ranks[rank].frames)]
    return [rank for rank in unnamed if job.ranks[rank].activity is not Activity.BUSY]


def _apart(job: _Job, waiting: Mapping[int, str]) -> Autopsy | None:
    """All ranks wait, but not in the same place. Those that have left for good the loop in which
    the others are do not come back to it; they are named unless they are the most. Else nothing
    says who is wrong."""
    sides: dict[tuple[str, str], list[int]] = {}
    for rank, operation in sorted(waiting.items()):
        sides.setdefault((operation, job.where(rank)), []).append(rank)
    if len(sides) != 2:
        return None
    first, second = sides.values()
    for gone, inside in ((first, second), (second, first)):
        if _have_left(job, gone, inside):
            return _left_the_loop(job, waiting, gone, inside)
    return None


def _left_the_loop(
    job: _Job, waiting: Mapping[int, str], gone: Sequence[int], inside: Sequence[int]
) -> Autopsy:
    """The verdict on ranks that have left a loop while others wait in it; the smaller part is
    named."""
    have = _agreeing(gone, "has", "have")
    if len(gone) <= len(inside):
        cause, odd, others = HangCause.TEARDOWN, gone, inside
        text = (
            f"{ranks_label(gone)} {have} left the loop before {ranks_label(inside)}, and "
            f"{_waits_there(job, waiting, gone)}"
        )
    else:
        cause, odd, others = HangCause.RANK_MISSING, inside, gone
        text = (
            f"{ranks_label(inside)} {_waits_there(job, waiting, inside)}, in a loop that "
            f"{ranks_label(gone)} {have} left"
        )
    confidence = Confidence.LOW
    if job.all_sleep:
        confidence = Confidence.MEDIUM
    operation = waiting[others[0]]
    collective = StuckCollective(
        operation=operation, purpose=purpose(operation, job.ranks[others[0]].frames)
    )
    return _verdict(
        job,
        cause,
        odd,
        confidence,
        f"{collective_label(collective)}: {text}",
        collective=collective,
        evidence=[f"{ranks_label(gone)} {_LEFT_BECAUSE}"],
    )


def _have_left(job: _Job, ahead: Sequence[int], behind: Sequence[int]) -> bool:
    """Whether each rank of the one side has left for good a loop in which each of the other side
    is."""
    return all(
        has_left_loop(mine.frames, mine.loops, theirs.frames, theirs.loops)
        for mine in (job.ranks[rank] for rank in ahead)
        for theirs in (job.ranks[rank] for rank in behind)
    )


def _waits_there(job: _Job, waiting: Mapping[int, str], ranks: Sequence[int]) -> str:
    """``wait in all_reduce, at train.py:12``."""
    operation = waiting[ranks[0]]
    if operation == _BACKWARD:
        operation = f"the {operation}"
    text = f"{_agreeing(ranks, 'waits', 'wait')} in {operation}"
    place_of_all = sole({job.where(rank) for rank in ranks})
    if place_of_all is None:
        return text
    return f"{text}, at {place_of_all}"


def _agreeing(ranks: Sequence[int], singular: str, plural: str) -> str:
    """The form of a word that agrees with the number of ranks."""
    if len(ranks) == 1:
        return singular
    return plural


def _by_activity(job: _Job) -> Autopsy | None:
    """Where stacks are not known, a rank that computes while all others sleep is the one that has
    not arrived. Not where a stack that is known contradicts that, nor where a recorder shows what
    ranks wait in."""
    busy = job.busy
    known = {rank: evidence.frames for rank, evidence in job.ranks.items() if evidence.frames}
    waits_busily = any(_wait_of(frames) for rank, frames in known.items() if rank in busy)
    sleeps_elsewhere = any(not _seems_to_wait(job, rank) for rank in known if rank not in busy)
    if job.stalls or not busy or waits_busily or sleeps_elsewhere:
        return None
    are, they_have = _agreeing(busy, "is", "are"), _agreeing(busy, "it has", "they have")
    summary = (
        f"{ranks_label(busy)} {are} busy while all others sleep: {they_have} not arrived where the "
        "others wait"
    )
    return _verdict(job, HangCause.RANK_MISSING, busy, Confidence.LOW, summary)


def _without_collectives(job: _Job, known: Mapping[int, Sequence[StackFrame]]) -> Autopsy | None:
    """No rank waits in a collective: all of them load data or end, or one does."""
    for cause, test, text in (
        (HangCause.LOADER, is_loading, "loading data"),
        (HangCause.TEARDOWN, is_ending, "in teardown"),
    ):
        ranks = tuple(rank for rank, frames in sorted(known.items()) if test(frames))
        if ranks:
            label = f"{ranks_label(ranks)} {_agreeing(ranks, 'is', 'are')}"
            summary = f"no rank waits in a collective; {label} {text}"
            place_of_all = sole({job.where(rank) for rank in ranks})
            if place_of_all is not None:
                summary += f" in {place_of_all}"
            confidence = Confidence.LOW
            if len(known) == len(job.ranks):
                confidence = Confidence.MEDIUM
            return _verdict(job, cause, ranks, confidence, summary)
    return None


def _unknown(job: _Job) -> Autopsy:
    """Nothing names a rank."""
    stall = next(iter(job.stalls), None)
    if stall is not None:
        collective = _collective(job, stall, ())
        text = "no rank can be named"
        if not stall.silent and not stall.missing:
            text = "every rank has called it, and none has left"
        summary = f"{collective_label(collective)}: {text}"
        return _verdict(job, HangCause.UNKNOWN, (), Confidence.LOW, summary, collective=collective)
    places = sorted({(job.where(rank), rank) for rank in job.ranks if job.where(rank)})
    where = [
        f"rank {rank} is in {text}"
        for text, rank in sorted(places, key=lambda item: item[1])[:_MAX_PLACES]
    ]
    if len(job.ranks) > 1 or not where:
        where.insert(0, "no rank is known to wait in a collective")
    return _verdict(job, HangCause.UNKNOWN, (), Confidence.LOW, "; ".join(where))


def _verdict(
    job: _Job,
    cause: HangCause,
    ranks: Sequence[int],
    confidence: Confidence,
    summary: str,
    *,
    collective: StuckCollective | None = None,
    evidence: Sequence[str] = (),
) -> Autopsy:
    positions = tuple(_position(job, rank) for rank in job.ranks)
    return Autopsy(
        cause=cause,
        ranks=tuple(sorted(ranks)),
        collective=collective,
        confidence=confidence,
        summary=summary,
        evidence=(*evidence, *_states(job, positions), *job.notes),
        positions=positions,
    )


def _states(job: _Job, positions: Sequence[RankPosition]) -> list[str]:
    """A line for all ranks that are in the same place."""
    lines: dict[str, list[int]] = {}
    for position in positions:
        text = _state(job, position)
        problem = job.ranks[position.rank].problem
        if problem:
            text += f" ({problem})"
        lines.setdefault(text, []).append(position.rank)
    return [f"{ranks_label(ranks)}: {text}" for text, ranks in lines.items()]


def _state(job: _Job, position: RankPosition) -> str:
    if position.condition is RankCondition.GONE:
        return "process has ended"
    if position.condition is not RankCondition.RUNNING:
        return "process is stopped"
    if position.collective and position.place:
        return f"in {position.collective}, at {position.place}"
    if position.collective:
        return f"in {position.collective}"
    text = "no stack"
    if position.place:
        text = f"at {position.place}"
    last = _last_call(job, position.rank)
    if last:
        text += f"; its last collective was {last}"
    return text


def _position(job: _Job, rank: int) -> RankPosition:
    evidence = job.ranks[rank]
    names = [
        f"{stall.call(rank).operation} #{stall.number}{_of_group(stall)}"
        for stall in job.waits_in[rank]
    ]
    return RankPosition(
        rank=rank,
        condition=evidence.condition,
        place=place(evidence.frames),
        collective=" and ".join(names[:2]) or _wait_of(evidence.frames),
    )


def _last_call(job: _Job, rank: int) -> str:
    """The latest collective that a rank called, as ``all_reduce #56``."""
    log = job.ranks[rank].log
    if log is None:
        return ""
    for call in reversed(log.calls):
        if not call.is_p2p:
            return f"{call.operation} #{call.sequence}"
    return ""


def _collective(job: _Job, stall: Stall, odd: Sequence[int]) -> StuckCollective:
    """The collective of ``stall`` as the ranks called it that are not ``odd``."""
    callers = [rank for rank in sorted(stall.signatures) if rank not in odd] or sorted(
        stall.signatures
    )
    calls = [stall.call(rank) for rank in callers]
    operations = {call.operation for call in calls}
    operation = sole(operations)
    if operation is None:
        operation = "collective"
    waiting = next((rank for rank in callers if rank in stall.waiting), callers[0])
    return StuckCollective(
        operation=operation,
        sequence=stall.number,
        group=_group_name(stall.log),
        group_ranks=stall.log.members,
        payload_bytes=sole({payload_bytes(call) for call in calls}) or None,
        dtype=sole({payload_dtype(call) for call in calls}),
        purpose=purpose(operation, job.ranks[waiting].frames),
    )


def _group_name(log: GroupLog) -> str:
    """torch's description, as ``mesh_dp``, else its number; empty for the default group."""
    if log.description == _DEFAULT_DESCRIPTION:
        return ""
    if log.description in ("undefined", ""):
        return log.name
    return log.description


def _of_group(stall: Stall) -> str:
    name = _group_name(stall.log)
    if not name:
        return ""
    return f" of group {name}"


def _arguments(call: CollectiveCall) -> str:
    """``all_reduce of 4.00 MiB float32``."""
    size = optional(format_bytes, payload_bytes(call))
    details = " ".join(filter(None, (size, payload_dtype(call))))
    if not details:
        return call.operation
    return f"{call.operation} of {details}"


def _wait_of(frames: Sequence[StackFrame]) -> str:
    """The collective, or the wait for other ranks, that a stack is in; empty for none."""
    if is_joining(frames):
        return "init_process_group"
    return collective_in(frames)


def _seems_to_wait(job: _Job, rank: int) -> bool:
    """Whether the stack of a rank without a recorder shows that it waits for others."""
    frames = job.ranks[rank].frames
    return bool(_wait_of(frames)) or is_in_backward(frames)
