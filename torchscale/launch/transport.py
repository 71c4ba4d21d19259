"""By what the data of a launch moved: NCCL's log, or the sockets of gloo's ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torchscale.catalog.backends import is_nccl, names_in
from torchscale.launch.nccl_log import read_transport
from torchscale.schema.launch.transport import Transport, Way, WayKind
from torchscale.schema.node.environment import RankIdentity


def launch_transport(
    directory: Path, ranks: Sequence[RankIdentity], process_logs: Sequence[Path] = ()
) -> Transport | None:
    """By what the data of several ranks moved; ``None`` for one rank alone.

    Args:
        directory: Where the launch's logs are.
        ranks: Its ranks.
        process_logs: Logs of its processes, where they ran other launches before.
    """
    if not ranks or ranks[0].world_size < 2:
        return None
    first = ranks[0]
    if is_nccl(first.backend):
        return read_transport(directory, first.versions.nccl, process_logs)
    if "gloo" in names_in(first.backend):
        return _of_sockets(ranks)
    return Transport(unknown=f"the log of {first.backend or 'this backend'} is not read")


def _of_sockets(ranks: Sequence[RankIdentity]) -> Transport:
    sockets = dict.fromkeys(socket for rank in ranks for socket in rank.sockets)
    ways = tuple(
        Way(
            kind=WayKind.TCP,
            name="TCP",
            devices=() if socket.interface is None else (socket.interface,),
            family=socket.family,
            within_host=socket.within_host,
        )
        for socket in sockets
    )
    if not ways:
        return Transport(unknown="the ranks did not note gloo's sockets")
    return Transport(ways=ways, source="the ranks' sockets")
