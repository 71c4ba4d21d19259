"""Coverage-guided fuzzing of the readers of files that others wrote: ``python scripts/fuzz.py
READER [OPTION …] DIR …``

Needs atheris, which is no dependency of torchscale: ``pip install --target PLACE atheris``, then
run with ``PYTHONPATH=PLACE``. Options and corpus directories are libFuzzer's: ``-max_total_time=600
found tests/corpus/config``. Inputs that reach new code are added to the first directory, so let it
be one outside the repository.

A reader may accept its input or refuse it with the error that its callers expect. Anything else is
a finding: atheris prints the traceback and keeps the input.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

Reader = Callable[[bytes, Path], None]
"""Reads these bytes, as a file in a directory of its own where it reads files."""


def config(data: bytes, directory: Path) -> None:
    """The config of an experiment."""
    from torchscale.config.load import load_experiment  # noqa: PLC0415 - imports are instrumented one by one

    load_experiment(_file(data, directory / "config.yaml"))


def record(data: bytes, directory: Path) -> None:
    """The record of a launch."""
    from torchscale.schema.launch.record import LaunchRecord  # noqa: PLC0415 - as above
    from torchscale.store.json_files import read_model  # noqa: PLC0415

    read_model(directory, _file(data, directory / "record.json"), LaunchRecord)


def kineto(data: bytes, directory: Path) -> None:
    """A trace of torch.profiler, and its analysis."""
    _trace(_file(data, directory / "rank0.json"))


def nsys(data: bytes, directory: Path) -> None:
    """An export of Nsight Systems, and its analysis."""
    _trace(_file(data, directory / "report.sqlite"))


def flight_recorder(data: bytes, directory: Path) -> None:
    """A dump of torch's flight recorder."""
    from torchscale.features.watch.hang.flight_recorder import read_flight_recorder  # noqa: PLC0415 - as above

    del directory
    read_flight_recorder(data)


READERS: dict[str, Reader] = {
    "config": config,
    "record": record,
    "kineto": kineto,
    "nsys": nsys,
    "flight_recorder": flight_recorder,
}


def read(reader: Reader, data: bytes, directory: Path) -> bool:
    """Whether the input was accepted; a refusal is no finding, any other exception is raised."""
    from torchscale.errors import TorchscaleError  # noqa: PLC0415 - as above
    from torchscale.store.json_files import DamagedFileError  # noqa: PLC0415

    with contextlib.suppress(TorchscaleError, DamagedFileError):
        reader(data, directory)
        return True
    return False


def main() -> None:
    """Fuzz one reader until libFuzzer's limits are reached or something is found."""
    import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: PLC0415 - an optional tool

    if len(sys.argv) < 2 or sys.argv[1] not in READERS:
        sys.exit(f"usage: fuzz.py {{{','.join(READERS)}}} [libFuzzer option …] [corpus …]")
    name = sys.argv.pop(1)
    with tempfile.TemporaryDirectory(prefix="torchscale-fuzz-") as directory:
        place = Path(directory)
        with atheris.instrument_imports(include=["torchscale"]):
            read(READERS[name], b"", place)  # imports what the reader needs
        atheris.Setup(sys.argv, lambda data: read(READERS[name], data, place) and None)
        atheris.Fuzz()


def _file(data: bytes, path: Path) -> Path:
    path.write_bytes(data)
    return path


def _trace(path: Path) -> None:
    from torchscale.features.trace.analysis.analyze import analyze_trace  # noqa: PLC0415 - as above
    from torchscale.features.trace.readers.recordings import read_recordings  # noqa: PLC0415

    analyze_trace(read_recordings([path]))


if __name__ == "__main__":
    main()
