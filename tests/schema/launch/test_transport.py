from __future__ import annotations

from torchscale.schema.launch.transport import Transport, Way, WayKind, of_launches


def verbs(*devices: str, link: str | None = None) -> Way:
    return Way(kind=WayKind.IB, name="NET/IB", link=link, gdr=True, devices=devices)


def test_many_adapters_are_counted() -> None:
    assert verbs(*(f"mlx5_{number}" for number in range(5))).text == (
        "NET/IB with GDR (5 adapters, mlx5_0 to mlx5_4)"
    )


def test_what_some_launch_knows_of_a_way_counts_for_all() -> None:
    first = Transport(ways=(verbs("mlx5_0", link="RoCE"),), nvls="available", source="the log")
    second = Transport(ways=(verbs("mlx5_1"), Way(kind=WayKind.SHM, name="SHM")), nvls="used")
    merged = of_launches([None, Transport(unknown="no line"), first, second])
    assert merged is not None
    assert merged.text == "NET/IB over RoCE with GDR (mlx5_0, mlx5_1) + SHM"
    assert (merged.nvls, merged.source) == ("used", "the log")


def test_launches_that_know_nothing_keep_the_reason() -> None:
    merged = of_launches([None, Transport(unknown="no line of NCCL")])
    assert merged is not None
    assert merged.text == "not known: no line of NCCL"
    assert of_launches([None]) is None
