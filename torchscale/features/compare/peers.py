"""Where a machine lies among others that measured the same: their files → places → a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchscale.config.choices import CompareFormat, Metric
from torchscale.errors import StoreError, UsageError
from torchscale.features.compare.analysis.peers import PeerMachine, machine_places
from torchscale.features.compare.baseline_files import (
    BASELINES,
    find_baseline,
    free_path,
    read_machines,
)
from torchscale.features.compare.history.baselines import Against
from torchscale.features.compare.history.entry import history_entry
from torchscale.features.compare.inputs import load_source, meant_source, runs_in
from torchscale.features.compare.merged import each_once
from torchscale.features.compare.peers_schema import PeersExport
from torchscale.features.compare.sections.peers import peers_document
from torchscale.observer import SILENT, Observer
from torchscale.read.rendering import render_document
from torchscale.schema.run.result_set import MachineResults, ResultSet
from torchscale.util.files import atomic_write_model, make_directory

_FEWEST = 2
"""Machines of a file: one alone is a baseline."""


@dataclass(frozen=True)
class PeersReport:
    """A machine among others. ``results`` are its own; ``left_out`` are sentences on files that
    were not read."""

    places: PeersExport
    results: ResultSet
    left_out: tuple[str, ...] = ()


def names_files(against: str, baselines: Path = BASELINES) -> bool:
    """Whether ``--against`` names files of machines, and not earlier runs of this one: the words
    for these win."""
    if Against.is_word(against):
        return False
    return all(_is_there(part, baselines) for part in _parts(against))


def compare_with_machines(
    source: str,
    against: str,
    metrics: Sequence[Metric],
    *,
    baselines: Path = BASELINES,
    observer: Observer = SILENT,
) -> PeersReport:
    """Where the machine of a run lies among others.

    Args:
        source: The run.
        against: Files with machines' results, directories of such, or baselines by name; several
            with commas.
        metrics: What decides; by default speed alone.
        baselines: Where baselines are kept.
        observer: Shows that reading takes a while.

    Raises:
        UsageError: the run, or any other machine, does not exist.
        StoreError: a file that was named by itself cannot be read.
    """
    meant = meant_source(source, baselines)
    with observer.status("Reading"):
        results = load_source(meant, baselines)
        found, left_out = _machines(against, baselines)
    own = history_entry(results).run.identity
    others = [one for one in found if history_entry(one.results).run.identity != own]
    if not others:
        raise UsageError(
            f"--against {against}: no results of another machine",
            hint="torchscale compare RUN1 RUN2 … --save NAME keeps several in one file",
        )
    places = machine_places(PeerMachine(results.name, results), others, metrics)
    return PeersReport(places, results, tuple(left_out))


def save_machines(
    name: str,
    sources: Sequence[str],
    *,
    baselines: Path = BASELINES,
    replace: bool = False,
    observer: Observer = SILENT,
) -> tuple[Path, MachineResults]:
    """Keep results of several machines in one file (writes).

    Raises:
        UsageError: the name is no file name or is taken, or a source does not exist or measured
            nothing.
        StoreError: a source cannot be read.
        OutputError: the file cannot be written.
    """
    path = free_path(name, baselines, replace=replace)
    machines = []
    with observer.status("Reading"):
        for source in sources:
            machines += _of_source(Path(meant_source(source, baselines)), baselines)
    machines = each_once(machines, observer)
    empty = [one.name for one in machines if not any(cell.launches for cell in one.cells)]
    if empty:
        raise UsageError(f"nothing was measured in {empty[0]}, so it is no reference")
    if len(machines) < _FEWEST:
        raise UsageError(f"--save {name}: one result; expected several, or one to keep by itself")
    content = MachineResults(name=name, machines=tuple(machines))
    make_directory(baselines)
    atomic_write_model(path, content)
    return path, content


def render_peers(report: PeersReport, kind: CompareFormat) -> bytes:
    """The content of a file in any format but ``terminal``.

    Raises:
        ValueError: ``kind`` is ``terminal``.
    """
    if kind is CompareFormat.JSON:
        return (report.places.model_dump_json(indent=1) + "\n").encode()
    return render_document(kind, peers_document(report.places, report.results, report.left_out))


def _parts(against: str) -> list[str]:
    """The files that it names: one, or several with commas."""
    if Path(against).exists():
        return [against]
    return [part.strip() for part in against.split(",") if part.strip()]


def _is_there(text: str, baselines: Path) -> bool:
    return Path(text).exists() or find_baseline(text, baselines) is not None


def _machines(against: str, baselines: Path) -> tuple[list[PeerMachine], list[str]]:
    """The machines, with names that differ; and a sentence on each file that cannot be read."""
    found: list[ResultSet] = []
    left_out = []
    for part in _parts(against):
        path = Path(part)
        if not path.is_dir() or (path / "experiment.json").is_file():
            found += _of_source(path, baselines)
            continue
        for inside in (*sorted(path.glob("*.json")), *runs_in(path)):
            try:
                found += _of_source(inside, baselines)
            except StoreError as error:
                left_out.append(f"Left out: {error.message}.")
    return [PeerMachine(name, results) for name, results in _distinct(found)], left_out


def _of_source(path: Path, baselines: Path) -> list[ResultSet]:
    """The results in a file of several machines, a baseline by its path or name, or a run
    folder."""
    if not path.exists():
        path = find_baseline(str(path), baselines) or path
    if path.is_file():
        several = read_machines(path)
        if several is not None:
            return list(several.machines)
    return [load_source(str(path), baselines)]


def _distinct(found: Sequence[ResultSet]) -> Iterator[tuple[str, ResultSet]]:
    """Each result set with a name that no other has."""
    seen: dict[str, int] = {}
    for results in found:
        name = results.name
        seen[name] = seen.get(name, 0) + 1
        yield (name if seen[name] == 1 else f"{name} ({seen[name]})"), results
