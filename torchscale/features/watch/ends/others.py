"""How the ranks ended that did not end first, in words."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.features.watch.ends.ranks import RankEnd, alike, consequences
from torchscale.util.text import agreeing, ranks_label

_MOST_SHOWN = 8


def other_ends(ends: Sequence[RankEnd], first: RankEnd) -> list[str]:
    """How the other ranks ended, those of one way in a line."""
    after, same = consequences(ends, first), alike(first, ends)
    lines: dict[str, list[RankEnd]] = {}
    for end in ends:
        if end is not first and end not in same and end.rank is not None:
            lines.setdefault(_ending(end, is_after=end in after), []).append(end)
    found = []
    for text, of_text in list(lines.items())[:_MOST_SHOWN]:
        ranks = [end.rank for end in of_text if end.rank is not None]
        found.append(f"{ranks_label(ranks)} {text.format(was=agreeing(ranks, 'was', 'were'))}")
    return found


def _ending(end: RankEnd, *, is_after: bool) -> str:
    if end.is_lost_peer:
        return "lost the connection to another rank then"
    if end.error:
        at = f" at {end.place}" if end.place else ""
        return f"raised {end.first_line}{at}".replace("{", "{{").replace("}", "}}")
    if end.signal:
        by = ", as torchrun ends the other ranks" if is_after and end.signal != "SIGABRT" else ""
        return f"{{was}} ended by {end.signal}{by}"
    if end.is_gone:
        return "{was} gone" + ", as what starts the ranks ends the others" * is_after
    return f"exited with code {end.exit_code}"
