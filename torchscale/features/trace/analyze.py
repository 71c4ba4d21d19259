"""Recordings on disk, read and analyzed. Needs no torch and no GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from torchscale.config.choices import WindowChoice
from torchscale.errors import TorchscaleError, UsageError
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.features.trace.analysis.windows import StepRange
from torchscale.features.trace.perfetto import perfetto_json
from torchscale.features.trace.reader_engine import ReaderEngine
from torchscale.features.trace.readers.files import REPORT_SUFFIX
from torchscale.features.trace.readers.reader_pool import LocalReaders, Readers
from torchscale.features.trace.readers.recordings import (
    DEFAULT_MEMORY,
    ReadOptions,
    find_recordings,
    read_recordings,
)
from torchscale.features.trace.readers.selection import RankRanges
from torchscale.features.trace.recording.nsys import find_exporter
from torchscale.features.trace.recording.nsys_reports import EXPORT_SECONDS, export
from torchscale.observer import SILENT, Observer
from torchscale.read.folders import run_by_name
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.profiles.recording import Recording
from torchscale.schema.state import State
from torchscale.util.extras import require
from torchscale.util.files import atomic_write_bytes, atomic_write_model, make_directory
from torchscale.util.scratch import scratch_directory
from torchscale.util.units import format_seconds, parse_bytes

ANALYSIS, TIMELINE = "analysis.json", "timeline.perfetto.json.gz"


@dataclass(frozen=True)
class Profile:
    """A recording and its analysis; without anything to analyze, ``analysis`` is ``None`` and
    ``problem`` says why."""

    directory: Path
    recording: Recording
    analysis: ProfileAnalysis | None
    problem: str = ""


def analyze_recording(directory: Path, recording: Recording) -> Profile:
    """Analyze what a recording left and write ``analysis.json`` and a timeline for Perfetto beside
    it."""
    if recording.state is not State.OK:
        return Profile(directory, recording, None, recording.reason)
    try:
        analysis = analyze_files(
            [directory / name for name in recording.files], directory=directory
        )
    except TorchscaleError as error:
        return Profile(directory, recording, None, error.message)
    return Profile(directory, recording, analysis)


@dataclass(frozen=True)
class RecordingParts:
    """What of recordings is analyzed, and what reading may take.

    Attributes:
        ranks: ``None`` for all.
        sample: How many of them; ``None`` for all.
        steps: Numbers of the first and the last step; ``None`` for all.
        memory_bytes: Memory for columns of events and for processes that read at once.
        readers: Who reads the files where one process is not to.
    """

    ranks: RankRanges | None = None
    sample: int | None = None
    steps: StepRange | None = None
    memory_bytes: int = DEFAULT_MEMORY
    readers: Readers = field(default_factory=LocalReaders)


def make_readers(engine: ReaderEngine, ray_address: str | None) -> Readers:
    """Who reads recordings.

    Args:
        engine: Processes of this machine, or tasks of a Ray cluster.
        ray_address: Of the cluster; ``None`` for the one that Ray finds.

    Raises:
        UsageError: there is an address, and the engine is not Ray; or Ray is not installed.
    """
    if engine is ReaderEngine.LOCAL:
        if ray_address is not None:
            raise UsageError(f"--ray-address {ray_address} is for --engine ray")
        return LocalReaders()
    require("ray", "--engine ray")
    from torchscale.features.trace.readers.ray_readers import RayReaders  # noqa: PLC0415 - an extra

    return RayReaders(ray_address)


def make_parts(
    ranks: str | None,
    sample: int | None,
    steps: str | None,
    memory: str | None,
    readers: Readers | None = None,
) -> RecordingParts:
    """What a user asks for in text; ``None`` for what is not asked for.

    Raises:
        UsageError: it is not as it is to be written.
    """
    parts = RecordingParts(sample=sample, readers=readers or LocalReaders())
    if ranks is not None:
        parts = replace(parts, ranks=RankRanges.parse(ranks))
    if steps is not None:
        parts = replace(parts, steps=StepRange.parse(steps))
    if memory is None:
        return parts
    try:
        return replace(parts, memory_bytes=parse_bytes(memory))
    except ValueError as error:
        raise UsageError(f"--memory {memory}: {error}") from error


def analyze_files(
    paths: list[Path],
    window: WindowChoice = WindowChoice.AUTO,
    directory: Path | None = None,
    *,
    parts: RecordingParts | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> ProfileAnalysis:
    """Analyze recordings; with ``directory`` also write the analysis and its timeline there.

    Args:
        paths: Files, and directories of them.
        window: Which part is analyzed.
        directory: Where the analysis and the timeline are written; ``None`` writes nothing.
        parts: Which ranks and steps are analyzed; by default all.
        say: Called with what is being done.

    Raises:
        TraceError: they cannot be read, or hold nothing that can be analyzed.
        MachineError: a report of nsys is among them and cannot be exported here.
        OutputError: there is no space for files.
    """
    parts = parts or RecordingParts()
    recordings = find_recordings(paths)
    reports = [path for path in recordings if path.suffix == REPORT_SUFFIX]
    with scratch_directory("profile") as scratch:
        if reports:
            nsys = find_exporter()
            exported = {
                report: scratch / str(number) / report.stem for number, report in enumerate(reports)
            }
            for report, target in exported.items():
                target.parent.mkdir()  # not beside the report: its directory may be read-only
                exported[report] = target.with_name(f"{target.name}.sqlite")
                export(nsys, report, exported[report], timeout_seconds=EXPORT_SECONDS)
            recordings = [exported.get(path, path) for path in recordings]
        reading = ReadOptions(
            directory=scratch,
            memory_bytes=parts.memory_bytes,
            ranks=parts.ranks,
            sample=parts.sample,
            on_read=ReadingProgress(say).told,
            readers=parts.readers,
        )
        trace = read_recordings(recordings, reading)
        analysis = analyze_trace(trace, window, steps=parts.steps, say=say)
        if directory is not None:
            atomic_write_bytes(directory / TIMELINE, perfetto_json(trace, analysis))
            atomic_write_model(directory / ANALYSIS, analysis)
    return analysis


def analyze_recordings(
    paths: Sequence[Path],
    *,
    window: WindowChoice = WindowChoice.AUTO,
    output_dir: Path | None = None,
    parts: RecordingParts | None = None,
    observer: Observer = SILENT,
) -> ProfileAnalysis:
    """Analyze recordings of one or many ranks, made here or elsewhere. Needs no torch and no GPU.

    Args:
        paths: ``.nsys-rep``, ``.sqlite``, ``.json``, ``.json.gz``, ``.tar.gz``, directories of
            them, or names of runs in ``./results``.
        window: Which part is analyzed.
        output_dir: Where ``analysis.json`` and a timeline for Perfetto are written; ``None`` writes
            nothing.
        parts: Which ranks and steps are analyzed, and what reading them may take; by default
            all.
        observer: Shows messages, and how far the analysis is.

    Raises:
        TraceError: they cannot be read, or hold nothing that can be analyzed.
        MachineError: a ``.nsys-rep`` cannot be exported here.
        OutputError: ``output_dir`` cannot be written.
    """
    if output_dir is not None:
        make_directory(output_dir)
    with observer.status("Reading the recordings") as say:
        return analyze_files(
            list(map(run_by_name, paths)), window, output_dir, parts=parts, say=say
        )


_TIME_LEFT_AFTER = 3.0
"""Seconds of reading, from which on what is left can be told."""


class ReadingProgress:
    """Says how many files are read, and about how long the others take."""

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say, self._clock = say, clock
        self._began = clock()

    def told(self, done: int, total: int) -> None:
        """``done`` of ``total`` files are read."""
        text = f"Reading the recordings: {done:,} of {total:,}"
        spent = self._clock() - self._began
        if spent >= _TIME_LEFT_AFTER and done < total:
            text += f", about {format_seconds(spent / done * (total - done), 2)} left"
        self._say(text)
