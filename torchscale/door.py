"""The door between the core and the features.

The core imports no feature. Where it needs something that a feature has, it names a :class:`Slot`
with the form of what it asks for, and :data:`OFFERS` says which features offer it and where. What
is offered is imported when the core asks for it.

A feature is added by a folder in ``features/`` and its lines here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Generic, TypeVar, cast

T = TypeVar("T")

_FEATURES = f"{__package__}.features"
OFFERS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "commands": {
            "validate": "validate.cli.validate",
            "watch": "watch.cli.watch",
            "profile": "trace.cli.profile",
            "autopsy": "watch.cli.autopsy",
            "compare": "compare.cli.compare",
            "history": "compare.cli.history",
            "bisect": "bisect.cli.bisect",
            "predict": "decide.cli.predict",
            "tune": "decide.cli.tune",
            "submit": "cluster.cli.submit",
            "export": "export.cli.export",
        },
        "hangs": {"autopsy": "watch.hang.evidence"},
        "live_pages": {"watch": "watch.live_page:JobPage"},
        "metrics": {
            "prometheus": "export.formats.prometheus:render",
            "openmetrics": "export.formats.prometheus:render_openmetrics",
        },
    }
)
"""Slot → name → what is offered: a module below ``features/``, or an attribute of one as
``module:attribute``."""


class Slot(Generic[T]):
    """A place where features add to the core.

    Attributes:
        name: As in :data:`OFFERS`. Who names a slot says what it must offer: ``T`` is its form.
    """

    def __init__(self, name: str) -> None:
        self._offers = OFFERS[name]

    def __contains__(self, key: str) -> bool:
        return key in self._offers

    def __iter__(self) -> Iterator[str]:
        """The names, in the order of the table; nothing is imported."""
        return iter(self._offers)

    def __getitem__(self, key: str) -> T:
        """What is offered under a name, imported now.

        Raises:
            KeyError: no feature offers it.
        """
        module, _, attribute = self._offers[key].partition(":")
        offered: object = import_module(f"{_FEATURES}.{module}")
        if attribute:
            offered = getattr(offered, attribute)
        return cast(T, offered)
