"""Which node of which cluster this is: from options, or from what a scheduler put into the
environment."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torchscale.config.choices import MAX_NODES
from torchscale.errors import UsageError
from torchscale.features.cluster.master import DEFAULT_PORT, LAST_PORT, is_loopback, parse_master
from torchscale.measure.nodes import NodeOptions

_TORCHRUN_VARIABLES = "PET_*"
_SLURM_PORTS = (20_000, 20_000)
"""First port and their number, as Slurm's examples for torchrun use them: two jobs on a node get
two ports."""
_FIRST_HOST = re.compile(r"([^,\[]+)(?:\[(\d+)[^\]]*\]([^,]*))?")


@dataclass(frozen=True)
class Cluster:
    """The nodes of a sweep, and which one this is.

    Attributes:
        nodes: How many, at least 2.
        node_rank: Rank of this node, from 0. Node 0 runs the sweep and keeps the run folder.
        host: Address or name of node 0.
        port: Where node 0 listens.
        source: Where this is from, for messages.
    """

    nodes: int
    node_rank: int
    host: str
    port: int
    source: str = "options"

    @property
    def is_leader(self) -> bool:
        """Whether this is node 0."""
        return self.node_rank == 0

    @property
    def is_named_later(self) -> bool:
        """Whether the name of node 0 may begin to resolve after this node has started: the names of
        pods do, and a pod that replaces another has its name and another address."""
        return self.source == _TORCHRUN_VARIABLES

    @property
    def master(self) -> str:
        """``host:port``."""
        if ":" in self.host:
            return f"[{self.host}]:{self.port}"
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class _Found:
    """What an environment says; ``None`` is not said there."""

    source: str
    nodes: int
    node_rank: int | None
    host: str | None = None
    port: int | None = None


def find_cluster(options: NodeOptions, nodes: int | None, env: Mapping[str, str]) -> Cluster | None:
    """The cluster of a sweep; ``None`` for a single node.

    Args:
        options: Options of the command line. They win over ``env``.
        nodes: ``launch.nodes`` of the config where it is set; an option wins over it.
        env: ``PET_*`` (torchrun, Kubeflow), ``SLURM_*`` of a step, ``SKYPILOT_*``, ``OMPI_*``; the
            first found counts.

    Raises:
        UsageError: something is missing, wrong, or contradicts itself.
    """
    asked = options.nodes if options.nodes is not None else nodes
    if asked == 1:
        _refuse_options_of_several(options)
        return None
    found = next(filter(None, (reader(env) for reader in _READERS)), None)
    if asked is None and (found is None or found.nodes == 1):
        _refuse_options_of_several(options)
        return None
    count = 1
    if asked is not None:
        count = asked
    elif found is not None:
        count = found.nodes
    if not 1 < count <= MAX_NODES:
        raise UsageError(f"--nnodes {count}: expected 1 to {MAX_NODES}")
    source = "options"
    if found is not None and (options.node_rank is None or not options.master):
        source = found.source
    if found is not None and options.node_rank is None and found.nodes != count:
        raise UsageError(
            f"{count} nodes were asked for, but {found.source} says {found.nodes}",
            hint="make them equal, or also give --node-rank and --master",
        )
    node_rank = options.node_rank
    if node_rank is None and found is not None:
        node_rank = found.node_rank
    if node_rank is None:
        raise UsageError(
            f"{count} nodes, but which one is this?",
            hint="start the same command on every node, each with its --node-rank 0 to "
            f"{count - 1}; --nnodes 1 measures this node alone",
        )
    if not 0 <= node_rank < count:
        raise UsageError(f"--node-rank {node_rank}: expected 0 to {count - 1} with {count} nodes")
    host, port = _master(options.master, found, env)
    return Cluster(count, node_rank, host, port, source)


def _refuse_options_of_several(options: NodeOptions) -> None:
    given = {
        "--node-rank": options.node_rank,
        "--master": options.master,
        "--token-file": options.token_file,
    }
    for name, value in given.items():
        if value is not None:
            raise UsageError(
                f"{name} {value} is for several nodes", hint="add --nnodes N, or leave it out"
            )


def _master(text: str | None, found: _Found | None, env: Mapping[str, str]) -> tuple[str, int]:
    """Where node 0 listens.

    Raises:
        UsageError: it is not known, is no ``HOST:PORT``, or is a loopback address, which no other
            node reaches.
    """
    if text is not None:
        host, port = parse_master(text)
    elif found is not None and found.host:
        host, port = found.host, found.port or DEFAULT_PORT
    elif env.get("MASTER_ADDR"):
        host, port = env["MASTER_ADDR"], _port(env, "MASTER_PORT") or DEFAULT_PORT
    else:
        raise UsageError(
            "several nodes need --master HOST:PORT: an address of node 0 that the others reach",
            hint="for example --master 10.0.0.1:29500, the same on every node",
        )
    if is_loopback(host):
        raise UsageError(
            f"--master {host}: a loopback address, which other nodes do not reach",
            hint="use node 0's address in the network of the nodes (`ip -brief address`)",
        )
    return host, port


def _from_torchrun(env: Mapping[str, str]) -> _Found | None:
    """``PET_*``: what torchrun reads, as Kubeflow's trainer sets it in every pod."""
    text = env.get("PET_NNODES")
    if not text:
        return None
    if not _WHOLE.fullmatch(text):
        raise UsageError(
            f"PET_NNODES={text[:_MAX_SHOWN]}: expected a whole number",
            hint="a sweep needs a fixed number of nodes",
        )
    rank, port = _number(env, "PET_NODE_RANK"), _port(env, "PET_MASTER_PORT")
    return _Found(_TORCHRUN_VARIABLES, int(text), rank, env.get("PET_MASTER_ADDR"), port)


