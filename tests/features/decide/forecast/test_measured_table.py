"""Tables from anywhere: what is read, and one line for everything that is wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchscale.errors import UsageError
from torchscale.features.decide.forecast.measured_table import read_table


def table(path: Path, *lines: str) -> Path:
    file = path / "points.csv"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def test_launches_of_a_count_are_one_point(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        "gpus,nodes,launch,throughput",
        "16,2,0,1900",
        "8,1,0,1000",
        "8,1,1,1010",
        "8,1,2,990",
    )
    (series,), notes = read_table(path)
    assert [(point.gpus, point.nodes, point.throughput) for point in series.points] == [
        (8, 1, 1000),
        (16, 2, 1900),
    ]
    assert len(series.points[0].launches) == 3
    assert (series.gpus_per_node, notes) == (8, [])


def test_without_nodes_eight_gpus_a_node_are_assumed_and_that_is_said(tmp_path: Path) -> None:
    path = table(tmp_path, "gpus,throughput", "8,1000", "16,1900")
    (series,), notes = read_table(path)
    assert [point.nodes for point in series.points] == [1, 2]
    assert "8 GPUs a node assumed" in notes[0]
    (series,), notes = read_table(path, gpus_per_node=4)
    assert ([point.nodes for point in series.points], notes) == ([2, 4], [])


def test_part_of_one_node_is_taken_as_part_of_eight_gpus(tmp_path: Path) -> None:
    path = table(tmp_path, "gpus,throughput,nodes", "1,100,1", "2,198,1", "4,390,1")
    (series,), notes = read_table(path)
    assert series.gpus_per_node == 8
    assert "8 GPUs a node are assumed" in notes[0]
    (series,), notes = read_table(path, gpus_per_node=4)
    assert (series.gpus_per_node, notes) == (4, [])


def test_a_unit_per_gpu_is_multiplied_and_other_columns_are_ignored(tmp_path: Path) -> None:
    path = table(
        tmp_path, "model,gpus,throughput,unit", "bert,8,100,tokens/s/GPU", "bert,16,95,tokens/s/GPU"
    )
    (series,), _ = read_table(path)
    assert [point.throughput for point in series.points] == [800, 1520]
    assert series.unit == "tokens/s"


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_columns_are_separated_by_commas_semicolons_or_tabs(tmp_path: Path, separator: str) -> None:
    (series,), _ = read_table(
        table(
            tmp_path,
            separator.join(["gpus", "throughput"]),
            f"8{separator}100.5",
            f"16{separator}190",
        )
    )
    assert [point.throughput for point in series.points] == [100.5, 190]


@pytest.mark.parametrize(
    ("unit", "expected", "factor"),
    [
        ("samples/s/device", "samples/s", 8),
        ("images per second per GPU", "images per second", 8),
        ("tokens/GPU/s", "tokens/s", 8),
        ("minidocuments/s", "minidocuments/s", 1),
    ],
)
def test_units(tmp_path: Path, unit: str, expected: str, factor: int) -> None:
    (series,), _ = read_table(
        table(tmp_path, "gpus,throughput,unit", f"8,100,{unit}", f"16,95,{unit}")
    )
    assert (series.unit, series.points[0].throughput) == (expected, 100 * factor)


def test_work_of_a_step_and_several_series(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        "series,gpus,throughput,samples",
        "a,8,1000,256",
        "a,16,1900,512",
        "b,8,10,64",
        "b,16,19,128",
        "c,8,5,8",
    )
    series, _ = read_table(path)
    assert [one.name for one in series] == ["a", "b", "c"]
    assert [point.work for point in series[0].points] == [256, 512]
    assert series[0].unit == "samples/s"
    assert len(series[2].points) == 1


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["gpus,rate", "8,1000"], "no column throughput"),
        (["gpus,throughput"], "no measurements"),
        ([""], "no measurements"),
        (["gpus,throughput,gpus", "8,1,8"], "two columns 'gpus'"),
        (["gpus,throughput", "8,1000"], "one point (8 GPUs)"),
        (
            ["gpus,throughput", "8,1000", "16,-5"],
            "line 3: throughput '-5': expected a number above 0",
        ),
        (["gpus,throughput", "8,1000", "16,nan"], "line 3: throughput 'nan'"),
        (["gpus,throughput", "8,1000", "16,inf"], "line 3: throughput 'inf': expected at most"),
        (["gpus,throughput", "8,1000", '16,"1,900"'], "line 3: throughput '1,900'"),
        (["gpus;throughput", "8;1000,5", "16;1900,5"], "line 2: throughput '1000,5'"),
        (
            ["gpus,throughput,unit", "8,100,ms", "16,101,ms"],
            "line 2: unit 'ms': expected a rate per second",
        ),
        (["gpus,throughput,unit", "8,100,s/step", "16,101,s/step"], "line 2: unit 's/step'"),
        (
            ["gpus,throughput,unit", "8,100,tokens per minute", "16,190,tokens per minute"],
            "expected a rate per second",
        ),
        (["gpus,throughput", "8,1000", "16,0"], "line 3: throughput '0'"),
        (["gpus,throughput", "8,1000", "16,"], "line 3: throughput is empty"),
        (["gpus,throughput", "8,1000", ",1900"], "line 3: gpus is empty"),
        (["gpus,throughput", "8,1000", "16,1900 samples/s"], "line 3: throughput '1900 samples/s'"),
        (["gpus,throughput", "8,1000", "16,1_900"], "line 3: throughput '1_900'"),
        (["gpus,throughput", "8,1000", "16"], "line 3: 1 values, but the header names 2 columns"),
        (
            ["gpus,throughput", "8,1000", "12.5,1900"],
            "line 3: gpus '12.5': expected a whole number",
        ),
        (["gpus,throughput", "8,1000", "0,1900"], "line 3: gpus '0'"),
        (
            ["gpus,throughput", "8,1000", "99999999,1900"],
            "line 3: gpus '99999999': expected a whole number from 1",
        ),
        (["gpus,throughput", "8,1000", "8,1010"], "line 3: repeats 8 GPUs of line 2"),
        (["gpus,throughput,nodes", "8,1000,1", "2,1900,4"], "line 3: nodes 4 exceeds gpus 2"),
        (["gpus,throughput,nodes", "8,1000,1", "16,1900,"], "nodes are given in some lines alone"),
        (["gpus,throughput,nodes", "8,1000,1", "8,900,2"], "8 GPUs on several counts of nodes"),
        (["gpus,throughput,unit", "8,1000,samples/s", "16,1900,tokens/s"], "units are mixed"),
        (["gpus,throughput,samples,tokens", "8,1000,1,2", "16,1900,1,2"], "samples and tokens"),
        (["gpus,throughput,samples", "8,1000,1", "16,1900,"], "given in some lines alone"),
        (["gpus,throughput,link", "8,1000,ib-ndr", "16,1900,ib-hdr"], "links are mixed"),
        (["gpus,throughput", '8,"1000'], "not CSV"),
        (
            ["gpus,throughput", *(f"{number},{number}" for number in range(1, 10_050))],
            "more than 10,000",
        ),
    ],
)
def test_a_wrong_table_is_one_line(tmp_path: Path, lines: list[str], expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_table(table(tmp_path, *lines))
    assert expected in caught.value.message
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 400


def test_what_is_no_table_is_one_line(tmp_path: Path) -> None:
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"gpus,throughput\n\xff\xfe\x00")
    large = tmp_path / "large.csv"
    with large.open("wb") as file:
        file.truncate(17 << 20)
    for path, expected in ((binary, "UTF-8"), (large, "larger than 16 MiB"), (tmp_path, "not a regular file"),
                           (tmp_path / "none.csv", "No such file")):  # fmt: skip
        with pytest.raises(UsageError, match=expected):
            read_table(path)


def test_a_value_cannot_steer_the_terminal(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_table(table(tmp_path, "gpus,throughput", "8,1000", "16,\x1b[31m" + "9" * 500))
    assert "\x1b" not in caught.value.message
    assert len(caught.value.message) < 300


def test_more_gpus_on_a_node_than_it_has_are_an_error(tmp_path: Path) -> None:
    path = table(tmp_path, "gpus,throughput,nodes", "8,1000,1", "16,1900,2")
    with pytest.raises(UsageError, match="more than --gpus-per-node 4"):
        read_table(path, gpus_per_node=4)
