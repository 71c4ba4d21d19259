"""``torchscale init``: a config to start from."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from torchscale.cli.output import TERMINAL, print_error, print_json, result_console
from torchscale.cli.parameters import READS, argument, option
from torchscale.errors import ConfigError, ExitCode, UsageError

DEFAULT_FILE = Path("benchmark_config.yaml")


def init(
    path: Annotated[
        Path | None,
        argument(
            "FILE",
            "Where to write it. Default: benchmark_config.yaml, or NAME.yaml.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[Path | None, option("--output -o FILE", "The same as the argument.")] = None,
    hardware: Annotated[
        str | None,
        option(
            "--hardware NAME",
            "For a known machine (torchscale docs names hardware). Default: fitted to this one.",
        ),
    ] = None,
    example: Annotated[
        str | None, option("--example NAME", "Write a ready-made experiment of --list instead.")
    ] = None,
    source: Annotated[
        Path | None,
        option(
            "--from OLD",
            "Translate a config of another tool (torchscale docs imports): what is written loads, "
            "and what was left out is listed.",
            **READS,
        ),
    ] = None,
    list_all: Annotated[bool, option("--list", "List the ready-made experiments.")] = False,
    force: Annotated[bool, option("--force", "Replace an existing file.")] = False,
    as_json: Annotated[
        bool, option("--json", "Print what was written, or the list, as JSON.")
    ] = False,
) -> None:
    """Write a commented config to start from, fitted to this machine or to a known kind, or a
    ready-made experiment; or translate a config of another tool.

    [bold]Examples[/bold]

    [cyan]torchscale init[/cyan]

    [cyan]torchscale init h100.yaml --hardware 8xh100[/cyan]

    [cyan]torchscale init --example strong_scaling[/cyan]

    [cyan]torchscale init benchmark_config.yaml --from old.yaml[/cyan]
    """

    if list_all:
        _list_examples(as_json=as_json)
        return
    if path is not None and output is not None:
        raise UsageError(f"two files: {path} and {output}", hint="name one")
    file = path or output
    if source is not None:
        if example is not None or hardware is not None:
            raise UsageError("--from contradicts --example and --hardware", hint="name one of them")
        _translate(file or DEFAULT_FILE, source, force=force, as_json=as_json)
        return
    if example is not None:
        if hardware is not None:
            raise UsageError(
                "--example and --hardware contradict each other",
                hint="an experiment is the same for every machine",
            )
        named = file or Path(f"{Path(example).name}.yaml")
        _write_example(named, example, force=force, as_json=as_json)
        return
    _write_config(file or DEFAULT_FILE, hardware, force=force, as_json=as_json)


def _list_examples(*, as_json: bool) -> None:
    from torchscale.measure.init import list_examples  # noqa: PLC0415 - not for `--help`

    examples = list_examples()
    if as_json:
        _print_json([{"name": name, "description": description} for name, description in examples])
        return
    from torchscale.report.formats.console import print_pairs  # noqa: PLC0415

    print_pairs(examples, result_console())


def _write_example(file: Path, example: str, *, force: bool, as_json: bool) -> None:
    from torchscale.measure.init import write_example  # noqa: PLC0415 - not for `--help`

    write_example(file, example, force=force)
    if as_json:
        _print_json({"file": str(file), "example": example})
    TERMINAL.note(f"Wrote {file}. Next: torchscale benchmark {shlex.quote(str(file))} --dry-run")


def _write_config(file: Path, hardware: str | None, *, force: bool, as_json: bool) -> None:
    from torchscale.measure.init import write_config  # noqa: PLC0415 - not for `--help`

    written = write_config(file, hardware=hardware, force=force)
    if as_json:
        _print_json({"file": str(file), "machine": written.title})
    quoted = shlex.quote(str(file))
    there = "" if hardware is None else f" --hardware {hardware}"
    TERMINAL.note(
        f"Wrote {file} for {written.title}. Next: torchscale benchmark {quoted} --dry-run{there}"
    )
    if hardware is not None:
        TERMINAL.note(f"Then, on that machine: torchscale benchmark {quoted}")


def _translate(file: Path, source: Path, *, force: bool, as_json: bool) -> None:
    from torchscale.measure.init import write_translation  # noqa: PLC0415 - not for `--help`

    translation = write_translation(file, source, force=force)
    if as_json:
        _print_json(
            {
                "file": str(file),
                "suite": translation.suite,
                "missing": translation.missing,
                "differs": translation.differs,
                "renamed": translation.renamed,
                "left_out": translation.left_out,
                "notes": translation.notes,
            }
        )
    first, *further = translation.summary(str(file), source.name)
    if translation.missing:
        print_error(ConfigError(first))
    else:
        TERMINAL.note(first)
    for line in further:
        TERMINAL.note(line)
    TERMINAL.note(f"Next: torchscale benchmark {shlex.quote(str(file))} --dry-run")
    if translation.missing:
        raise typer.Exit(ExitCode.USAGE)


def _print_json(content: object) -> None:
    print_json(json.dumps(content, indent=1, ensure_ascii=False))
