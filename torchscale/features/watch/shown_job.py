"""``torchscale watch DIR``: what is known of a job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchscale.cli.output import print_json, result_console
from torchscale.errors import UsageError

if TYPE_CHECKING:
    from torchscale.schema.watch.report import WatchReport


def show_job(words: Sequence[str], cost: float | None, *, as_json: bool) -> Sequence[WatchReport]:
    """Print what is known of the job in a folder; its report, or one for each role.

    Raises:
        UsageError: there is no folder, or several are named.
        StoreError: it holds no watched job.
    """
    if len(words) != 1:
        raise UsageError(
            "watch takes a program after --, or the folder of a job",
            hint="torchscale watch -- torchrun --nproc-per-node 4 train.py",
        )
    from torchscale.features.watch.job.read import read_watch  # noqa: PLC0415
    from torchscale.features.watch.roles import has_roles, print_roles, read_roles  # noqa: PLC0415
    from torchscale.features.watch.terminal import print_watch  # noqa: PLC0415
    from torchscale.read.folders import existing_run  # noqa: PLC0415 - `--help` does not need it

    folder = existing_run(Path(words[0]))
    if has_roles(folder):
        found = read_roles(folder, cost)
        if as_json:
            print_json(found.model_dump_json(indent=1))
        else:
            print_roles(found, result_console())
        return list(found.roles)
    report = read_watch(folder, cost)
    if as_json:
        print_json(report.model_dump_json(indent=1))
    else:
        print_watch(report, result_console())
    return [report]
