"""Command lines of nccl-tests: flags, and what they are in ``measure collectives``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from torchscale.config.translate import Translation
from torchscale.config.yaml_reader import Data
from torchscale.features.imports.names import COLLECTIVES, NCCL_REASONS, NCCL_TYPES, nccl_flags
from torchscale.features.imports.worksheet import Path, Worksheet

_PROGRAM = re.compile(r"(?:^|[\s/])(?P<name>[a-z_]+)_perf(?:_mpi)?(?=\s|$)")
_RANKS = re.compile(r"\s(?:-np|-n|--ntasks|-c)[ =](\d{1,6})\s")
_MOST_DIGITS = 15
"""Of a number of bytes: a petabyte."""
_SIZES = ("32M", "32M")
"""Smallest and largest of nccl-tests itself."""
_OTHERS = ("gather", "scatter", "hypercube")
"""Programs of nccl-tests whose collective is not measured here."""


def is_nccl_tests(text: str) -> bool:
    """Whether a text is, or holds, a command of nccl-tests."""
    return _command(text) is not None


def from_nccl_tests(text: str) -> Translation:
    """The first command of nccl-tests in a text, as a sweep of collectives."""
    name, before, arguments = _command(text) or ("", "", [])
    sheet = Worksheet("nccl-tests", _settings(arguments))
    sheet.place("measure", ["collectives"])
    operation = COLLECTIVES.get(name.replace("_", ""))
    if operation is None:
        sheet.leave((f"{name}_perf",), "no such collective here")
    else:
        sheet.place("collectives.operations", [operation])
        sheet.result.renamed[f"{name}_perf"] = "collectives.operations"
    _devices(sheet, before)
    place_sweep(sheet, ())
    return sheet.done()


def place_sweep(sheet: Worksheet, above: Path, sizes: tuple[str, str] = _SIZES) -> None:
    """Move sizes, iterations and the type below ``above`` to their places; the other flags have a
    reason.

    Args:
        sheet: The config.
        above: The section of the flags.
        sizes: The suite's own smallest and largest size.
    """
    for there, here, default in (
        ("minbytes", "min_bytes", sizes[0]),
        ("maxbytes", "max_bytes", sizes[1]),
    ):
        value = sheet.take((*above, there))
        if value is None:
            value = default
            sheet.note(f"{there} is not set: {default}, the suite's own default")
        if isinstance(value, str) and value.isdecimal() and len(value) <= _MOST_DIGITS:
            value = int(value)
        sheet.place(f"collectives.{here}", value, (*above, there))
    for there, here in (("iters", "iterations"), ("warmup_iters", "warmup")):
        count = sheet.take_whole((*above, there))
        if count is not None:
            sheet.place(f"collectives.{here}", count, (*above, there))
    for there in ("datatype", "data_type"):
        word = sheet.take_word((*above, there))
        if word in NCCL_TYPES:
            sheet.place("collectives.dtypes", [NCCL_TYPES[word]], (*above, there))
        elif word:
            reason = f"{word}: see `torchscale measure collectives --help`"
            sheet.leave((*above, there), reason)
    for there, reason in NCCL_REASONS.items():
        if sheet.has((*above, there)):
            sheet.leave((*above, there), reason)


def _devices(sheet: Worksheet, before: str) -> None:
    """Ranks are processes × threads × GPUs of a thread."""
    threads, devices = sheet.take_whole("nthreads") or 1, sheet.take_whole("ngpus") or 1
    processes = _RANKS.search(f" {before} ")
    count = threads * devices
    if processes is not None:
        count *= int(processes[1])
    if count > 1:
        sheet.place("gpu_counts", [count], "ngpus")
    else:
        sheet.note("a single GPU: a collective needs two; all devices are used")


def _command(text: str) -> tuple[str, str, list[str]] | None:
    """The collective, what starts it and its arguments."""
    for line in text.replace("\\\n", " ").splitlines():
        match = _PROGRAM.search(line)
        if match is None or line.lstrip().startswith("#"):
            continue
        if match["name"].replace("_", "") not in (*COLLECTIVES, *_OTHERS):
            continue
        rest = re.split(r"[|;&>]", line[match.end() :])[0]
        try:
            return match["name"], line[: match.start()], shlex.split(rest)
        except ValueError:
            continue
    return None


def _settings(arguments: Sequence[str]) -> dict[str, Data]:
    """Long flag → value."""
    return {flag: value for _, flag, value in nccl_flags(arguments)}
