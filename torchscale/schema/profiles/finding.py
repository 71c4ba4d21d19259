"""What analysis concluded: what, where, how much, how sure, on what evidence, and what to do."""

from __future__ import annotations

from enum import Enum

from torchscale.schema.base import (
    Count,
    Frozen,
    Real,
)


class FindingKind(str, Enum):
    """What holds training back."""

    STRAGGLER = "straggler"
    """One rank is slower than the others by itself, and they wait for it."""
    STRAGGLING_NODE = "straggling_node"
    """All ranks of one machine are slower than those of the others, which wait for them."""
    INTERMITTENT_STRAGGLER = "intermittent_straggler"
    """One rank is slow for a while, again and again, as a device that throttles."""
    LOAD_IMBALANCE = "load_imbalance"
    """Ranks take turns at being the slow one."""
    UNEVEN_EXPERTS = "uneven_experts"
    """The experts on one rank get more tokens than those on the others."""
    UNEVEN_LENGTHS = "uneven_lengths"
    """Samples of different lengths give ranks unequal work in a step."""
    UNEVEN_STAGES = "uneven_stages"
    """A stage of a pipeline has more work than the others."""
    UNEVEN_MICRO_BATCHES = "uneven_micro_batches"
    """Micro-batches of a pipeline's step have different lengths."""
    EXPOSED_COMMUNICATION = "exposed_communication"
    """Gradients travel while nothing is computed."""
    SMALL_BUCKETS = "small_buckets"
    """Gradients are sent in pieces so small that latency decides."""
    SLOW_LINK = "slow_link"
    """Communication reaches a fraction of what the link can do."""
    SYNC_VARIANCE = "sync_variance"
    """The gradient synchronization takes very different times from step to step."""
    INPUT_PIPELINE = "input_pipeline"
    """Steps wait for data."""
    HOST_BOUND = "host_bound"
    """The device waits for the host to launch work; on CPU, time between operators."""
    HOST_SYNC = "host_sync"
    """The host waits for the device inside the step, to read a value back."""
    PAGEABLE_COPIES = "pageable_copies"
    """Copies from or to memory that is not pinned."""
    COPY_BOUND = "copy_bound"
    """The device copies while it computes nothing."""
    PAUSES = "pauses"
    """Rare long steps whose cause is not known."""
    PERIODIC_WORK = "periodic_work"
    """All ranks are slow together in every so manieth step."""
    CHECKPOINTS = "checkpoints"
    """Steps wait while a checkpoint is written."""
    EVALUATIONS = "evaluations"
    """Steps wait while a rank, or all, evaluate."""
    GARBAGE_COLLECTION = "garbage_collection"
    """Python's garbage collector stops a rank now and then."""
    RECOMPILATION = "recompilation"
    """torch.compile compiles again while the job trains."""
    MEMORY_GROWTH = "memory_growth"
    """Memory of a rank, or of all, grows from step to step."""
    SLOW_START = "slow_start"
    """A part of the start takes long, or takes one rank much longer than the others."""
    THROTTLING = "throttling"
    """The device lowered its clocks for heat or power."""
    MEMORY_PRESSURE = "memory_pressure"
    """Memory ran short: allocations were retried, or pages came back from disk."""
    MEMORY_RETURNED = "memory_returned"
    """The host's allocator returns memory to the kernel in every step and fetches it again."""
    IDLE_DEVICE = "idle_device"
    """The devices run nothing for most of the time, and no other finding explains it."""

    @property
    def label(self) -> str:
        """The title for tables and sentences."""
        return _TITLES[self]


_TITLES = {
    FindingKind.STRAGGLER: "Straggler",
    FindingKind.STRAGGLING_NODE: "Straggling node",
    FindingKind.INTERMITTENT_STRAGGLER: "Intermittent straggler",
    FindingKind.LOAD_IMBALANCE: "Load imbalance",
    FindingKind.UNEVEN_EXPERTS: "Uneven experts",
    FindingKind.UNEVEN_LENGTHS: "Uneven lengths",
    FindingKind.UNEVEN_STAGES: "Uneven pipeline stages",
    FindingKind.UNEVEN_MICRO_BATCHES: "Uneven micro-batches",
    FindingKind.EXPOSED_COMMUNICATION: "Exposed communication",
    FindingKind.SMALL_BUCKETS: "Small gradient buckets",
    FindingKind.SLOW_LINK: "Slow link",
    FindingKind.SYNC_VARIANCE: "Unsteady gradient synchronization",
    FindingKind.INPUT_PIPELINE: "Input pipeline",
    FindingKind.HOST_BOUND: "Host-bound",
    FindingKind.HOST_SYNC: "Host synchronization",
    FindingKind.PAGEABLE_COPIES: "Pageable copies",
    FindingKind.COPY_BOUND: "Copy-bound",
    FindingKind.PAUSES: "Pauses",
    FindingKind.PERIODIC_WORK: "Periodic work",
    FindingKind.CHECKPOINTS: "Checkpoints",
    FindingKind.EVALUATIONS: "Evaluations",
    FindingKind.GARBAGE_COLLECTION: "Garbage collection",
    FindingKind.RECOMPILATION: "Recompilation",
    FindingKind.MEMORY_GROWTH: "Memory growth",
    FindingKind.SLOW_START: "Slow start",
    FindingKind.THROTTLING: "Throttling",
    FindingKind.MEMORY_PRESSURE: "Memory pressure",
    FindingKind.MEMORY_RETURNED: "Memory returned every step",
    FindingKind.IDLE_DEVICE: "Idle GPUs",
}


class Confidence(str, Enum):
    """How sure a finding is."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class CostBasis(str, Enum):
    """Where the cost of a finding comes from."""

    TIMES = "times"
    """The sum of the times that were waited or spent."""
    REPLAY = "replay"
    """The recording replayed without the cause."""


class Finding(Frozen):
    """A cause.

    Attributes:
        kind: What.
        rank: Whose; ``None`` where it is nobody's in particular.
        hosts: Machines that it concerns, in a launch over several: the rank's, or both ends of a
            link.
        cost_percent: Share of the group's step time that would go with it, at most.
        cost_seconds: That share in seconds per step.
        cost_basis: Where the cost comes from.
        period_steps: Every so many steps it comes back; ``None`` where it has no period.
        confidence: How sure the finding is.
        doubts: Flags of the launches whose conditions alone can make what was found; the confidence
            is low then.
        summary: One sentence with the figures.
        evidence: What it rests on, a line each.
        advice: What to do.
    """

    kind: FindingKind
    rank: Count | None = None
    hosts: tuple[str, ...] = ()
    cost_percent: Real
    cost_seconds: Real
    cost_basis: CostBasis = CostBasis.TIMES
    period_steps: Count | None = None
    confidence: Confidence
    doubts: tuple[str, ...] = ()
    summary: str
    evidence: tuple[str, ...] = ()
    advice: str

    def __repr__(self) -> str:
        """What, where, how much, how sure, in one line: lists of findings are read in a
        notebook."""
        scope = "" if self.rank is None else f", rank {self.rank}"
        cost = f"{self.cost_percent:.1f} % ({1e3 * self.cost_seconds:.3g} ms) of a step"
        return f"Finding({self.kind.value}{scope}, {cost}, {self.confidence.value}: {self.summary})"

    __str__ = __repr__


class Abstention(Frozen):
    """A rule that did not judge, and what it lacked."""

    kind: FindingKind
    reason: str


class Diagnosis(Frozen):
    """Findings, the costliest first, and what could not be judged. Nothing found is an answer."""

    findings: tuple[Finding, ...] = ()
    abstentions: tuple[Abstention, ...] = ()
