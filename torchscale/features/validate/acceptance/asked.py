"""What a policy asks for before it says *keep*, and what there is of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torchscale.features.validate.acceptance.limits import COMPUTE, DISK, MEMORY
from torchscale.features.validate.acceptance.rounds import disturbance, undisturbed, values_in
from torchscale.features.validate.acceptance.verdict import rounds_named, rounds_text
from torchscale.schema.node.acceptance import (
    Acceptance,
    AcceptanceRun,
    FigureStatus,
)
from torchscale.schema.node.burn_in import BurnIn
from torchscale.schema.node.policy import Policy, Subject
from torchscale.util.units import format_percent
from torchscale.util.words import capped, listed, plural

_BEGINNINGS = {
    Subject.COMPUTE: (COMPUTE,),
    Subject.MEMORY: (MEMORY,),
    Subject.COPIES: ("copy to", "copy from"),
    Subject.LINKS: ("link", "copy between", "all-reduce"),
    Subject.DISK: (DISK,),
    Subject.TRAINING: ("training",),
}
"""How the figures of a subject begin."""
_LONGER = "measure for longer (--budget)"
_MOST_NAMED = 4
_CLOCKS_SECONDS = 1.0
"""A burn-in of ten minutes is told by another clock than the one that ended it."""


@dataclass(frozen=True)
class AskedFor:
    """One thing that *keep* asks for.

    Attributes:
        what: What is asked for.
        seen: What there is of it.
        reason: What is missing, in a sentence; empty where it is met.
        action: What to do to have it; empty where it is met.
    """

    what: str
    seen: str
    reason: str = ""
    action: str = ""

    @property
    def is_met(self) -> bool:
        """Whether it is there."""
        return not self.reason


def asked_for(
    policy: Policy, acceptance: Acceptance | None, burn_in: BurnIn | None, *, kernel_log: bool
) -> tuple[AskedFor, ...]:
    """All that a policy asks for, in the order in which it is to be mended.

    Args:
        policy: What is asked for.
        acceptance: What was measured, with its judged figures; ``None`` without an acceptance.
        burn_in: What a burn-in saw; ``None`` without one.
        kernel_log: Whether the kernel's log was read, or the node has no GPU.
    """
    return tuple(_asked_for(policy, acceptance, burn_in, kernel_log=kernel_log))


def _asked_for(
    policy: Policy, acceptance: Acceptance | None, burn_in: BurnIn | None, *, kernel_log: bool
) -> Iterator[AskedFor]:
    speeds = [subject for subject in policy.looked_at if subject is not Subject.KERNEL_LOG]
    if acceptance is not None:
        yield _rounds(policy.rounds, acceptance.run)
        yield from (_subject(subject, policy.rounds, acceptance.run) for subject in speeds)
        if policy.compared:
            yield _compared(acceptance)
    elif speeds:
        names = listed([subject.value for subject in speeds])
        action = "measure its speeds (--acceptance)"
        yield AskedFor(f"speeds: {names}", "not measured", "nobody measured its speeds", action)
    if policy.burn_in_minutes:
        yield _burn_in(policy.burn_in_minutes, burn_in)
    if Subject.KERNEL_LOG in policy.looked_at:
        yield _kernel_log(is_read=kernel_log)


def _rounds(least: int, run: AcceptanceRun) -> AskedFor:
    what, used, count = f"at least {least} undisturbed rounds", undisturbed(run), len(run.rounds)
    if len(used) >= least:
        return AskedFor(what, f"{len(used)} of {count}")
    disturbed = [it for it in range(count) if it not in used]
    if not disturbed:
        reason = f"{rounds_text(count)}, keep asks for {least}"
        return AskedFor(what, str(count), reason, _LONGER)
    why = disturbance(run.rounds[disturbed[-1]].conditions)
    reason = (
        f"{len(used)} of {rounds_text(count)} undisturbed, keep asks for {least}: {why} in "
        f"{rounds_named(disturbed, run)}"
    )
    return AskedFor(what, f"{len(used)} of {count}", reason, "measure again on a quiet node")


def _subject(subject: Subject, least: int, run: AcceptanceRun) -> AskedFor:
    """Figures of a subject in as many rounds as are asked for, or in all that count where these are
    too few: the rounds are asked for by themselves."""
    what, rounds = subject.value, undisturbed(run)
    if subject is Subject.LINKS and run.world_size < 2:
        return AskedFor(what, "one device, no link")
    if subject is Subject.COPIES and run.device == "cpu":
        return AskedFor(what, "no device beside the CPUs")
    of_subject = [each for each in run.series if each.figure.startswith(_BEGINNINGS[subject])]
    enough = max(1, min(least, len(rounds)))
    counted = rounds or tuple(range(len(run.rounds)))
    measured = [each for each in of_subject if len(values_in(each, counted)) >= enough]
    if measured:
        return AskedFor(what, _named([each.figure for each in measured]))
    seen = "measured in too few rounds" if of_subject else "not measured"
    return AskedFor(what, seen, f"{what} {seen}", _LONGER)


def _compared(acceptance: Acceptance) -> AskedFor:
    what = "every figure within a limit"
    others = [each for each in acceptance.figures if each.status is not FigureStatus.WITHIN]
    if not others:
        return AskedFor(what, "all are")
    seen = f"not {_named([each.figure for each in others])}"
    action = "give a --baseline, and more time (--budget)"
    return AskedFor(what, seen, f"not within a limit: {seen.removeprefix('not ')}", action)


def _burn_in(minutes: float, burn_in: BurnIn | None) -> AskedFor:
    seconds = 0.0 if burn_in is None else burn_in.seconds
    what, seen = f"a burn-in of {minutes:g} min", f"{seconds / 60:.1f} min"
    if seconds >= 60 * minutes - _CLOCKS_SECONDS:
        return AskedFor(what, seen)
    reason = f"{seen} of burn-in, keep asks for {minutes:g} min"
    return AskedFor(what, seen, reason, f"burn it in (--burn-in {minutes:g}m)")


def _kernel_log(*, is_read: bool) -> AskedFor:
    what = "the kernel's log"
    if is_read:
        return AskedFor(what, "read")
    return AskedFor(what, "not read", f"{what} was not read", "run it as root on the host")


def _named(figures: list[str]) -> str:
    return ", ".join(capped(list(dict.fromkeys(figures)), _MOST_NAMED))


def policy_text(policy: Policy) -> str:
    """What *keep* asks for, in a sentence."""
    parts = [f"{plural(policy.rounds, 'undisturbed round')} at least"]
    if policy.looked_at:
        parts.append(f"a look at {listed([subject.value for subject in policy.looked_at])}")
    if policy.burn_in_minutes:
        parts.append(f"a burn-in of {policy.burn_in_minutes:g} min")
    if policy.compared:
        parts.append("every figure within a limit")
    parts += [
        f"no figure more than {_percent(policy.baseline_loss_percent)} below its baseline, or slow "
        "among its peers",
        f"no two levels more than {_percent(policy.flap_percent)} apart, but of a disk or virtual cores",
    ]
    return "; ".join(parts)


def return_text(policy: Policy) -> str:
    """What is returned, in a sentence."""
    return (
        f"a part that is slow because of the host, and {_percent(policy.return_percent)} or more "
        "below its reference"
    )


def _percent(value: float) -> str:
    return format_percent(value / 100, 0 if value == int(value) else 1)
