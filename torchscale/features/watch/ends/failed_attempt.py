"""What is known of an attempt of a watched job that has ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torchscale.features.watch.ends.kernel import KernelNews
from torchscale.features.watch.ends.ranks import RankEnd
from torchscale.schema.launch.hang import Autopsy
from torchscale.schema.watch.ends import ProcessEnd, ProcessWait
from torchscale.schema.watch.rank import RankFacts, RankUse


@dataclass(frozen=True)
class FailedAttempt:
    """What is known of an attempt that has ended.

    Attributes:
        number: Of the attempt.
        ends: What its processes left.
        waits: What processes waited for that were killed meanwhile.
        ranks: What the ranks say of themselves that have reported.
        uses: What their processes used.
        exit_code: Of the program, as its caller sees it; ``None`` where it goes on.
        program: Its name.
        oom_kills: Of the kernel, on this host, during the attempt.
        kernel: What the kernel's log says of that time.
        collectives: Asked whether the ranks' collectives do not fit together.
    """

    number: int
    ends: Sequence[ProcessEnd]
    waits: Sequence[ProcessWait] = ()
    ranks: Mapping[int, RankFacts] = field(default_factory=dict)
    uses: Mapping[int, RankUse] = field(default_factory=dict)
    exit_code: int | None = None
    program: str = "the program"
    oom_kills: int = 0
    kernel: KernelNews = field(default_factory=KernelNews)
    collectives: Callable[[Sequence[RankEnd]], Autopsy | None] = lambda _: None

    @property
    def hosts(self) -> int:
        """On which its processes ran."""
        return len({facts.host for facts in self.ranks.values()} | {end.host for end in self.ends})

    @property
    def world_size(self) -> int:
        """Ranks, as far as that is known; 0 where not."""
        sizes = [facts.world_size for facts in self.ranks.values()]
        return max([*sizes, *(end.world_size or 0 for end in self.ends)], default=0)