def _from_slurm(env: Mapping[str, str]) -> _Found | None:
    """A Slurm step (``srun``) with one task on each node. A batch script by itself is no step."""
    nodes = _number(env, "SLURM_STEP_NUM_NODES")
    if nodes is None or not env.get("SLURM_STEP_ID"):
        return None
    tasks = _number(env, "SLURM_STEP_NUM_TASKS")
    if nodes > 1 and tasks != nodes:
        raise UsageError(
            f"SLURM_STEP_NUM_TASKS={tasks} on {nodes} nodes: expected one task a node",
            hint="srun --ntasks-per-node=1 torchscale …",
        )
    job = _number(env, "SLURM_JOB_ID") or 0
    first, count = _SLURM_PORTS
    return _Found(
        "SLURM_*",
        nodes,
        _number(env, "SLURM_NODEID"),
        first_host(env.get("SLURM_STEP_NODELIST", "")),
        first + job % count,
    )


def first_host(nodelist: str) -> str | None:
    """The first host of a list as Slurm writes it: ``gpu[03-05,9]-ib,login1`` → ``gpu03-ib``;
    ``None`` without any."""
    match = _FIRST_HOST.match(nodelist.strip())
    if match is None:
        return None
    return f"{match[1]}{match[2] or ''}{match[3] or ''}"


def _from_skypilot(env: Mapping[str, str]) -> _Found | None:
    nodes = _number(env, "SKYPILOT_NUM_NODES")
    if nodes is None:
        return None
    addresses = env.get("SKYPILOT_NODE_IPS", "").split()
    return _Found(
        "SKYPILOT_*", nodes, _number(env, "SKYPILOT_NODE_RANK"), addresses[0] if addresses else None
    )


def _from_open_mpi(env: Mapping[str, str]) -> _Found | None:
    """``mpirun`` with one process on each node."""
    size = _number(env, "OMPI_COMM_WORLD_SIZE")
    if size is None:
        return None
    local = _number(env, "OMPI_COMM_WORLD_LOCAL_SIZE")
    if size > 1 and local != 1:
        raise UsageError(
            f"OMPI_COMM_WORLD_LOCAL_SIZE={local}: expected one process a node",
            hint="mpirun --map-by ppr:1:node torchscale …",
        )
    return _Found("OMPI_*", size, _number(env, "OMPI_COMM_WORLD_RANK"))


_READERS: tuple[Callable[[Mapping[str, str]], _Found | None], ...] = (
    _from_torchrun,
    _from_slurm,
    _from_skypilot,
    _from_open_mpi,
)


def _number(env: Mapping[str, str], name: str) -> int | None:
    """
    Raises:
        UsageError: the variable is set to something else than a whole number.
    """
    text = env.get(name, "").strip()
    if not text:
        return None
    if not _WHOLE.fullmatch(text):
        raise UsageError(f"{name}={text[:_MAX_SHOWN]}: expected a whole number")
    return int(text)


_WHOLE = re.compile("[0-9]{1,18}")
"""Not ``str.isdigit``, which takes superscripts too: :func:`int` refuses these, and 5,000
digits."""
_MAX_SHOWN = 80
"""Characters of a variable in a message."""


def _port(env: Mapping[str, str], name: str) -> int | None:
    """
    Raises:
        UsageError: the variable is set to something else than a port.
    """
    port = _number(env, name)
    if port is not None and port > LAST_PORT:
        raise UsageError(f"{name}={port}: expected a port up to {LAST_PORT}")
    return port
