"""Addresses where a command takes a path to read: a local copy is fetched before the command runs,
and removed when it ends. The command itself sees a path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from torchscale.door import Slot
from torchscale.observer import Observer
from torchscale.util.addresses import (
    Address,
    looks_like_address,
    note_copy,
    parse_address,
    refuse_address,
)

_FETCHES: Slot[Callable[[Sequence[tuple[Address, Path, bool]], Observer], None]] = Slot(
    "copies of addresses"
)


@dataclass
class _Named:
    """What the running command line names: addresses and the paths that their copies will have."""

    wanted: list[tuple[Address, Path, bool]] = field(default_factory=list)
    scratch: ExitStack = field(default_factory=ExitStack)
    place: Path | None = None

    def path_of(self, address: Address, *, figures_alone: bool) -> Path:
        """Where its copy will be."""
        if self.place is None:
            from torchscale.util.scratch import scratch_directory  # noqa: PLC0415 - most commands need none

            self.place = self.scratch.enter_context(scratch_directory("storage"))
        # A folder of its own for each, so that the copy keeps its name.
        folder = self.place / str(len(self.wanted))
        folder.mkdir()
        path = folder / address.name
        self.wanted.append((address, path, figures_alone))
        note_copy(path, address)
        return path

    def forget(self) -> None:
        """Remove the copies."""
        self.wanted, self.place = [], None
        self.scratch.close()


_named = _Named()


def readable(*, figures_alone: bool = False) -> Callable[[str], Path]:
    """The parser of an option or argument that is read: an address becomes the path of its copy.

    ``figures_alone``: whether the command needs neither each step's own line nor recordings.
    """

    def path_to_read(text: str) -> Path:
        place = parse_address(str(text))  # a default is a path already
        if isinstance(place, Address):
            return _named.path_of(place, figures_alone=figures_alone)
        return place

    return path_to_read


def readable_text(text: str, figures_alone: bool = False) -> str:
    """The same, where a command takes a text that may also be a name; that stays as typed."""
    if looks_like_address(text):
        return str(readable(figures_alone=figures_alone)(text))
    return text


def local_path(text: str) -> str:
    """The parser of an argument that is a local path.

    Raises:
        UsageError: it is an address.
    """
    refuse_address("", text)
    return text


@contextmanager
def naming() -> Iterator[None]:
    """While a command line is parsed. What it names is forgotten where it is wrong."""
    try:
        yield
    except BaseException:
        _named.forget()
        raise


def refuse_addresses(values: Mapping[str, object], spellings: Mapping[str, str]) -> None:
    """Check that paths that are written, or that only a local file can be, are local ones.

    Args:
        values: Parameter → its value.
        spellings: Parameter → its first name: ``--output-dir``.

    Raises:
        UsageError: one is an address.
    """
    for name, value in values.items():
        for path in value if isinstance(value, list) else [value]:
            if isinstance(path, Path):
                # A path has one slash where two were typed.
                refuse_address(spellings.get(name, ""), str(path).replace(":/", "://", 1))


@contextmanager
def fetched() -> Iterator[None]:
    """While a command runs: the copies of what its line names are there.

    Raises:
        TorchscaleError: one cannot be fetched.
    """
    if not _named.wanted:
        yield
        return
    from torchscale.cli.output import TERMINAL  # noqa: PLC0415 - most commands fetch nothing

    try:
        _FETCHES["storage"](_named.wanted, TERMINAL)
        yield
    finally:
        _named.forget()
