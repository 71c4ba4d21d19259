"""The records and errors that ranks left, and what is wrong with files that cannot be used.

A file can come from another node, and user code runs beside it: each is read with a bound, and one
that is missing, damaged, not finite or of another rank is named with its node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from pydantic import ValidationError

from torchscale.schema.launch.failure import RankFailure
from torchscale.schema.launch.nodes import LaunchNode
from torchscale.schema.launch.steps import StepSample
from torchscale.store.json_files import MAX_FILE_BYTES, first_mistake
from torchscale.util.files import read_bounded

ERROR = "error-rank-*.json"
"""The file of a rank that failed."""
_NAMED = 3
"""Files that a reason names; of a thousand ranks on broken nodes it would fill the screen."""
_MAX_STEPS_BYTES = 4 << 30
"""Maximum number of bytes: as many as a node may send of a launch."""


class _OfRank(Protocol):
    @property
    def rank(self) -> int: ...


M = TypeVar("M", bound=_OfRank)


@dataclass(frozen=True)
class RankContents(Generic[M]):
    """What one kind of file of all ranks holds.

    Attributes:
        found: Contents that are whole, by rank.
        missing: Ranks without such a file.
        unusable: Rank → what is wrong with its file.
    """

    found: tuple[M, ...]
    missing: tuple[int, ...]
    unusable: Mapping[int, str]


def read_ranks(
    directory: Path, name: str, read: Callable[[bytes], M], world_size: int
) -> RankContents[M]:
    """Read a file of each rank of a launch.

    Args:
        directory: Directory of the launch.
        name: Name of the file, with ``*`` in the place of the rank.
        read: Parses one. It may raise a ``ValidationError``.
        world_size: Ranks of the launch. A content that says that it had others is of another
            launch.
    """
    found, missing, unusable = [], [], {}
    for rank in range(world_size):
        try:
            content = read(read_bounded(directory / name.replace("*", str(rank)), MAX_FILE_BYTES))
        except FileNotFoundError:
            missing.append(rank)
            continue
        except OSError as error:
            unusable[rank] = error.strerror or str(error)
            continue
        except ValidationError as error:
            unusable[rank] = first_mistake(error)
            continue
        foreign = _foreign(content, rank, world_size)
        if foreign:
            unusable[rank] = foreign
        else:
            found.append(content)
    return RankContents(tuple(found), tuple(missing), unusable)


def read_errors(directory: Path, world_size: int) -> RankContents[RankFailure]:
    """The failures that the ranks of a launch wrote."""
    return read_ranks(directory, ERROR, RankFailure.model_validate_json, world_size)


def read_failures(directory: Path, world_size: int) -> tuple[RankFailure, ...]:
    """Failures that the ranks wrote into ``directory``, earliest first."""
    return earliest_first(read_errors(directory, world_size).found)


def earliest_first(failures: Sequence[RankFailure]) -> tuple[RankFailure, ...]:
    """In the order of their times."""
    return tuple(sorted(failures, key=lambda failure: failure.time))


def _foreign(content: _OfRank, rank: int, world_size: int) -> str:
    """Why a file is not this rank's of this launch; empty where it is."""
    if content.rank != rank:
        return f"it belongs to rank {content.rank}"
    of_ranks = getattr(content, "world_size", world_size)  # a failure does not say
    if of_ranks != world_size:
        return f"it belongs to a launch of {of_ranks} ranks, this one has {world_size}"
    return ""


def unusable_text(name: str, unusable: Mapping[int, str], nodes: Sequence[LaunchNode]) -> str:
    """``rank-3.json of node 1 (n2) is unusable: …`` for each file; empty without any."""
    texts = [
        f"{name.replace('*', str(rank))}{_of_node(rank, nodes)} is unusable: {reason}"
        for rank, reason in sorted(unusable.items())
    ]
    return _listed(texts, "files")


def missing_text(name: str, missing: Sequence[int], nodes: Sequence[LaunchNode]) -> str:
    """``there is no rank-3.json of node 1 (n2)``; empty where all files are there."""
    names = [f"{name.replace('*', str(rank))}{_of_node(rank, nodes)}" for rank in missing]
    if names:
        return f"there is no {_listed(names, 'files')}"
    return ""


def first_unusable_steps(directory: Path, ranks: Iterable[int], nodes: Sequence[LaunchNode]) -> str:
    """The first file of steps that is missing or has a line that cannot be read; empty where all
    are whole."""
    name = "steps-rank-*.jsonl"
    for rank in ranks:
        try:
            lines = read_bounded(
                directory / name.replace("*", str(rank)), _MAX_STEPS_BYTES
            ).splitlines()
        except FileNotFoundError:
            return missing_text(name, [rank], nodes)
        except OSError as error:
            return unusable_text(name, {rank: error.strerror or str(error)}, nodes)
        for number, line in enumerate(lines, start=1):
            try:
                StepSample.model_validate_json(line)
            except ValidationError as error:
                return unusable_text(name, {rank: f"line {number}: {first_mistake(error)}"}, nodes)
        if not lines:
            return unusable_text(name, {rank: "it is empty"}, nodes)
    return ""


def _of_node(rank: int, nodes: Sequence[LaunchNode]) -> str:
    """`` of node 1 (n2)``; empty for a launch on a single node."""
    for node in nodes:
        if node.first_rank <= rank < node.first_rank + node.ranks:
            return f" of node {node.node_rank} ({node.hostname})"
    return ""


def _listed(texts: Sequence[str], what: str) -> str:
    more = len(texts) - _NAMED
    listed = "; ".join(texts[:_NAMED])
    if more > 0:
        return f"{listed}; and {more} more {what}"
    return listed
