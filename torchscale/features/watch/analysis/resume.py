"""From which step an attempt of a job went on, and how many of its steps an earlier attempt had
done: from the files that ranks saved and loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchscale.schema.watch.attempt import AttemptRecord, CheckpointCall, RankCheckpoints

_CLOSED_NS = 60_000_000_000
"""From the end of a save to the last change of its file: a file that the program closes itself."""
_UPLOADED_NS = 300_000_000_000
"""The same where the call saved into memory, and the program writes that."""
_CLOCK_NS = 1_000_000_000
"""By which a file system's clock may lag behind."""


@dataclass(frozen=True)
class AttemptStart:
    """Where an attempt began.

    Attributes:
        step: Steps of the job before it; ``None`` where not known.
        reason: How that is known, or why not.
    """

    step: int | None
    reason: str


@dataclass(frozen=True)
class _Save:
    """A checkpoint and the step of the job that it holds; ``None`` where not known."""

    call: CheckpointCall
    step: int | None
    attempt: int


def find_origin(
    ranks: Sequence[RankCheckpoints], earlier: Sequence[AttemptRecord], *, has_optimizer: bool
) -> AttemptStart:
    """Where an attempt began, whose ranks loaded these files before their first step.

    Args:
        ranks: What each saved and loaded.
        earlier: All attempts before it.
        has_optimizer: Whether steps are those of an optimizer, and not rounds of collectives.
    """
    done = [record for record in earlier if record.attempt.steps]
    if not done:
        return AttemptStart(0, "the first one with steps")
    saves = [
        _Save(call, _step_of(record, call), record.attempt.number)
        for record in earlier
        for call in record.saves
    ]
    loads = {(load.path, load.inode, load.size): load for rank in ranks for load in rank.loads}
    matches = [(load, _save_of(load, saves)) for load in loads.values()]
    found = [(load, save) for load, save in matches if save is not None]
    if any(save.step != 0 for _, save in found):
        return _at_checkpoint(found, has_optimizer=has_optimizer)
    began = done[0].first_step_at or 0.0
    strange = [
        load.name for load, save in matches if save is None and _may_be_later(load, began, saves)
    ]
    if strange:
        return AttemptStart(
            None, f"it loaded {strange[0]}, which may have been written by calls that are not seen"
        )
    unseen = sorted({name for rank in ranks for name in rank.unseen})
    if unseen:
        return AttemptStart(
            None, f"{unseen[0]} saves and loads checkpoints in ways that are not seen"
        )
    return AttemptStart(0, "from zero: it loaded no checkpoint of an earlier attempt")


def repeated_steps(
    origin: AttemptStart, steps: int, earlier: Sequence[AttemptRecord]
) -> int | None:
    """How many of an attempt's first ``steps`` an earlier attempt had done; ``None`` where not
    known."""
    done = [record.attempt for record in earlier if record.attempt.steps]
    if not done:
        return 0
    reached = 0
    for attempt in done:
        if attempt.first_step is None or origin.step is None:
            return None
        reached = max(reached, attempt.first_step + attempt.steps)
    return max(0, min(steps, reached - (origin.step or 0)))


def _step_of(record: AttemptRecord, call: CheckpointCall) -> int | None:
    first = record.attempt.first_step
    return None if first is None else first + call.steps


def _at_checkpoint(
    found: Sequence[tuple[CheckpointCall, _Save]], *, has_optimizer: bool
) -> AttemptStart:
    """Where one began that loaded these checkpoints. Those from before the job's first step (data
    that the program prepares) say nothing beside others."""
    later = [(load, save) for load, save in found if save.step != 0]
    load, save = later[-1]
    if not has_optimizer:
        return AttemptStart(
            None, f"it loaded {load.name}; which round of collectives that is of is not known"
        )
    steps = sorted({save.step for _, save in later if save.step is not None})
    if len(steps) > 1:
        listed = " and ".join(f"{step:,}" for step in steps[-2:])
        return AttemptStart(None, f"it loaded checkpoints of several steps ({listed})")
    if any(save.step is None for _, save in later):
        return AttemptStart(
            None,
            f"it loaded {load.name} of attempt {save.attempt}, whose own beginning is not known",
        )
    return AttemptStart(steps[0], f"from step {steps[0]:,}: it loaded {load.name}")


def _save_of(load: CheckpointCall, saves: Sequence[_Save]) -> _Save | None:
    """The save that wrote what was loaded: that of the very file, which may have another name now;
    else the last one to its path; else the last one of so many bytes."""
    before = [save for save in saves if save.call.ended_ns <= load.began_ns]
    for is_same in (_is_file, _is_path, _is_content):
        same = [save for save in before if is_same(load, save.call)]
        if same:
            return max(same, key=lambda save: save.call.ended_ns)
    return None


def _is_file(load: CheckpointCall, save: CheckpointCall) -> bool:
    """A file that is renamed keeps its inode and its time; an inode alone is used again."""
    if load.inode is None or load.inode != save.inode:
        return False
    if load.modified_ns is None or save.modified_ns is None:
        return False
    return 0 <= load.modified_ns - save.modified_ns <= _CLOSED_NS


def _is_path(load: CheckpointCall, save: CheckpointCall) -> bool:
    return bool(load.path) and load.path == save.path


def _is_content(load: CheckpointCall, save: CheckpointCall) -> bool:
    """One of them gives no path: a program that writes, or reads, the bytes itself."""
    if (load.path and save.path) or load.size is None or load.size != save.size:
        return False
    if load.modified_ns is None:
        return True
    return -_CLOCK_NS <= load.modified_ns - save.ended_ns <= _UPLOADED_NS


def _may_be_later(load: CheckpointCall, began: float, saves: Sequence[_Save]) -> bool:
    """Whether a file that no save is known of may hold steps of the job: not one from before its
    first step, such as data or a pretrained model, nor bytes that are no checkpoint of it."""
    if load.modified_ns is not None:
        return load.modified_ns * 1e-9 > began
    if load.path or load.size is None:
        return True
    return not saves
