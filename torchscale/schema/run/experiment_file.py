"""``experiment.json``: what a run folder is about."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import model_validator

from torchscale.config.experiment import Experiment
from torchscale.schema.base import (
    SCHEMA_VERSION,
    Count,
    Frozen,
    Moment,
    Name,
)
from torchscale.schema.cells.kinds import AnyCell
from torchscale.schema.node.environment import Environment


class PlannedCell(Frozen):
    """A cell of the plan; ``skip_reason`` is set where this machine cannot run it."""

    cell: AnyCell
    skip_reason: str | None = None


class Session(Frozen):
    """A command that was given for a run folder, when it began (UTC), and the machine as it was
    then. It need not have measured anything."""

    started_at: Moment
    tool_version: Name
    environment: Environment


class ExperimentFile(Frozen):
    """The resolved config, the plan it became here, and the machine.

    ``tool_version``, ``environment`` and ``created_at`` are of the command that began the folder;
    ``later`` are those that went on in it, under the same conditions or others: a resumed sweep has
    several.
    """

    schema_version: Count = SCHEMA_VERSION
    tool_version: Name
    config: Experiment
    plan_hash: str
    plan: tuple[PlannedCell, ...]
    environment: Environment
    created_at: Moment
    threads_per_rank: Count
    later: tuple[Session, ...] = ()

    @model_validator(mode="after")
    def _check_plan(self) -> ExperimentFile:
        refuse_repeated("plan", [entry.cell.id for entry in self.plan])
        return self

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The one that began the folder, then the later ones, oldest first."""
        first = Session(
            started_at=self.created_at, tool_version=self.tool_version, environment=self.environment
        )
        return (first, *self.later)

    def continued_by(self, other: ExperimentFile) -> ExperimentFile:
        """This one and the session that ``other`` begins, unless that is the last one: a command
        may put several cells in."""
        begun = other.sessions[0]
        if begun == self.sessions[-1]:
            return self
        return self.model_copy(update={"later": (*self.later, begun)})


def refuse_repeated(key: str, ids: Sequence[str]) -> None:
    """Cells are told apart by their ids: of two with the same one, a comparison would silently take
    one.

    Args:
        key: Key of the list, for the message.
        ids: Ids of its cells, in order.

    Raises:
        ValueError: an id is there twice.
    """
    places: dict[str, int] = {}
    for place, cell_id in enumerate(ids):
        first = places.setdefault(cell_id, place)
        if first != place:
            raise ValueError(
                f"{key}.{place} is the cell of {key}.{first} again ({cell_id[:100]}); expected "
                "each cell once"
            )
