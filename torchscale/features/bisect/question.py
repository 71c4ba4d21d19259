"""What a bisection asks: the environments between its ends, and the answers that are possible."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchscale.errors import UsageError
from torchscale.features.bisect.environment import Candidate, Factor, ProgramEnvironment
from torchscale.features.bisect.hypotheses import (
    MOST_FACTORS,
    Hypothesis,
    combinations,
    factorial,
    steps,
)
from torchscale.features.bisect.requirements import (
    name_of,
    pinned,
    read_requirements,
    version_of,
    versions_between,
)
from torchscale.features.bisect.trees import Repository, repository_of
from torchscale.util.optional import optional

_REVISION, _VARIABLES = "git:", "env:"
_MOST_CANDIDATES = 500
"""Answers that are weighed against each other at every launch."""
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NEXT_VARIABLE = re.compile(r",(?=[A-Za-z_][A-Za-z0-9_]*=)")
"""A comma before a name and ``=``: values may have commas."""


@dataclass(frozen=True)
class Question:
    """Environments in order: the first is good, the last is bad.

    Attributes:
        candidates: The environments.
        hypotheses: The answers that are possible.
        factors: What differs between both ends.
        repository: Where commits come from; ``None`` where the user's code is no factor.
    """

    candidates: tuple[Candidate, ...]
    hypotheses: tuple[Hypothesis, ...]
    factors: tuple[Factor, ...]
    repository: Repository | None = None


def ask(good: str, bad: str, *, wheels: Sequence[Path] = (), directory: Path) -> Question:
    """The question between two sides of one form: requirements (a list or a file),
    ``git:REVISION``, or ``env:NAME=VALUE,…``.

    Args:
        good: The side that is fast.
        bad: The side that is slow.
        wheels: Where versions in between are looked for, where one package differs.
        directory: In the user's repository, for revisions.

    Raises:
        UsageError: a side is not understood, both are of different forms, or nothing differs.
        MachineError: git is needed and not there.
    """
    forms = [_form(side) for side in (good, bad)]
    if forms[0] != forms[1]:
        raise UsageError(
            f"{good} and {bad}: one is {forms[0]}, the other {forms[1]}",
            hint="give two lists or files of requirements, two git:REV, or two env:NAME=VALUE",
        )
    if forms[0] == "a revision":
        return _of_commits(good, bad, directory)
    if forms[0] == "variables":
        sides = [_variables(side) for side in (good, bad)]
        return _of_factors(sides[0], sides[1], "variables")
    packages = [{name_of(line): line for line in read_requirements(side)} for side in (good, bad)]
    between = _versions_in_between(packages[0], packages[1], wheels)
    if between is not None:
        return between
    return _of_factors(packages[0], packages[1], "packages")


def ask_versions(text: str) -> Question:
    """The question over versions of a package in order: ``torch=2.8,2.9,2.10``.

    Raises:
        UsageError: it is no such list.
    """
    package, equals, listed = text.partition("=")
    versions = [version.strip() for version in listed.lstrip("=").split(",") if version.strip()]
    if not equals or len(versions) < 2 or len(set(versions)) < len(versions):
        raise UsageError(
            f"--versions {text}: expected a package and two or more versions, the good one first",
            hint="--versions torch=2.8,2.9,2.10",
        )
    return _of_versions({}, package.strip(), versions)


def _form(side: str) -> str:
    if side.startswith(_REVISION):
        return "a revision"
    if side.startswith(_VARIABLES):
        return "variables"
    return "requirements"


def _of_commits(good: str, bad: str, directory: Path) -> Question:
    repository = repository_of(directory)
    ends = [repository.commit(side.removeprefix(_REVISION)) for side in (good, bad)]
    if ends[0] == ends[1]:
        raise UsageError(f"{good} and {bad} are the same commit")
    commits = repository.commits(ends[0], ends[1])
    _check_number(len(commits))
    candidates = tuple(
        Candidate(label=repository.title(commit), environment=ProgramEnvironment(revision=commit))
        for commit in commits
    )
    factor = Factor(name="code", old=candidates[0].label, new=candidates[-1].label)
    return Question(candidates, steps(len(candidates)), (factor,), repository)


def _variables(side: str) -> dict[str, str]:
    found = {}
    for part in _NEXT_VARIABLE.split(side.removeprefix(_VARIABLES)):
        name, equals, value = part.partition("=")
        if not equals and not part.strip():
            continue
        if not equals or not _VARIABLE_NAME.fullmatch(name.strip()):
            raise UsageError(
                f"{side}: {part!r} is no variable",
                hint="env:NCCL_ALGO=Ring,NCCL_PROTO=Simple; env: alone sets none",
            )
        found[name.strip()] = value
    return found


def _versions_in_between(
    good: dict[str, str], bad: dict[str, str], wheels: Sequence[Path]
) -> Question | None:
    """The versions of the one package that differs; ``None`` where several do."""
    differing = [name for name in good.keys() | bad.keys() if good.get(name) != bad.get(name)]
    if len(differing) != 1 or differing[0] not in good.keys() & bad.keys():
        return None
    package = differing[0]
    ends = [version_of(side[package]) for side in (good, bad)]
    versions = versions_between(package, ends[0], ends[1], wheels)
    if len(versions) < 2:
        return None
    common = {name: line for name, line in good.items() if name != package}
    return _of_versions(common, package, versions)


def _of_versions(common: dict[str, str], package: str, versions: Sequence[str]) -> Question:
    _check_number(len(versions))
    candidates = tuple(
        Candidate(
            label=f"{package} {version}",
            environment=ProgramEnvironment(
                requirements=tuple(sorted((*common.values(), pinned(package, version))))
            ),
        )
        for version in versions
    )
    factor = Factor(name=package, old=versions[0], new=versions[-1])
    return Question(candidates, steps(len(candidates)), (factor,))


def _of_factors(good: dict[str, str], bad: dict[str, str], what: str) -> Question:
    """All combinations of what differs; of many factors, changed one after the other."""
    names = sorted(name for name in good.keys() | bad.keys() if good.get(name) != bad.get(name))
    if not names:
        raise UsageError(f"both sides have the same {what}")
    is_package = what == "packages"
    factors = tuple(_factor(name, good, bad, is_package=is_package) for name in names)
    if len(names) == 1:
        bits: Sequence[tuple[bool, ...]] = ((False,), (True,))
        answers = steps(2)
    elif len(names) <= MOST_FACTORS:
        bits, answers = combinations(len(names)), factorial(len(names))
    else:
        count = len(names)
        bits = [tuple(place < new for place in range(count)) for new in range(count + 1)]
        answers = steps(count + 1)
    candidates = []
    for which in bits:
        values = {name: value for name, value in good.items() if name not in names}
        for name, is_new in zip(names, which, strict=True):
            side = bad if is_new else good
            if name in side:
                values[name] = side[name]
        environment = ProgramEnvironment(variables=tuple(sorted(values.items())))
        if is_package:
            environment = ProgramEnvironment(requirements=tuple(sorted(values.values())))
        candidates.append(Candidate(label=_label(factors, which), environment=environment))
    return Question(tuple(candidates), answers, factors)


def _factor(name: str, good: dict[str, str], bad: dict[str, str], *, is_package: bool) -> Factor:
    old, new = good.get(name), bad.get(name)
    if is_package:
        old, new = optional(version_of, old), optional(version_of, new)
    return Factor(name=name, old=old, new=new, is_variable=not is_package)


def _label(factors: Sequence[Factor], which: Sequence[bool]) -> str:
    """``torch 2.10, nccl 2.27``; of many factors how many are new, and which was the last."""
    if len(factors) <= MOST_FACTORS:
        return ", ".join(
            factor.at(is_new=is_new) for factor, is_new in zip(factors, which, strict=True)
        )
    new = sum(which)
    if new == 0:
        return "all old"
    return f"{new} of {len(factors)} new, to {factors[new - 1].at(is_new=True)}"


def _check_number(count: int) -> None:
    if count > _MOST_CANDIDATES:
        raise UsageError(
            f"{count:,} environments lie between both ends; at most {_MOST_CANDIDATES} are searched",
            hint="name ends that are closer to each other",
        )
