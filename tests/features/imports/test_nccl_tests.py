"""Command lines of nccl-tests as sweeps of collectives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.imports.foreign import loaded, translate
from torchscale.config.experiment import Experiment
from torchscale.features.imports.nccl_tests import is_nccl_tests


def sweep(tmp_path: Path, command: str) -> Experiment:
    return loaded(tmp_path, translate(tmp_path, command, "run.sh"))


def test_flags_are_keys_of_collectives(tmp_path: Path) -> None:
    translation = translate(
        tmp_path,
        "mpirun -np 4 ./all_reduce_perf -b 8 -e 64M -f 2 -g 2 -d half -n 50 -w 10 -c 1 -Q 3\n",
        "run.sh",
    )
    assert translation.data == {
        "measure": ["collectives"],
        "collectives": {
            "operations": ["all_reduce"],
            "min_bytes": 8,
            "max_bytes": "64M",
            "iterations": 50,
            "warmup": 10,
            "dtypes": ["fp16"],
        },
        "gpu_counts": [8],
    }
    assert translation.left_out["stepfactor"] == "sizes double, there is no step factor"
    assert translation.left_out["check"] == "every element of every result is checked"
    assert translation.left_out["Q"] == "has no place here"
    assert not translation.missing


def test_a_script_with_comments_and_continued_lines(tmp_path: Path) -> None:
    experiment = sweep(
        tmp_path,
        "#!/bin/bash\n# all_gather_perf is next\nexport A=1\n"
        "/opt/nccl-tests/build/reduce_scatter_perf --minbytes=1M \\\n  -e4M -t 2 -g 4 | tee log\n",
    )
    assert experiment.collectives.operations == ("reduce_scatter",)
    assert experiment.collectives.min_bytes == 1 << 20
    assert experiment.collectives.max_bytes == 4 << 20
    assert experiment.gpu_counts == (8,)


def test_sizes_that_are_not_set_are_those_of_nccl_tests(tmp_path: Path) -> None:
    translation = translate(tmp_path, "alltoall_perf -g 8\n", "run.sh")
    experiment = loaded(tmp_path, translation)
    assert experiment.collectives.operations == ("all_to_all",)
    assert experiment.collectives.min_bytes == experiment.collectives.max_bytes == 32 << 20
    assert "minbytes is not set: 32M, the suite's own default" in translation.notes


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("all_gather", "all_gather"),
        ("reduce", "reduce"),
        ("broadcast", "broadcast"),
        ("sendrecv", "send_recv"),
    ],
)
def test_every_program_has_its_collective(tmp_path: Path, name: str, here: str) -> None:
    assert sweep(tmp_path, f"{name}_perf -b 8 -e 8 -g 2\n").collectives.operations == (here,)


def test_what_is_not_measured_here_is_said(tmp_path: Path) -> None:
    translation = translate(tmp_path, "gather_perf -b 8 -e 8 -g 2 -d fp8_e4m3 -o max\n", "run.sh")
    assert translation.left_out["gather_perf"] == "no such collective here"
    assert translation.left_out["datatype"].startswith("fp8_e4m3: see ")
    assert translation.left_out["op"] == "reductions are sums, there is no choice"


def test_a_text_that_only_names_it_is_no_command() -> None:
    assert not is_nccl_tests("# ./all_reduce_perf -b 8\n")
    assert not is_nccl_tests("models: [resnet50]\n")
