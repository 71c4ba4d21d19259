"""What of a watched job makes the command fail where the program has not: ``--fail-on``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchscale.errors import UsageError
from torchscale.features.watch.text import cost_of_a_step
from torchscale.report.text.findings import finding_title
from torchscale.report.values import only_if
from torchscale.schema.launch.hang import HangCause
from torchscale.schema.profiles.finding import Confidence, FindingKind
from torchscale.schema.watch.report import WatchReport
from torchscale.util.words import did_you_mean, folded, in_brackets, within_sentence

ANY, HANG = "any", "hang"
_WORDS = {folded(word): word for word in (ANY, HANG, *(kind.value for kind in FindingKind))}


@dataclass(frozen=True)
class FailingKinds:
    """What fails.

    Attributes:
        kinds: Of findings.
        hangs: Whether a hang does.
        is_any: Whether all kinds were asked for by one word.
    """

    kinds: frozenset[FindingKind] = frozenset()
    hangs: bool = False
    is_any: bool = False

    def found(self, report: WatchReport) -> list[str]:
        """What was found of it with medium or high confidence, in words. A hang counts where its
        cause has a name: a long evaluation makes no progress for a while, too."""
        found = [
            within_sentence(finding_title(item.finding))
            + in_brackets(_of_a_step(cost_of_a_step(item.finding)))
            for item in report.findings
            if item.finding.kind in self.kinds and item.finding.confidence is not Confidence.LOW
        ]
        autopsy = report.autopsy
        if not self.hangs or autopsy is None or autopsy.cause is HangCause.UNKNOWN:
            return found
        return [
            *found,
            *only_if(autopsy.confidence is not Confidence.LOW, f"hang: {autopsy.summary}"),
        ]

    def unjudged(self, report: WatchReport) -> list[str]:
        """What of it cannot be told of this job, in words; of all kinds it is what the summary
        lists in any case."""
        if not self.kinds:
            return []
        if report.step_seconds is None:
            return ["findings (too few steps)"]
        if self.is_any:
            return []
        found = {item.finding.kind for item in report.findings}
        left = {item.kind: item.reason for item in report.abstentions if item.kind in self.kinds}
        return [
            within_sentence(kind.label) + in_brackets(reason)
            for kind, reason in left.items()
            if kind not in found
        ]


def _of_a_step(share: str) -> str:
    return f"{share} of a step" if share else ""


def parse_fail_on(texts: Sequence[str] | None) -> FailingKinds:
    """What words of the option name: kinds of findings, ``hang``, ``any``; ``None`` without it.

    Raises:
        UsageError: a word is none of them, or there is none.
    """
    if texts is None:
        return FailingKinds()
    words = [_word(text) for text in texts]
    if not words:
        raise UsageError("--fail-on names nothing", hint=f"one of: {', '.join(_WORDS.values())}")
    is_any = ANY in words
    kinds = (kind for kind in FindingKind if is_any or kind.value in words)
    return FailingKinds(frozenset(kinds), is_any or HANG in words, is_any)


def _word(text: str) -> str:
    word = _WORDS.get(folded(text))
    if word is None:
        raise UsageError(
            f"--fail-on {text}: no such kind{did_you_mean(text, _WORDS.values())}",
            hint=f"one of: {', '.join(_WORDS.values())}",
        )
    return word
