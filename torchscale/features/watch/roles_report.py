"""The report of a job whose programs have roles: the documents of all as one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from torchscale.features.watch.document import watched_document, watched_figures
from torchscale.features.watch.roles import (
    has_roles,
    print_roles,
    read_roles,
    unjudged_text,
)
from torchscale.features.watch.text import with_role
from torchscale.read.folders import Report
from torchscale.read.without_cells import ReportWithoutCells
from torchscale.report.document import Document, Headline, Overview
from torchscale.report.figures.figure import ExportedRun
from torchscale.schema.watch.report import JobState
from torchscale.schema.watch.roles import WatchedRoles
from torchscale.store.locations import WATCH_REPORT
from torchscale.util.words import listed

if TYPE_CHECKING:
    from rich.console import Console


def roles_document(name: str, found: WatchedRoles) -> Document:
    """The documents of all programs as one.

    Args:
        name: Of the job.
        found: Its programs.
    """
    documents = [(report.role, watched_document(report)) for report in found.roles]
    overviews = [(role, one.overview) for role, one in documents if one.overview is not None]
    told = [one.headline.text for _, one in overviews] + [unjudged_text(found)] * bool(
        found.unjudged
    )
    overview = Overview(
        headline=Headline(" ".join(told)),
        statuses=tuple(
            replace(
                row,
                question=f"{role}: {row.question}",
                anchor=f"{row.anchor}-{role}" if row.anchor == "watched" else "",
            )
            for role, one in overviews
            for row in one.statuses
        ),
        causes=tuple(cause for _, one in overviews for cause in one.causes),
        failures=tuple(failure for _, one in overviews for failure in one.failures),
    )
    sections = tuple(
        replace(section, title=f"{role}: {section.title}", anchor=f"{section.anchor}-{role}")
        for role, one in documents
        for section in one.sections
    )
    subtitle = f"{len(documents)} roles: {listed([role for role, _ in documents])}"
    return Document(name, subtitle, (), (), sections, overview)


@dataclass(frozen=True)
class RolesReport(ReportWithoutCells):
    """Report of the folder of such a job."""

    found: WatchedRoles
    held: ClassVar[str] = "programs of a watched job"

    @property
    def figures(self) -> WatchedRoles:
        """What is known of them."""
        return self.found

    def document(self) -> Document:
        """All programs, a part each."""
        return roles_document(self.directory.resolve().name, self.found)

    def print_to(self, console: Console) -> None:
        """As ``torchscale watch DIR`` does."""
        print_roles(self.found, console)


def roles_report(directory: Path) -> Report:
    """The report of the job in a folder.

    Raises:
        StoreError: it cannot be read.
    """
    return RolesReport(directory, read_roles(directory))


@dataclass(frozen=True)
class RolesPage:
    """The job in ``directory``, as the source of a live page."""

    directory: Path

    def is_there(self) -> bool:
        """Whether a job with roles is watched there, or was."""
        return has_roles(self.directory)

    def version(self) -> str:
        """Changes when a program is judged again; empty before one was."""
        if not self.is_there():
            return ""
        seen = [path.stat() for path in sorted(self.directory.glob(f"*/{WATCH_REPORT}"))]
        return "-".join(f"{one.st_mtime_ns}.{one.st_size}" for one in seen)

    def running(self) -> str:
        """The headlines of those that run."""
        if not self.version():
            return ""
        reports = read_roles(self.directory).roles
        return "; ".join(
            with_role(report) for report in reports if report.state is JobState.RUNNING
        )

    def is_unfinished(self) -> bool:
        """Always: it leaves no result but those of its programs."""
        return bool(self.version())

    def document(self) -> Document:
        """All programs, as of their last judgements.

        Raises:
            StoreError: a report is damaged.
        """
        return roles_document(self.directory.resolve().name, read_roles(self.directory))

    def figures(self) -> ExportedRun:
        """The figures so far, with the label ``role``.

        Raises:
            StoreError: a report is damaged.
        """
        figures = tuple(
            replace(figure, labels={"role": report.role, **figure.labels})
            for report in read_roles(self.directory).roles
            for figure in watched_figures(report)
        )
        return ExportedRun(self.directory.resolve().name, figures=figures)
