"""What the checks of several nodes say together: what differs, which node or link is slow, whether
the fleet is fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from torchscale.nodes.pairwise import Effect, Judgement, Pair, judge_pairs
from torchscale.schema.launch.nodes import MAX_CLOCK_OFFSET_SECONDS
from torchscale.schema.node.check import Check, Status, Validation
from torchscale.schema.node.fleet import (
    Difference,
    FleetNode,
    FleetValidation,
    MeasuredPair,
    Pairwise,
    PairwiseStatus,
    Slowness,
)
from torchscale.schema.node.probe import (
    CollectiveFacts,
    DriverFacts,
    HostFacts,
    SoftwareFacts,
    SystemFacts,
)
from torchscale.util.units import format_bytes, format_percent

CLOCK_SECONDS = 0.1
"""Clocks that NTP keeps differ by milliseconds, and a busy network adds some to the measurement."""
NOT_KNOWN = "not known"
_LONG_AGO = 1e10
"""Seconds, of 300 years: a clock that is so far off shows no time, whose digits do not matter."""
_MEMORY_STEP = 1 << 30
"""Kernels of one version reserve a few MiB more or less on machines of one kind."""

_Fact = Callable[[Validation], object]
_Part = TypeVar("_Part")


def compare_nodes(nodes: Sequence[FleetNode]) -> tuple[Difference, ...]:
    """What is not the same on all ``nodes`` that were checked: versions, devices, settings of the
    host, clocks, then checks. A node without checks has the value ``not known``."""
    checked = [node for node in nodes if node.validation is not None]
    if len(checked) < 2:
        return ()
    found = [(title, [_fact_text(node, fact) for node in nodes]) for title, fact in _FACTS]
    found.append(("clock, against node 0", [_clock(node) for node in nodes]))
    found += [
        (title, [_outcome(node, identifier) for node in nodes])
        for identifier, title in _checks(checked).items()
    ]
    is_checked = [node.validation is not None for node in nodes]
    return tuple(
        Difference(title=title, values=tuple(values))
        for title, values in found
        if len({value for value, counts in zip(values, is_checked, strict=True) if counts}) > 1
    )


def _fact_text(node: FleetNode, fact: _Fact) -> str:
    if node.validation is None:
        return NOT_KNOWN
    return _text(fact(node.validation))


def checks_of(node: FleetNode) -> tuple[Check, ...]:
    """All that were made on it; none where it was not checked."""
    if node.validation is None:
        return ()
    return node.validation.checks


def _checks(nodes: Sequence[FleetNode]) -> dict[str, str]:
    """Id → title of all checks, in the order of the first node that has each."""
    checks: dict[str, str] = {}
    for node in nodes:
        for check in checks_of(node):
            checks.setdefault(check.id, check.title)
    return checks


def _outcome(node: FleetNode, identifier: str) -> str:
    """A check's status: what was seen on a sound node differs for many reasons, such as a host
    name."""
    for check in checks_of(node):
        if check.id == identifier:
            return check.status.value
    return NOT_KNOWN


def _clock(node: FleetNode) -> str:
    offset = node.clock_offset_seconds
    if offset is None or abs(offset) < CLOCK_SECONDS:
        return "equal"
    return clock_text(offset)


def clock_text(offset_seconds: float) -> str:
    """``2.0 s ahead``."""
    seconds = f"{abs(offset_seconds):.1f} s"
    if abs(offset_seconds) >= _LONG_AGO:
        seconds = f"{abs(offset_seconds):.3g} s"
    if offset_seconds > 0:
        return f"{seconds} ahead"
    return f"{seconds} behind"


def _text(value: object) -> str:
    if value is None or value == ():
        return "none"
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value)
    return str(value)


def _known(fact: Callable[[_Part], object], part: _Part | None) -> object:
    if part is None:
        return NOT_KNOWN
    return fact(part)


def _of_software(fact: Callable[[SoftwareFacts], object]) -> _Fact:
    return lambda validation: _known(fact, validation.facts.software)


def _of_driver(fact: Callable[[DriverFacts], object]) -> _Fact:
    return lambda validation: _known(fact, validation.facts.driver)


def _of_host(fact: Callable[[HostFacts], object]) -> _Fact:
    return lambda validation: _known(fact, validation.facts.host)


def _of_system(fact: Callable[[SystemFacts], object]) -> _Fact:
    return lambda validation: _known(fact, validation.facts.system)


def _counted(values: Sequence[str]) -> tuple[str, ...]:
    """``8 × NVIDIA H200``, for each kind."""
    return tuple(f"{count} × {value}" for value, count in sorted(Counter(values).items()))


def _gib(count: int | None) -> str | None:
    if count is None:
        return None
    return format_bytes(round(count / _MEMORY_STEP) * _MEMORY_STEP)


def _nsys_version(validation: Validation) -> str | None:
    if validation.facts.nsys is None:
        return None
    return validation.facts.nsys.version


def _gpu_setting(name: str) -> _Fact:
    return _of_driver(lambda driver: _counted([_text(getattr(gpu, name)) for gpu in driver.gpus]))


_FACTS: tuple[tuple[str, _Fact], ...] = (
    ("PyTorch", _of_software(lambda software: software.torch)),
    ("CUDA of PyTorch", _of_software(lambda software: software.cuda_built)),
    ("NCCL", _of_software(lambda software: software.nccl)),
    ("Python", _of_software(lambda software: software.python)),
    ("driver", _of_driver(lambda driver: driver.version)),
    ("GPUs", _of_driver(lambda driver: _counted([gpu.name for gpu in driver.gpus]))),
    ("GPUs that PyTorch may use", _of_software(lambda software: software.cuda_devices)),
    (
        "memory of the GPUs",
        _of_driver(lambda driver: _counted([_text(_gib(g.memory_bytes)) for g in driver.gpus])),
    ),
    ("ECC enabled", _gpu_setting("ecc_enabled")),
    ("persistence mode", _gpu_setting("persistence")),
    ("compute mode", _gpu_setting("compute_mode")),
    ("PCIe generation", _gpu_setting("pcie_generation")),
    ("PCIe width", _gpu_setting("pcie_width")),
    ("NVLinks", _gpu_setting("nvlinks_active")),
    (
        "RDMA ports",
        _of_host(
            lambda host: _counted([f"{p.state} {p.rate} {p.link_layer}" for p in host.rdma_ports])
        ),
    ),
    ("cores", _of_host(lambda host: host.cores)),
    ("NUMA nodes", _of_host(lambda host: host.numa_nodes)),
    ("memory", _of_host(lambda host: _gib(host.memory_bytes))),
    ("memory limit", _of_system(lambda system: _gib(system.memory_limit_bytes))),
    ("CPU limit", _of_system(lambda system: system.cpu_limit)),
    ("open files limit", _of_host(lambda host: host.open_files_limit)),
    ("locked memory limit", _of_host(lambda host: host.memory_lock_limit)),
    ("CPU frequency governors", _of_system(lambda system: system.governors)),
    ("huge page defragmentation", _of_system(lambda system: system.huge_page_defrag)),
    ("NUMA balancing", _of_system(lambda system: system.numa_balancing)),
    ("Nsight Systems", _nsys_version),
)
"""What should be equal on nodes of one kind: causes before consequences."""


def judge_pairwise(
    ranks: Sequence[int],
    names: Mapping[int, str],
    seconds: Mapping[Pair, Sequence[float]],
    errors: Mapping[Pair, str],
    *,
    backend: str,
    message_bytes: int,
    repeated: Collection[Pair] | None = None,
) -> tuple[Pairwise, tuple[Pair, ...]]:
    """Name the bad nodes and links.

    Args:
        ranks: Node rank of each place.
        names: Node rank → host name.
        seconds: Times of each pair of places; none of those in ``errors``.
        errors: Pair of places → why it has no times.
        backend, message_bytes: Of the all-reduce.
        repeated: Pairs that were measured at more than one moment; ``None``: all.

    Returns:
        What is said of the fleet, and the pairs of places that should be measured again.
    """
    pairs = [
        MeasuredPair(
            nodes=(ranks[pair[0]], ranks[pair[1]]),
            seconds=tuple(seconds.get(pair, ())),
            error=errors.get(pair, ""),
        )
        for pair in sorted({*seconds, *errors})
    ]
    if errors:
        pairwise = Pairwise(
            backend=backend,
            message_bytes=message_bytes,
            status=PairwiseStatus.FAILED,
            verdict=_failed_pairs(ranks, names, errors),
            pairs=tuple(pairs),
        )
        return pairwise, ()
    judgement = judge_pairs(len(ranks), seconds, repeated)
    pairwise = Pairwise(
        backend=backend,
        message_bytes=message_bytes,
        status=judgement.status,
        verdict=_verdict(ranks, names, judgement),
        pairs=tuple(pairs),
        nodes=_slowness(ranks, judgement.nodes),
        links=_slowness(ranks, judgement.links),
        noise=judgement.noise,
        detectable_node=judgement.detectable_node,
        detectable_link=judgement.detectable_link,
    )
    return pairwise, judgement.ask_again


def _slowness(ranks: Sequence[int], effects: Sequence[Effect]) -> tuple[Slowness, ...]:
    return tuple(
        Slowness(
            nodes=tuple(ranks[place] for place in effect.nodes),
            share=effect.share,
            low=effect.low,
            high=effect.high,
            is_bad=effect.is_bad,
            is_suspect=effect.is_suspect,
        )
        for effect in effects
    )


def _named(nodes: Sequence[int], names: Mapping[int, str]) -> str:
    texts = [f"{rank} ({names[rank]})" for rank in nodes]
    if len(texts) == 1:
        return f"node {texts[0]}"
    return f"link of nodes {texts[0]} and {texts[1]}"


def _verdict(ranks: Sequence[int], names: Mapping[int, str], judgement: Judgement) -> str:
    if judgement.status is PairwiseStatus.CANNOT_TELL:
        return f"cannot tell whether a node or a link is slow: {judgement.reason}"
    effects = [
        effect
        for effect in (*judgement.nodes, *judgement.links)
        if effect.is_bad or effect.is_suspect
    ]
    of = {effect: _named([ranks[place] for place in effect.nodes], names) for effect in effects}
    bad = [
        f"{of[effect]} takes {format_percent(effect.share, 0)} more time"
        for effect in effects
        if effect.is_bad
    ]
    if bad:
        return "; ".join(bad)
    if judgement.status is PairwiseStatus.UNCLEAR:
        return "unclear: " + "; ".join(f"{of[effect]} seems slow" for effect in effects)
    return "no slow node and no slow link"


def _failed_pairs(
    ranks: Sequence[int], names: Mapping[int, str], errors: Mapping[Pair, str]
) -> str:
    """The nodes none of whose pairs worked, then the other pairs that did not."""
    parts = Counter(place for pair in errors for place in pair)
    others = len(ranks) - 1
    dead = [place for place, count in sorted(parts.items()) if count == others and others > 1]
    if len(dead) == len(ranks):
        dead = []  # nothing works: no node stands out
    texts = [
        f"{_named([ranks[place]], names)} has no working link to any other node" for place in dead
    ]
    for pair, error in sorted(errors.items()):
        if not set(pair) & set(dead):
            texts.append(
                f"{_named([ranks[place] for place in pair], names)} does not work: {error}"
            )
    return "; ".join(texts)


def judge_fleet(
    nodes: Sequence[FleetNode], collective: CollectiveFacts | None, pairwise: Pairwise | None
) -> FleetValidation:
    """Everything together. ``collective`` is over all nodes, ``None`` where fewer than two take
    part."""
    unfit = [node for node in nodes if not node.fit]
    problems = [
        f"{_named([node.node_rank], {node.node_rank: node.hostname})}: {_problem(node)}"
        for node in unfit
    ]
    problems += [
        f"{_named([node.node_rank], {node.node_rank: node.hostname})}: its clock is {_clock(node)}"
        for node in nodes
        if abs(node.clock_offset_seconds or 0.0) > MAX_CLOCK_OFFSET_SECONDS
    ]
    if collective is not None and (collective.error is not None or collective.wrong_elements):
        reason = collective.error or f"{collective.wrong_elements:,} wrong elements"
        problems.append(f"the collective over all nodes failed: {reason}")
    if pairwise is not None and not pairwise.fit:
        problems.append(pairwise.verdict)
    differences = compare_nodes(nodes)
    verdict = f"All {len(nodes)} nodes are fit."
    if problems:
        verdict = f"Not fit: {'; '.join(problems)}."
    return FleetValidation(
        fit=not problems,
        verdict=verdict,
        nodes=tuple(nodes),
        differences=differences,
        collective=collective,
        pairwise=pairwise,
    )


def _problem(node: FleetNode) -> str:
    if node.validation is None:
        return node.error
    return "failed " + ", ".join(check.title for check in failed_checks(node.validation))


def failed_checks(validation: Validation) -> tuple[Check, ...]:
    """Those that make the node unfit."""
    return tuple(check for check in validation.checks if check.status is Status.FAIL)
