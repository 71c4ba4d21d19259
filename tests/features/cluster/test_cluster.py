"""Which node of which cluster this is, from options and from what schedulers set."""

from __future__ import annotations

import pytest

from torchscale.errors import UsageError
from torchscale.features.cluster.cluster import (
    Cluster,
    find_cluster,
    first_host,
)
from torchscale.measure.nodes import COUNT_VARIABLES, NodeOptions

NONE = NodeOptions()
TORCHRUN = {
    "PET_NNODES": "3",
    "PET_NODE_RANK": "2",
    "PET_MASTER_ADDR": "job-node-0-0.job",
    "PET_MASTER_PORT": "29400",
}
SLURM = {
    "SLURM_JOB_ID": "20007",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_NODES": "4",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "gpu[03-05],login1",
    "SLURM_NODEID": "1",
}
SKYPILOT = {
    "SKYPILOT_NUM_NODES": "2",
    "SKYPILOT_NODE_RANK": "0",
    "SKYPILOT_NODE_IPS": "10.0.0.4\n10.0.0.5",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
    "OMPI_COMM_WORLD_RANK": "1",
    "MASTER_ADDR": "10.0.0.4",
    "MASTER_PORT": "3000",
}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (TORCHRUN, Cluster(3, 2, "job-node-0-0.job", 29400, "PET_*")),
        (SLURM, Cluster(4, 1, "gpu03", 20007, "SLURM_*")),
        (SKYPILOT, Cluster(2, 0, "10.0.0.4", 29500, "SKYPILOT_*")),
        (OPEN_MPI, Cluster(2, 1, "10.0.0.4", 3000, "OMPI_*")),
    ],
)
def test_an_environment_describes_the_cluster(env: dict[str, str], expected: Cluster) -> None:
    assert find_cluster(NONE, None, env) == expected
    assert find_cluster(NodeOptions(nodes=1), None, env) is None  # one node was asked for


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"PET_NNODES": "1", "PET_NODE_RANK": "0"},
        {
            "SLURM_JOB_ID": "7",
            "SLURM_NNODES": "4",
            "SLURM_NODEID": "0",
        },  # a batch script, which is no step
    ],
)
def test_one_node_is_no_cluster(env: dict[str, str]) -> None:
    assert find_cluster(NONE, None, env) is None


@pytest.mark.parametrize("env", [TORCHRUN, SLURM, SKYPILOT, OPEN_MPI])
def test_without_a_number_of_nodes_nothing_is_asked(env: dict[str, str]) -> None:
    (number,) = env.keys() & set(COUNT_VARIABLES)
    rest = {name: value for name, value in env.items() if name != number}
    assert find_cluster(NONE, None, rest) is None


def test_options_win_over_the_environment() -> None:
    given = NodeOptions(nodes=2, node_rank=1, master="10.1.1.1:4000")
    assert find_cluster(given, None, {}) == Cluster(2, 1, "10.1.1.1", 4000)
    assert find_cluster(given, None, TORCHRUN) == Cluster(2, 1, "10.1.1.1", 4000)
    moved = find_cluster(NodeOptions(master="10.1.1.1:4000"), None, TORCHRUN)
    assert moved == Cluster(3, 2, "10.1.1.1", 4000, "PET_*")
    assert find_cluster(NodeOptions(node_rank=0, master="a"), 2, {}) == Cluster(2, 0, "a", 29500)


@pytest.mark.parametrize(
    ("options", "nodes", "env", "message"),
    [
        (NodeOptions(nodes=2), None, {}, "which one is this"),
        (NONE, 2, {}, "which one is this"),
        (NodeOptions(nodes=2, node_rank=0), None, {}, "--master HOST:PORT"),
        (
            NodeOptions(nodes=2, node_rank=2, master="a"),
            None,
            {},
            "--node-rank 2: expected 0 to 1",
        ),
        (
            NodeOptions(nodes=2, node_rank=-1, master="a"),
            None,
            {},
            "--node-rank -1: expected 0 to 1",
        ),
        (NodeOptions(nodes=0, node_rank=0, master="a"), None, {}, "--nnodes 0"),
        (NodeOptions(nodes=9999, node_rank=0, master="a"), None, {}, "--nnodes 9999"),
        (NodeOptions(nodes=2, node_rank=0, master="localhost:1"), None, {}, "loopback"),
        (NodeOptions(nodes=2, node_rank=1, master="127.0.0.9:1"), None, {}, "loopback"),
        (NodeOptions(nodes=2, node_rank=1, master="[::1]:1"), None, {}, "loopback"),
        (NodeOptions(node_rank=1), None, {}, "--node-rank 1 is for several nodes"),
        (NodeOptions(nodes=1, master="a:1"), None, {}, "--master a:1 is for several nodes"),
        (NodeOptions(nodes=2), None, TORCHRUN, "PET_* says 3"),
        (NONE, None, {**TORCHRUN, "PET_NNODES": "1:4"}, "PET_NNODES=1:4"),
        (NONE, None, {**TORCHRUN, "PET_NODE_RANK": "x"}, "PET_NODE_RANK=x"),
        (NONE, None, {**TORCHRUN, "PET_NODE_RANK": "-1"}, "PET_NODE_RANK=-1"),
        (NONE, None, {**TORCHRUN, "PET_NODE_RANK": "\u00b2"}, "PET_NODE_RANK=\u00b2: expected a"),
        (NONE, None, {**TORCHRUN, "PET_NNODES": "\u00b2"}, "PET_NNODES=\u00b2: expected a whole"),
        (NONE, None, {**TORCHRUN, "PET_NNODES": "9" * 5000}, "99: expected a whole number"),
        (NONE, None, {**TORCHRUN, "PET_NNODES": "9" * 18}, "999: expected 1 to 1024"),
        (NONE, None, {**TORCHRUN, "PET_MASTER_PORT": "65536"}, "PET_MASTER_PORT=65536: expected"),
        (
            NodeOptions(nodes=2, node_rank=1),
            None,
            {"MASTER_ADDR": "n0", "MASTER_PORT": "99999"},
            "MASTER_PORT=99999: expected a port up to 65535",
        ),
        (NONE, None, {**SLURM, "SLURM_JOB_ID": "9" * 5000}, "SLURM_JOB_ID=99"),
        (NONE, None, {**SLURM, "SLURM_NODEID": "9"}, "--node-rank 9: expected 0 to "),
        (NONE, None, {**SLURM, "SLURM_STEP_NUM_TASKS": "8"}, "one task a node"),
        (NONE, None, {**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, "one process a node"),
    ],
)
def test_what_is_missing_or_wrong_is_named(
    options: NodeOptions, nodes: int | None, env: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError) as raised:
        find_cluster(options, nodes, env)
    assert message in f"{raised.value.message} {raised.value.hint}"


@pytest.mark.parametrize(
    ("nodelist", "host"),
    [
        ("n1", "n1"),
        ("n[1-2]", "n1"),
        ("gpu[03-05,9]-ib,login1", "gpu03-ib"),
        ("a,b[1-2]", "a"),
        ("", None),
    ],
)
def test_the_first_host_of_a_slurm_list(nodelist: str, host: str | None) -> None:
    assert first_host(nodelist) == host
