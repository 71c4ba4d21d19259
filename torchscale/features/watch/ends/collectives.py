"""Whether ranks failed because their collectives do not fit together: by the rules for hangs,
applied to the last collectives of ranks that have ended and to where each of them was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torchscale.features.watch.ends.ranks import RankEnd
from torchscale.features.watch.hang.collective_log import CollectiveLog
from torchscale.features.watch.hang.collectives import Stall, first_mismatch
from torchscale.features.watch.hang.history import odd_ranks
from torchscale.features.watch.hang.job import Job, RankEvidence, job_of
from torchscale.features.watch.hang.mismatch import explain_mismatch
from torchscale.features.watch.hang.source_loops import outermost_loops
from torchscale.features.watch.hang.stacks import (
    LineRange,
    is_in_backward,
    own_frames,
    own_place,
)
from torchscale.features.watch.hang.verdict import call_arguments
from torchscale.schema.launch.hang import Autopsy, StackFrame
from torchscale.util.text import agreeing, ranks_label

_LEFT_BECAUSE = "it may have had fewer batches, returned early or caught an exception"
_UNCLEAR = "nothing says which of them is wrong"
_ROOT = Path("/")


def mismatched_collectives(
    ends: Sequence[RankEnd], logs: Mapping[int, CollectiveLog], began: float
) -> Autopsy | None:
    """The verdict on ranks that called different collectives where they should have called the
    same; ``None`` where nothing says so.

    Args:
        ends: Of ranks.
        logs: Last collectives of each rank.
        began: When the ranks were started, in seconds since the epoch: sources that were changed
            later are not what they ran.
    """
    frames = {end.rank: end.frames for end in ends if end.rank is not None}
    ranks = sorted({*logs, *frames})
    lost = {end.rank for end in ends if end.is_lost_peer}
    evidence_of = [
        RankEvidence(
            rank,
            frames=frames.get(rank, ()),
            log=_within_last(logs.get(rank)) if rank in lost else logs.get(rank),
        )
        for rank in ranks
    ]
    job = job_of(evidence_of, ())
    stall = first_mismatch(job.groups)
    if stall is None or stall.is_passed:
        return None
    verdict = explain_mismatch(job, stall)
    unclear = () if set(verdict.ranks) < set(stall.signatures) else (_UNCLEAR,)
    return verdict.model_copy(
        update={
            "summary": _sides(job, stall),
            "evidence": (*_left_loop(job, stall, began), *unclear),
            # Of the others the last collectives are not known.
            "positions": tuple(one for one in verdict.positions if one.rank in stall.signatures),
        }
    )


def _within_last(log: CollectiveLog | None) -> CollectiveLog | None:
    """Of a rank that lost a peer: gloo marks the call that failed as it marks what is done."""
    if log is None or not log.calls or log.calls[-1].is_p2p:
        return log
    return replace(log, calls=(*log.calls[:-1], replace(log.calls[-1], is_done=False)))


def _sides(job: Job, stall: Stall) -> str:
    """``rank 3 called all_reduce of 1 element (4 B float32) at train.py:18 (report), where ranks
    0-2 called …``: those first that differ from the others."""
    odd, _ = odd_ranks(stall)
    sides: dict[str, list[int]] = {}
    for rank in sorted(stall.signatures):
        sides.setdefault(call_arguments(stall.call(rank)), []).append(rank)
    named = set(odd) if len(odd) < len(stall.signatures) else set()
    ordered = sorted(sides.items(), key=lambda side: (not set(side[1]) <= named, side[1]))
    first, *others = [_side(job, ranks, text) for text, ranks in ordered]
    return f"{first}, where {' and '.join(others)}" if others else first


def _side(job: Job, ranks: Sequence[int], text: str) -> str:
    frames = [job.ranks[rank].frames for rank in ranks if job.ranks[rank].frames]
    if any(is_in_backward(stack) for stack in frames) and text.startswith("all_reduce"):
        text += " (gradients)"
    places = sorted({own_place(stack) for stack in frames} - {""})
    where = f" at {places[0]}" if len(places) == 1 else ""
    return f"{ranks_label(ranks)} called {text}{where}"


def _left_loop(job: Job, stall: Stall, began: float) -> list[str]:
    """That the odd ranks are out of a loop in which the others still were."""
    odd, _ = odd_ranks(stall)
    others = [rank for rank in stall.signatures if rank not in odd and job.ranks[rank].frames]
    gone = [rank for rank in odd if job.ranks[rank].frames]
    if not others or not gone or len(odd) >= len(stall.signatures):
        return []
    for rank in gone:
        loop = _loop_left(job.ranks[rank].frames, job.ranks[others[0]].frames, began)
        if loop:
            label = ranks_label(others)
            was = agreeing(others, "was", "were")
            return [
                f"rank {rank} had left the loop at {loop} that {label} {was} in: {_LEFT_BECAUSE}"
            ]
    return []


def _loop_left(mine: Sequence[StackFrame], theirs: Sequence[StackFrame], began: float) -> str:
    """The loop of the program that the other stack is in and mine is past; empty for none."""
    mine, theirs = own_frames(mine), own_frames(theirs)
    loops = outermost_loops(theirs, _ROOT, began)
    for depth, (frame, other) in enumerate(zip(mine, theirs, strict=False)):
        if (frame.file, frame.function) != (other.file, other.function):
            return ""
        if frame.line < other.line:
            return ""
        if frame.line > other.line:
            return _first_loop(theirs[depth:], loops[depth:], frame.line)
    return ""


def _first_loop(frames: Sequence[StackFrame], loops: Sequence[LineRange | None], line: int) -> str:
    """The outermost loop of a stack that the line of its first function is not in."""
    for depth, (frame, loop) in enumerate(zip(frames, loops, strict=False)):
        is_shared = loop is not None and depth == 0 and loop[0] <= line <= loop[1]
        if loop is not None and not is_shared:
            return f"{frame.file.rpartition('/')[2]}:{loop[0]} ({frame.function})"
    return ""
