"""The pages of the documentation, wherever the package is installed."""

from __future__ import annotations

from pathlib import Path

from torchscale.errors import UsageError
from torchscale.util.words import did_you_mean

_PAGES = Path(__file__).parent.parent / "_docs"
"""Directory of the pages. In a checkout a link to ``docs``; in a wheel its pages."""


def list_pages() -> list[tuple[str, str]]:
    """Name and title of every page, by name.

    Raises:
        UsageError: this installation has no documentation.
    """
    pages = sorted(_directory().glob("*.md"))
    return [
        (page.stem, page.read_text(encoding="utf-8").partition("\n")[0].lstrip("# "))
        for page in pages
    ]


def read_page(name: str) -> str:
    """A page as Markdown.

    Args:
        name: A name from :func:`list_pages`; ``docs/`` in front and ``.md`` behind are accepted.

    Raises:
        UsageError: there is no such page.
    """
    wanted = name.removeprefix("docs/").removesuffix(".md").lower()
    names = [page for page, _ in list_pages()]
    if wanted not in names:
        raise UsageError(
            f"there is no page {name!r}{did_you_mean(wanted, names)}",
            hint=f"pages: {', '.join(names)}",
        )
    return (_directory() / f"{wanted}.md").read_text(encoding="utf-8")


def _directory() -> Path:
    if not _PAGES.is_dir():
        raise UsageError(
            "this installation has no documentation",
            hint="install torchscale from its wheel or checkout",
        )
    return _PAGES
