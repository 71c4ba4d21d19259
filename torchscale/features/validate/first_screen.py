"""The first screen of a validation: the verdict with its action, and what it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from torchscale.features.validate.acceptance.judge import is_suspected
from torchscale.features.validate.acceptance.rounds import NARROW, disturbance, undisturbed
from torchscale.features.validate.acceptance.verdict import levels_text, rounds_named
from torchscale.features.validate.health.answer import ACTIONS
from torchscale.report.document import Headline, Overview, QuestionAnswer
from torchscale.report.values import Tone, caution_where, shortened
from torchscale.schema.node.acceptance import Acceptance, AcceptanceRun, FigureStatus
from torchscale.schema.node.burn_in import BurnIn
from torchscale.schema.node.check import Check, Status
from torchscale.schema.node.policy import MIN_ROUNDS
from torchscale.schema.node.validation import Disposition, Validation
from torchscale.util.units import format_percent, format_seconds
from torchscale.util.words import by_count, capped, plural, sentence

PART_TONES: Mapping[Disposition, Tone] = MappingProxyType(
    {
        Disposition.KEEP: Tone.GOOD,
        Disposition.UNDECIDED: Tone.DIM,
        Disposition.RETEST: Tone.CAUTION,
        Disposition.RETURN: Tone.BAD,
    }
)
_ENDED = {
    "narrow": f"until every figure but the disk's was known to ±{format_percent(NARROW, 0)}",
    "budget": "until the budget was over",
    "interrupted": "until it was interrupted",
    "failed": "until two rounds in a row failed",
}
_MOST_NAMED = 4


def validation_overview(validation: Validation) -> Overview:
    """All of the first screen."""
    tone = PART_TONES[validation.disposition]
    headline = Headline(shortened(validation.verdict), tone)
    action = sentence(ACTIONS[validation.disposition])
    rows = [QuestionAnswer("What to do?", validation.disposition.value, action, tone, "parts")]
    acceptance = validation.acceptance
    if acceptance is None:
        text = "nobody measured them (--acceptance)"
        rows.append(QuestionAnswer("Speeds?", "not measured", text, Tone.CAUTION, "asked"))
    else:
        rows.append(_rounds(acceptance.run, validation))
        rows.append(_speeds(acceptance))
        rows += _levels(acceptance)
    rows.append(_burn_in(validation.burn_in))
    rows.append(_checks(validation.checks))
    return Overview(headline, tuple(rows))


def _rounds(run: AcceptanceRun, validation: Validation) -> QuestionAnswer:
    used, count = undisturbed(run), len(run.rounds)
    text = f"in {format_seconds(run.seconds)}, {_ENDED[run.ended]}"
    disturbed = [it for it in range(count) if it not in used]
    if disturbed:
        why = disturbance(run.rounds[disturbed[-1]].conditions)
        text += f"; {why} in {rounds_named(disturbed, run)}"
    least = validation.policy.rounds if validation.policy is not None else 0
    said = f"{len(used)} of {count} undisturbed"
    return QuestionAnswer("Rounds?", said, text, caution_where(len(used) < least), "rounds")


def _speeds(acceptance: Acceptance) -> QuestionAnswer:
    wrong = [each for each in acceptance.figures if is_suspected(each)]
    if wrong:
        names = capped([f"{each.figure} of {each.part}" for each in wrong], _MOST_NAMED)
        sure = [each for each in wrong if each.status is not FigureStatus.UNCLEAR]
        said, tone = ("slow or unsteady", Tone.BAD) if sure else ("may be slow", Tone.CAUTION)
        return QuestionAnswer("Speeds?", said, ", ".join(names), tone, "rounds")
    if all(each.rounds < MIN_ROUNDS for each in acceptance.figures):
        text = f"fewer than {MIN_ROUNDS} undisturbed rounds"
        return QuestionAnswer("Speeds?", "not judged", text, Tone.CAUTION, "rounds")
    within = sum(each.status is FigureStatus.WITHIN for each in acceptance.figures)
    count = len(acceptance.figures)
    if not within:
        text = f"{plural(count, 'figure')}, none is held against a limit with certainty"
        return QuestionAnswer("Speeds?", "nothing slow was found", text, anchor="rounds")
    text = f"{within} of {plural(count, 'figure')} within limits"
    return QuestionAnswer("Speeds?", "nothing slow", text, Tone.GOOD, "rounds")


def _levels(acceptance: Acceptance) -> Iterator[QuestionAnswer]:
    two = [each for each in acceptance.figures if each.modes]
    if not two:
        return
    texts = capped([f"{each.figure} of {each.part}: {levels_text(each)}" for each in two], 2)
    said = f"{plural(len(two), 'figure')} {by_count(len(two), 'has', 'have')} two"
    tone = Tone.PLAIN
    if any(each.status is FigureStatus.FLAPPING for each in two):
        tone = Tone.BAD
    yield QuestionAnswer("Levels?", said, "; ".join(texts), tone, "rounds")


def _burn_in(burn_in: BurnIn | None) -> QuestionAnswer:
    if burn_in is None:
        return QuestionAnswer("Burn-in?", "none", "a rare wrong bit takes one to find (--burn-in)")
    text = f"in {format_seconds(burn_in.seconds)}"
    if burn_in.wrong_results:
        said = plural(burn_in.wrong_results, "wrong result")
        return QuestionAnswer("Burn-in?", said, text, Tone.BAD, "parts")
    return QuestionAnswer("Burn-in?", "no wrong bit", text, Tone.GOOD)


def _checks(checks: tuple[Check, ...]) -> QuestionAnswer:
    failed = [check.title for check in checks if check.status is Status.FAIL]
    warned = [check.title for check in checks if check.status is Status.WARN]
    passed = sum(check.status is Status.PASS for check in checks)
    if failed:
        text = ", ".join(capped(failed, _MOST_NAMED))
        return QuestionAnswer("Checks?", f"{len(failed)} failed", text, Tone.BAD, "checks")
    if warned:
        said, text = plural(len(warned), "warning"), ", ".join(capped(warned, _MOST_NAMED))
        return QuestionAnswer("Checks?", said, text, Tone.CAUTION, "checks")
    return QuestionAnswer("Checks?", f"{passed} passed", "none failed", Tone.GOOD, "checks")
