"""The likeliest cause of each part that differs, from what was measured beside the steps and what
else differs between the sides: one table of rules, which abstain where the evidence does not decide.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from torchscale.analysis.summary.scripts import ARGUMENT
from torchscale.features.compare.analysis.cell_why import CellWhy, PartChange
from torchscale.features.compare.analysis.differences import SideDifference
from torchscale.schema.run.step_parts import StepPart

LINK_CHANGE = 1.2
"""Factor by which the exchange alone must differ, beside p < 0.05: a link that is a little slower
explains little."""
_LEVEL = 0.05
BUCKET_CHANGE = 1.5
"""Factor by which the number of buckets must differ: two instead of one may come of rounding."""
_COMMIT = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{28}\b")
"""A git commit, which its first digits identify."""
_MOST_OF_IT = 0.6
"""Share of what ranks take longer from which a phase is named."""

_COMPUTE = frozenset(
    {
        StepPart.FORWARD,
        StepPart.BACKWARD,
        StepPart.OPTIMIZER,
        StepPart.COMPUTE,
        StepPart.BUBBLE,
        StepPart.SLOWER_RANKS,
    }
)
_COMMUNICATION = frozenset({StepPart.COMMUNICATION, StepPart.EXCHANGE})
_DATA = frozenset({StepPart.DATA_WAIT})
_ALL = _COMPUTE | _COMMUNICATION | _DATA

CHANGES: tuple[tuple[str, frozenset[StepPart]], ...] = (
    ("variable NCCL_", _COMMUNICATION),
    ("variable GLOO_", _COMMUNICATION),
    ("variable UCX_", _COMMUNICATION),
    ("variable FI_", _COMMUNICATION),
    ("variable ", _ALL),
    ("NCCL", _COMMUNICATION),
    ("torchscale", _ALL),
    ("torchao", _COMPUTE),
    ("torch", _ALL),
    ("Python", _COMPUTE | _DATA),
    ("CUDA", _COMPUTE),
    ("ROCm", _COMPUTE),
    ("cuDNN", _COMPUTE),
    ("driver", _COMPUTE | _COMMUNICATION),
    ("transformers", _COMPUTE),
    ("device", _ALL),
    ("host", _ALL),
    ("system", _ALL),
    ("processor", _ALL),
    ("usable cores", _ALL),
    ("memory", _ALL),
    ("threads per rank", _COMPUTE | _DATA),
    ("git commit", _ALL),
    (ARGUMENT, _ALL),
    ("data of cells", _DATA),
    ("strategy of cells", _COMPUTE | _COMMUNICATION),
    ("optimizer of cells", frozenset({StepPart.OPTIMIZER})),
    ("settings of cells", _COMPUTE | _COMMUNICATION),
    ("precision of cells", _COMPUTE | _COMMUNICATION),
    ("model of cells", _ALL),
    ("batch of cells", _ALL),
    ("global batch of cells", _ALL),
    ("devices of cells", _ALL),
    ("config data.", _DATA),
    ("config parallel.", _COMPUTE | _COMMUNICATION),
    ("config model.", _COMPUTE),
    ("config training.", _COMPUTE),
    ("config launch.env", _ALL),
    ("config launch.threads_per_rank", _COMPUTE | _DATA),
    ("config launch.malloc", _COMPUTE | _DATA),
    ("config launch.placement", _ALL),
    ("config launch.numa_binding", _ALL),
    ("config launch.devices", _ALL),
    ("config launch.nodes", _COMMUNICATION),
    ("config launch.oversubscribe", _ALL),
)
"""How the names of differences begin → which parts such a change can make longer or shorter; the
first row that fits counts. What is in no row cannot: how long was measured, where files went."""
_RECORD_BOTH = (
    "Record both sides with torchscale profile and compare again: operators that are new or slower "
    "are then listed."
)
_SAME_CHANGE = {
    "config parallel.strategy": "strategy of cells",
    "config training.precision": "precision of cells",
    "config training.optimizer": "optimizer of cells",
    "config data.source": "data of cells",
    "threads per rank": "config launch.threads_per_rank",
}
"""Two names of one change: the first is left out where the second is there."""


class CauseBasis(str, Enum):
    """What a cause rests on; values are what files have."""

    MEASURED = "measured"
    """The launches measured it beside their steps."""
    ONLY_CHANGE = "only_change"
    """The only difference between the sides that can make this part longer or shorter."""
    SEVERAL = "several"
    """Several can: abstained."""
    NONE = "none"
    """Nothing that is recorded differs and can: abstained."""


@dataclass(frozen=True)
class LikelyCause:
    """What is behind a part that differs.

    Attributes:
        part: Which.
        basis: What the answer rests on.
        text: The cause, or why none is named.
        advice: What to do.
        candidates: Names of the differences that can be behind it.
    """

    part: PartChange[StepPart]
    basis: CauseBasis
    text: str
    advice: str
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Found:
    """A cause that the launches measured beside their steps."""

    text: str
    advice: str


_Rule = Callable[[CellWhy, PartChange[StepPart]], _Found | None]


def _buckets(why: CellWhy, part: PartChange[StepPart]) -> _Found | None:
    """More buckets, longer communication; or fewer, shorter."""
    buckets = why.probe.buckets
    if buckets is None or not buckets[0] or not buckets[1]:
        return None
    factor = buckets[1] / buckets[0]
    if max(factor, 1 / factor) < BUCKET_CHANGE or (factor > 1) != (part.seconds > 0):
        return None
    advice = (
        "Set the bucket size back (bucket_cap_mb of the strategy), or try others: torchscale tune."
    )
    return _Found(
        f"the gradients travel in {buckets[1]:.0f} buckets instead of {buckets[0]:.0f}", advice
    )


def _link(why: CellWhy, part: PartChange[StepPart]) -> _Found | None:
    """The same gradients take longer with nothing else running."""
    link, sizes = why.probe.link, why.probe.gradient_bytes
    if link is None or sizes is None or sizes[0] != sizes[1] or not link.before:
        return None
    factor = link.after / link.before
    p = link.p()
    if factor <= 0 or max(factor, 1 / factor) < LINK_CHANGE or p is None or p >= _LEVEL:
        return None
    if (factor > 1) != (part.seconds > 0):
        return None
    before, after = (f"{seconds * 1e3:.3g} ms" for seconds in (link.before, link.after))
    return _Found(
        f"the link itself: an all-reduce of the same gradients, with nothing else running, takes "
        f"{after} instead of {before}",
        "Measure it on both sides: torchscale measure collectives.",
    )


def _one_rank(why: CellWhy, part: PartChange[StepPart]) -> _Found | None:
    """One rank alone became slower, or faster."""
    del part
    clear = [one for one in why.ranks if one.is_clear]
    if len(clear) != 1:
        return None
    (rank,) = clear
    slower = "slower"
    if rank.seconds < 0:
        slower = "faster"
    phase = _phase(why)
    where = ""
    if phase is not None:
        where = f" in {_WORDS.get(phase, phase.value)}"
    return _Found(
        f"rank {rank.name} is {slower} than it was beside the other ranks{where}",
        "Look at that rank's host, device and share of the data: torchscale validate, or "
        "torchscale watch on the job.",
    )


_WORDS = {
    StepPart.DATA_WAIT: "waiting for data",
    StepPart.FORWARD: "its forward pass",
    StepPart.BACKWARD: "its backward pass",
    StepPart.OPTIMIZER: "its optimizer's step",
    StepPart.COMPUTE: "its compute",
}


def _phase(why: CellWhy) -> StepPart | None:
    """The phase in which ranks take longer than before beside the typical rank; ``None`` where no
    phase has most of it."""
    total = sum(abs(one.seconds) for one in why.later_in)
    largest = max(why.later_in, key=lambda one: abs(one.seconds), default=None)
    if largest is None or abs(largest.seconds) < _MOST_OF_IT * total:
        return None
    return largest.name


MEASURED: tuple[tuple[frozenset[StepPart], _Rule], ...] = (
    (_COMMUNICATION, _buckets),
    (_COMMUNICATION, _link),
    (frozenset({StepPart.SLOWER_RANKS}), _one_rank),
)
"""Parts → what launches may have measured that explains them."""

ADVICE: dict[StepPart, str] = {
    StepPart.DATA_WAIT: "Look at what the loader does for a batch and at where the data lie.",
    StepPart.FORWARD: _RECORD_BOTH,
    StepPart.BACKWARD: _RECORD_BOTH,
    StepPart.OPTIMIZER: _RECORD_BOTH,
    StepPart.COMPUTE: _RECORD_BOTH,
    StepPart.COMMUNICATION: "Measure the link on both sides: torchscale measure collectives.",
    StepPart.EXCHANGE: "Measure the link on both sides: torchscale measure collectives.",
    StepPart.SLOWER_RANKS: "Compare the ranks' hosts and devices: torchscale validate.",
    StepPart.BUBBLE: "Compare the stages' times in the reports of both sides.",
    StepPart.REST: "Time between the phases; a recording shows it: torchscale profile.",
}
"""What to do where no cause is named."""


def likely_causes(why: CellWhy, differences: Sequence[SideDifference]) -> tuple[LikelyCause, ...]:
    """A cause, or an abstention, for each part that differs, the largest first.

    Args:
        why: The difference in parts.
        differences: What else differs between the two sides.
    """
    return tuple(_cause(why, part, differences) for part in why.clear)


def _cause(
    why: CellWhy, part: PartChange[StepPart], differences: Sequence[SideDifference]
) -> LikelyCause:
    found = [
        evidence
        for parts, rule in MEASURED
        if part.name in parts and (evidence := rule(why, part)) is not None
    ]
    candidates = candidates_for(part.name, differences)
    changes = {one.what: one for one in differences}
    if len(found) == 1:
        return LikelyCause(part, CauseBasis.MEASURED, found[0].text, found[0].advice, candidates)
    if len(found) > 1:
        texts = " and ".join(one.text for one in found)
        advice = " ".join(one.advice for one in found)
        return LikelyCause(part, CauseBasis.SEVERAL, f"two candidates: {texts}", advice, candidates)
    if not candidates:
        text = "no recorded difference explains this"
        return LikelyCause(part, CauseBasis.NONE, text, ADVICE[part.name])
    if len(candidates) == 1:
        values = " → ".join(
            _COMMIT.sub(r"\1", value) or "none" for value in changes[candidates[0]].values
        )
        text = f"{candidates[0]} ({values}), the only recorded change that can be behind it"
        return LikelyCause(
            part,
            CauseBasis.ONLY_CHANGE,
            text,
            "To be sure, change it back and measure.",
            candidates,
        )
    text = f"{len(candidates)} candidates that changed together"
    advice = "Change one of them at a time and measure."
    return LikelyCause(part, CauseBasis.SEVERAL, text, advice, candidates)


def candidates_for(part: StepPart, differences: Sequence[SideDifference]) -> tuple[str, ...]:
    """Names of the differences that can make a part longer or shorter."""
    names = [one.what for one in differences]
    return tuple(
        name for name in names if _SAME_CHANGE.get(name) not in names and part in _affected(name)
    )


def _affected(name: str) -> frozenset[StepPart]:
    return next((parts for start, parts in CHANGES if name.startswith(start)), frozenset())
