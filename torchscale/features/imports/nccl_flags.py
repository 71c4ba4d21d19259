"""Flags of nccl-tests behind ``measure collectives``: each answers with what it is here."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from torchscale.errors import UsageError
from torchscale.features.imports.names import (
    NCCL_FLAGS,
    NCCL_OPTIONS,
    NCCL_REASONS,
    NCCL_TYPES,
    nccl_flags,
)
from torchscale.util.redaction import redact_arguments

_OWN = ("-b", "-e", "-d", "-w", "-n", "-g", "-o", "--iters", "--op")
"""Flags of both. ``-n`` counts GPUs here and iterations there, ``-o`` is a directory here and a
reduction there."""
_SAME = ("-b", "-e", "-d", "-w")
_COUNTS = ("ngpus", "nthreads")
_MOST_DIGITS = 6
_REDUCTIONS = ("sum", "prod", "min", "max", "avg", "all", "mulsum")


def refuse_nccl_flags(arguments: Sequence[str]) -> None:
    """Check for flags of nccl-tests.

    Raises:
        UsageError: there is one that means nothing here, or something else; the hint says what it
            is here, and the whole line to type.
    """
    typed = list(nccl_flags(arguments))
    foreign = {flag: name for flag, name, value in typed if _is_foreign(flag, name, value)}
    if not foreign and {"-n", "-g"} <= {flag for flag, _, _ in typed}:
        foreign = {"-n": "iters"}
    if not foreign:
        return
    names = ", ".join(foreign)
    reasons = "; ".join(dict.fromkeys(_reason(flag, name) for flag, name in foreign.items()))
    line = shlex.join(["torchscale", "measure", "collectives", *redact_arguments(_here(typed))])
    what = "no option here"
    if any(flag in _OWN for flag in foreign):
        what = "something else here"
    raise UsageError(
        f"{names}: of nccl-tests, and {what}",
        hint=f"{reasons}; type: {line}; overrides are written --key.sub=value",
    )


def _is_foreign(flag: str, name: str, value: str) -> bool:
    """Whether a flag is of nccl-tests alone, or has a value that only nccl-tests takes."""
    if name == "op":
        return value in _REDUCTIONS
    return flag not in _OWN and name in NCCL_FLAGS.values()


def _reason(flag: str, name: str) -> str:
    if name in NCCL_OPTIONS:
        return f"{flag} is {NCCL_OPTIONS[name]}"
    return f"{flag}: {NCCL_REASONS.get(name, 'there is nothing like it')}"


def _here(typed: Sequence[tuple[str, str, str]]) -> list[str]:
    """The same sweep in options of this command; a single GPU for each process is the default."""
    words: list[str] = []
    ranks = 1
    for flag, name, value in typed:
        if name in _COUNTS:
            if value.isdecimal() and len(value) <= _MOST_DIGITS:
                ranks *= int(value)
            continue
        option, here = NCCL_OPTIONS.get(name), value
        if name not in NCCL_FLAGS.values() or flag in _SAME:
            option = flag
        if name == "datatype":
            here = NCCL_TYPES.get(value, value)
        if option is not None:
            words += [option, here] if here else [option]
    if ranks > 1:
        words += [NCCL_OPTIONS["ngpus"], str(ranks)]
    return words
