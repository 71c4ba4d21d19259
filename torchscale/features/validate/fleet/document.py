"""An acceptance over several nodes as a document: the verdict, all nodes, the rounds of each."""

from __future__ import annotations

from collections import Counter

from torchscale.features.validate.acceptance.asked import policy_text, return_text
from torchscale.features.validate.first_screen import PART_TONES
from torchscale.features.validate.fleet.tables import fleet_blocks, node_label
from torchscale.features.validate.health.answer import ACTIONS, gravity
from torchscale.features.validate.rounds_section import rounds_section
from torchscale.report.document import (
    Document,
    Headline,
    Overview,
    Paragraph,
    QuestionAnswer,
    Section,
)
from torchscale.report.values import only_if, shortened
from torchscale.schema.node.fleet import FleetValidation
from torchscale.schema.node.policy import Policy
from torchscale.util.words import plural, sentence

_MOST_NODES = 8
"""Nodes whose rounds are drawn, the gravest first: ten charts each."""


def fleet_document(fleet: FleetValidation) -> Document:
    """The verdict with its action, then the same as on the terminal, then rounds."""
    policy = fleet.policy or Policy()
    tone = PART_TONES[fleet.disposition]
    measured = sorted(
        (node for node in fleet.nodes if node.validation and node.validation.acceptance),
        key=lambda node: -gravity(node.disposition),
    )
    counts = Counter(node.disposition.value for node in fleet.nodes)
    said = ", ".join(f"{count} {name}" for name, count in counts.items())
    more = f"Rounds of {plural(len(measured) - _MOST_NODES, 'further node')} are in fleet.json."
    action = sentence(ACTIONS[fleet.disposition])
    return Document(
        title=f"Acceptance of {plural(len(fleet.nodes), 'node')}",
        subtitle=", ".join(node.hostname for node in fleet.nodes[:_MOST_NODES]),
        verdict=(),
        key_figures=(),
        sections=(
            Section("Nodes", "nodes", tuple(fleet_blocks(fleet))),
            Section(
                "What keep asks for",
                "asked",
                (
                    Paragraph(f"Keep asks for: {policy_text(policy)}."),
                    Paragraph(f"Returned is {return_text(policy)}."),
                    *only_if(len(measured) > _MOST_NODES, Paragraph(more)),
                ),
            ),
            *(
                rounds_section(node.validation.acceptance, node_label(node))
                for node in measured[:_MOST_NODES]
                if node.validation is not None and node.validation.acceptance is not None
            ),
        ),
        overview=Overview(
            Headline(shortened(fleet.verdict), tone),
            (
                QuestionAnswer("What to do?", fleet.disposition.value, action, tone, "nodes"),
                QuestionAnswer("Nodes?", str(len(fleet.nodes)), said, tone, "nodes"),
            ),
        ),
    )
