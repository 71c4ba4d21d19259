"""``validate`` and ``measure collectives`` over several nodes: the program on every node of network
namespaces."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests import network
from tests.integration.conftest import Program

pytestmark = pytest.mark.integration

TOKEN = "correct horse battery staple"  # noqa: S105 - of these tests
PORT = 29531
END_SECONDS = 170


def run_on_all(
    program: Program, cluster: network.Cluster, command: str, *options: str
) -> list[tuple[int, str, str]]:
    """Run a command on all nodes at once. Returns exit code, output and messages of each."""
    running = []
    try:
        for node in cluster.nodes:
            directory = program.directory / node.hostname
            directory.mkdir(exist_ok=True)
            master = f"{cluster.nodes[0].address}:{PORT}"
            place = [
                "--nnodes",
                str(len(cluster.nodes)),
                "--node-rank",
                str(node.number),
                "--master",
                master,
            ]
            argv = program.argv(*command.split(), *place, *options)
            env = {**program.env(), "TORCHSCALE_TOKEN": TOKEN, "TMPDIR": str(directory)}
            with (directory / "out").open("w") as out, (directory / "err").open("w") as err:
                running.append(
                    subprocess.Popen(
                        node.argv(*argv), cwd=directory, env=env, stdout=out, stderr=err
                    )
                )
        codes = [process.wait(END_SECONDS) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait(END_SECONDS)
    outputs = [(program.directory / node.hostname) for node in cluster.nodes]
    return [
        (code, (folder / "out").read_text(), (folder / "err").read_text())
        for code, folder in zip(codes, outputs, strict=True)
    ]


def test_two_nodes_are_checked_together(program: Program) -> None:
    with network.cluster(2) as cluster:
        first, second = run_on_all(program, cluster, "validate", "--pairwise", "--json")
    content = json.loads(first[1])
    assert (first[0], second[0]) == (0 if content["fit"] else 1,) * 2, first[2] + second[2]
    assert [(node["hostname"], node["error"]) for node in content["nodes"]] == [
        ("n0", ""),
        ("n1", ""),
    ]
    assert all(node["validation"]["checks"] for node in content["nodes"])
    assert (content["collective"]["world_size"], content["collective"]["error"]) == (2, None)
    assert content["collective"]["wrong_elements"] == 0
    assert content["pairwise"]["status"] == "cannot_tell"
    assert [len(pair["seconds"]) for pair in content["pairwise"]["pairs"]] == [5]
    assert program.leftovers() == []


def test_collectives_over_two_nodes(program: Program) -> None:
    sizes = (
        "--op",
        "all_reduce",
        "-b",
        "1KiB",
        "-e",
        "4KiB",
        "--iters",
        "3",
        "-w",
        "1",
        "--device",
        "cpu",
    )
    with network.cluster(2) as cluster:
        first, second = run_on_all(program, cluster, "measure collectives", *sizes, "--json")
    assert (first[0], second[0]) == (0, 0), first[2] + second[2]
    (sweep,) = json.loads(first[1])
    assert sweep["hosts"] == ["n0", "n1"]
    (curve,) = sweep["figures"]["curves"]
    assert [point["payload_bytes"] for point in curve["points"]] == [1024, 2048, 4096]
    assert not any(point["wrong_elements"] for point in curve["points"])
    assert list((program.directory / "n0").glob("results/collectives-*/experiment.json"))
    assert not (program.directory / "n1" / "results").exists()
    assert program.leftovers() == []


@pytest.mark.campaign
def test_a_slow_link_is_named_as_a_link(program: Program) -> None:
    with network.cluster(4) as cluster:
        for node in cluster.nodes:
            cluster.shape(node, "200mbit")
        cluster.shape_link(cluster.nodes[1], cluster.nodes[2], "60mbit", others="200mbit")
        first, *others = run_on_all(program, cluster, "validate", "--pairwise", "--json")
    assert [first[0], *(other[0] for other in others)] == [1] * 4, first[2]
    pairwise = json.loads(first[1])["pairwise"]
    assert pairwise["status"] == "bad", pairwise["verdict"]
    assert [link["nodes"] for link in pairwise["links"] if link["is_bad"]] == [[1, 2]]
    assert not any(node["is_bad"] for node in pairwise["nodes"])


@pytest.mark.campaign
def test_a_slow_card_of_a_node_is_named_with_its_network_and_no_link(program: Program) -> None:
    with network.cluster(4, rails=2) as cluster:
        for node in cluster.nodes:
            cluster.shape(node, "200mbit")
            cluster.shape(node, "60mbit" if node.number == 2 else "200mbit", rail=1)
        first, *others = run_on_all(program, cluster, "validate", "--pairwise", "--json")
    assert [first[0], *(other[0] for other in others)] == [1] * 4, first[2]
    content = json.loads(first[1])
    (further,) = content["rails"]
    assert (content["pairwise"]["network"], content["pairwise"]["status"]) == (
        "10.77.0.0/16",
        "none",
    )
    assert (further["network"], further["status"]) == ("10.78.0.0/16", "bad")
    (bad,) = (each for each in further["nodes"] if each["is_bad"])
    assert bad["nodes"] == [2]
    assert bad["action"] == "check its network card, cable and switch port"
    assert not any(link["is_bad"] for link in further["links"])
    assert "more time (network 10.78.0.0/16)" in content["verdict"]
