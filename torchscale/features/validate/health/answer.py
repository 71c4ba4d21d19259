"""The one answer on a node: the gravest verdict of its parts, and a sentence with the action."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from torchscale.errors import ExitCode
from torchscale.schema.node.fleet import FleetValidation
from torchscale.schema.node.policy import Policy
from torchscale.schema.node.validation import Disposition, PartVerdict, Validation
from torchscale.util.words import capped, listed, sentence

ACTIONS = {
    Disposition.KEEP: "put it into service",
    Disposition.UNDECIDED: "no fault was found, and too little was measured: measure what is missing",
    Disposition.RETEST: "do what is said, then validate again; return what comes back",
    Disposition.RETURN: "no reset or setting mends it: have it replaced",
}
"""What to do with a part or node, for those who read only this."""
EXIT_CODES = {
    Disposition.KEEP: ExitCode.OK,
    Disposition.UNDECIDED: ExitCode.UNDECIDED,
    Disposition.RETEST: ExitCode.FAILED,
    Disposition.RETURN: ExitCode.FAILED,
}
FAULTS = (Disposition.RETEST, Disposition.RETURN)
"""What is said of a part with a fault."""
_MOST_NAMED = 4
_MOST_REASONS = 3


def gravity(disposition: Disposition) -> int:
    """For ordering: the graver, the larger."""
    return list(Disposition).index(disposition)


def gravest(dispositions: Collection[Disposition]) -> Disposition:
    """The gravest of them; *keep* without any."""
    return max(dispositions, key=gravity, default=Disposition.KEEP)


def answer(
    said: str, parts: Sequence[PartVerdict], policy: Policy | None, *, fit: bool
) -> tuple[Disposition, str]:
    """The verdict on the node, and its sentence.

    Args:
        said: What the checks say.
        parts: What to do with each part.
        policy: What *keep* asks for; ``None`` where no acceptance was asked for: then the
            sentence is ``said``.
        fit: Whether no check failed.
    """
    whole = gravest([part.disposition for part in parts])
    if not fit:
        whole = gravest([whole, Disposition.RETEST])
    if policy is None:
        return whole, said
    if whole is Disposition.KEEP:
        return whole, f"Keep: {ACTIONS[whole]}. {said}"
    found = [part for part in parts if part.disposition is whole]
    if not found:
        return whole, f"{whole.value.capitalize()}. {said}"
    names = ""
    if whole is not Disposition.UNDECIDED:
        names = f" {listed(capped([short_name(part) for part in found], _MOST_NAMED))}"
    reasons = capped(
        list(dict.fromkeys(it for part in found for it in part.reasons)), _MOST_REASONS
    )
    actions = dict.fromkeys(part.action for part in found)
    text = f"{whole.value.capitalize()}{names}: {'; '.join(reasons)}."
    return whole, " ".join([text, *(sentence(action) for action in actions)])


def short_name(part: PartVerdict) -> str:
    """Without address and UUID, which would be cut off elsewhere."""
    if part.gpu is None:
        return part.part
    return f"GPU {part.gpu}"


def exit_code(validation: Validation | FleetValidation) -> ExitCode:
    """Of an acceptance that of its verdict; of checks alone 1 where one failed."""
    if validation.policy is not None:
        return EXIT_CODES[validation.disposition]
    if validation.fit:
        return ExitCode.OK
    return ExitCode.FAILED
