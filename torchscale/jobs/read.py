"""What is known of a watched job, from its folder."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from torchscale.analysis.job.goodput import with_price
from torchscale.errors import StoreError
from torchscale.jobs.run import REPORT
from torchscale.schema.watch.report import WatchReport
from torchscale.util.files import read_bounded

_MAX_BYTES = 64 << 20
"""Of a report of 10,000 ranks: 5 MB."""


def read_watch(directory: Path, price: float | None = None) -> WatchReport:
    """The report of the job in ``directory``; of a job that runs, as of the last judgement. With
    ``price``, in dollars for a device and hour, with what it cost.

    Raises:
        StoreError: there is none, or it is damaged.
    """
    path = directory / REPORT
    try:
        report = WatchReport.model_validate_json(read_bounded(path, _MAX_BYTES))
    except FileNotFoundError as error:
        raise StoreError(
            f"{directory} holds no watched job: it has no {REPORT}",
            hint="torchscale watch -- torchrun --nproc-per-node 4 train.py",
        ) from error
    except (ValidationError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise StoreError(f"{path}: not the report of a watched job: {reason}") from error
    return with_price(report, price)
