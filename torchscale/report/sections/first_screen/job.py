"""The first screen of a watched job, which the feature that watched it makes."""

from __future__ import annotations

from typing import Protocol

from torchscale.door import Slot
from torchscale.report.charts import AnyChart
from torchscale.report.document import Headline, Overview
from torchscale.schema.watch.report import WatchReport


class JobScreen(Protocol):
    """How a watched job ended, how fast it was, and what limited it since when."""

    def job_headline(self, report: WatchReport) -> Headline:
        """In a sentence."""

    def job_overview(self, report: WatchReport, chart: AnyChart | None = None) -> Overview:
        """All of the first screen; ``chart`` where one is drawn."""


_SCREENS: Slot[JobScreen] = Slot("first screens")


def job_screen() -> JobScreen:
    """What the feature offers."""
    return _SCREENS["watch"]
