"""Prints and writes what ``torchscale compare`` found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from torchscale.cli.output import print_json, result_console, status
from torchscale.cli.rendering import write_rendered
from torchscale.config.choices import CompareFormat

if TYPE_CHECKING:
    from torchscale.features.compare.sections.document import ComparisonReport


def show(
    comparison: ComparisonReport, chosen: list[CompareFormat], output: str | None, *, as_json: bool
) -> None:
    """Print the comparison and write it, in the formats that were asked for."""
    from torchscale.features.compare.compare import render_comparison  # noqa: PLC0415 - `--help` does not need it
    from torchscale.features.compare.terminal.comparison import print_comparison  # noqa: PLC0415

    write_all(
        lambda kind: render_comparison(comparison, kind),
        lambda: print_comparison(comparison, result_console()),
        chosen,
        output,
        as_json=as_json,
    )


def show_recordings(
    before: str, after: str, chosen: list[CompareFormat], output: str | None, *, as_json: bool
) -> None:
    """Compare two folders of recordings, which hold no runs."""
    from torchscale.features.compare import recordings as recorded  # noqa: PLC0415
    from torchscale.features.compare.sections.why import recording_blocks  # noqa: PLC0415
    from torchscale.report.formats.console import print_blocks  # noqa: PLC0415

    with status("Reading recordings"):
        recording = recorded.compare_folders(before, after)
    names = recorded.recording_names(before, after)
    write_all(
        lambda kind: recorded.render_recordings(recording, names, kind),
        lambda: print_blocks(recording_blocks(recording, names, brief=True), result_console()),
        chosen,
        output,
        as_json=as_json,
    )


def write_all(
    render: Callable[[CompareFormat], bytes],
    print_terminal: Callable[[], None],
    chosen: list[CompareFormat],
    output: str | None,
    *,
    as_json: bool,
) -> None:
    """Print and write what was compared, in the formats that were asked for."""
    if as_json:
        print_json(render(CompareFormat.JSON).decode())
        printed: tuple[CompareFormat, ...] = (CompareFormat.TERMINAL,)
        if output is None:
            printed = (CompareFormat.TERMINAL, CompareFormat.JSON)
        chosen = [kind for kind in chosen if kind not in printed]
    elif output is None and chosen in ([CompareFormat.JSON], [CompareFormat.MARKDOWN]):
        output = "-"
    for kind in chosen:
        if kind is CompareFormat.TERMINAL:
            print_terminal()
            continue
        with status(f"Writing {kind.value}"):
            rendered = render(kind)
        write_rendered(rendered, f"comparison.{kind.value}", Path(), output)
