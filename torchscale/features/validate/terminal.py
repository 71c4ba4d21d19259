"""What ``validate`` found, on the terminal."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from torchscale.features.validate.acceptance.asked import policy_text
from torchscale.features.validate.acceptance.verdict import GROUP
from torchscale.features.validate.bundle_schema import BundleCheck
from torchscale.features.validate.document import checks_table, part_names, parts_table
from torchscale.features.validate.first_screen import PART_TONES
from torchscale.features.validate.health.answer import FAULTS
from torchscale.report.document import Block, Paragraph
from torchscale.report.formats.console import print_blocks, print_line
from torchscale.report.values import Tone, only_if
from torchscale.schema.node.check import Check, Status
from torchscale.schema.node.fleet import FleetValidation
from torchscale.schema.node.validation import Validation


def print_validation(validation: Validation, console: Console) -> None:
    """Checks by group, what was expected and what to do with those that did not pass; what this
    node has nothing to check for, by reason; the verdict last."""
    checked: list[Check] = []
    not_checked: dict[str, list[str]] = {}
    for check in validation.checks:
        if check.status is Status.NOT_APPLICABLE and check.group != GROUP:
            not_checked.setdefault(check.seen, []).append(check.title)
        else:
            checked.append(check)
    reasons = [
        Paragraph(f"not checked: {', '.join(titles)} ({reason})")
        for reason, titles in not_checked.items()
    ]
    table = replace(checks_table(checked, with_advice=True), caption="Checks")
    print_blocks([table, *reasons, *_part_blocks(validation)], console)
    print_verdict(validation.verdict, console, verdict_tone(validation))


def verdict_tone(validation: Validation | FleetValidation) -> Tone:
    """The colour of the answer: of an acceptance that of its verdict."""
    if validation.policy is not None:
        return PART_TONES[validation.disposition]
    return Tone.PLAIN if validation.fit else Tone.BAD


def print_verdict(text: str, console: Console, tone: Tone) -> None:
    """The answer, below everything that it rests on."""
    console.print()
    print_line(text, console, tone)


def _part_blocks(validation: Validation) -> list[Block]:
    """What to do with each GPU and the node. Of an acceptance all of it; else those with a fault,
    the others in a line, and nothing of a node without GPUs that has none."""
    parts, unseen = validation.parts, validation.unseen
    looked = only_if(unseen, Paragraph(f"not looked at: {', '.join(unseen)}"))
    if validation.policy is not None:
        asked = Paragraph(f"keep asks for: {policy_text(validation.policy)}")
        return [parts_table(parts), *looked, asked]
    faults = [part for part in parts if part.disposition in FAULTS]
    others = [part for part in parts if part.disposition not in FAULTS]
    if not faults and all(part.gpu is None for part in others):
        return []
    return [
        *only_if(faults, parts_table(faults)),
        *only_if(others, Paragraph(f"no fault was found: {part_names(others)}")),
        *looked,
    ]


def print_bundle(bundle: BundleCheck, console: Console) -> None:
    """Whether a bundle is as it was written, then the verdicts in it."""
    manifest, signed = bundle.manifest, "not signed"
    if bundle.signer is not None:
        signed = f"signed by {bundle.signer}"
    if manifest is not None:
        made = f"{manifest.hostname}, {manifest.created_at}, torchscale {manifest.tool_version}"
        print_line(f"{made}; {signed}", console)
    if bundle.validation is not None:
        print_blocks(_part_blocks(bundle.validation), console)
        print_line(bundle.validation.verdict, console, verdict_tone(bundle.validation))
    console.print()
    for problem in bundle.problems:
        print_line(f"changed: {problem}", console, Tone.BAD)
    for note in bundle.notes:
        print_line(f"note: {note}", console, Tone.DIM)
    if bundle.verified:
        said = "as it was written" if bundle.every_byte else "its files are as they were written"
        print_line(f"Verified: {said}.", console)
    else:
        print_line("Not verified.", console, Tone.BAD)


def print_fixes(validation: Validation, console: Console) -> None:
    """The commands of each check that did not pass, one a line, to be copied; nothing where all
    passed."""
    for check in validation.checks:
        if check.status in (Status.WARN, Status.FAIL):
            commands = "\n".join(f"  {command}" for command in check.fixes)
            console.print()
            print_line(f"{check.title}: {check.seen}", console)
            print_blocks([*only_if(commands, Paragraph(commands, code=True))], console)
