"""The recording that fails, and whether a part of it fails in the same way."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path

from torchscale.config.choices import WindowChoice
from torchscale.errors import TorchscaleError, TraceError, UsageError
from torchscale.features.trace.analyze import RecordingParts, analyze_files

_MAX_FILES = 64
"""Files that are tried alone."""
_NUMBER = re.compile(r"-?\d[\d,.]*(?:e[-+]?\d+)?")
_QUOTED = re.compile(r"'[^'\n]*'")


@dataclass(frozen=True)
class Failing:
    """A recording that fails, and how.

    Attributes:
        path: The file.
        message: The error as a user sees it.
        window: Which part was analyzed.
        parts: Which ranks and steps.
    """

    path: Path
    message: str
    window: WindowChoice
    parts: RecordingParts | None


@dataclass(frozen=True)
class PartTrial:
    """Tries parts of a recording: each is analyzed as a file of its own."""

    failing: Failing
    candidate: Path

    def fails(self, text: bytes) -> bool:
        """Whether this text fails in the same way."""
        self.candidate.write_bytes(text)
        found = _failure([self.candidate], self.failing.window, self.failing.parts)
        expected = _alike(self.failing.message, self.failing.path)
        return found is not None and _alike(found, self.candidate) == expected


def find_failing(
    recordings: list[Path], window: WindowChoice, parts: RecordingParts | None
) -> Failing:
    """The recording that fails; of several the first that fails alone in the way that all do.

    Raises:
        TorchscaleError: none fails.
        UsageError: they fail together alone.
    """
    together = _failure(recordings, window, parts)
    if together is None:
        raise TorchscaleError(
            "nothing to report: the analysis succeeds",
            hint="where its figures look wrong, send what --json prints and a recording of few whole "
            "steps, of all ranks (--max-steps 3)",
        )
    if len(recordings) == 1:
        return Failing(recordings[0], together, window, parts)
    for path in itertools.islice(recordings, _MAX_FILES):
        alone = _failure([path], window, parts)
        if alone is not None and _alike(alone, path) == _alike(together, path):
            return Failing(path, alone, window, parts)
    raise UsageError(
        f"none of the first {min(len(recordings), _MAX_FILES)} recordings fails by itself; together: "
        f"{together}",
        hint="name one recording for --report-problem, or send this message",
    )


def _failure(paths: list[Path], window: WindowChoice, parts: RecordingParts | None) -> str | None:
    """How the analysis fails; ``None`` where it does not.

    Raises:
        TorchscaleError: what fails is the machine, the disk or an option.
    """
    try:
        analyze_files(paths, window, parts=parts)
    except TraceError as error:
        return error.message
    except (TorchscaleError, OSError):
        raise
    except Exception as error:  # noqa: BLE001 - a fault of the program is what is to be reported
        return f"{type(error).__name__}: {error}"
    return None


def _alike(message: str, path: Path) -> str:
    """A message up to numbers, quoted values and the name of the file."""
    for name in (str(path.resolve()), str(path), path.name):
        message = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "FILE", message)
    return _NUMBER.sub("0", _QUOTED.sub("''", message))
