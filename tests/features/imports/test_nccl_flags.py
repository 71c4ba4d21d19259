"""Flags of nccl-tests behind ``measure collectives``."""

from __future__ import annotations

import pytest

from torchscale.cli.other_tools import refuse_foreign_options
from torchscale.errors import UsageError


def refusal(line: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        refuse_foreign_options("measure collectives", line.split())
    assert caught.value.hint is not None
    assert "overrides are written --key.sub=value" in caught.value.hint
    assert "<redacted>" not in caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("line", "flag", "reason", "here"),
    [
        ("-b 8 -e 128M -f 2 -g 1", "-f", "no step factor", "-b 8 -e 128M"),
        ("-b8 -e128M -f2 -g8", "-f", "no step factor", "-b 8 -e 128M --gpus 8"),
        ("-f 2 -n 50 -w 9 -d half", "-f", "no step factor", "--iters 50 -w 9 -d fp16"),
        ("-i 1M -b 1M", "-i", "no fixed step", "-b 1M"),
        ("-t 4 -g 2", "-t", "there are no threads", "--gpus 8"),
        ("-c 1 --json", "-c", "every element of every result is checked", "--json"),
        ("-o sum", "-o", "reductions are sums", ""),
        ("--op max -b 8", "--op", "reductions are sums", "-b 8"),
        ("-G 1", "-G", "no CUDA graphs", ""),
        ("-N 5", "-N", "no repetition of a sweep", ""),
        ("--minbytes 8 --maxbytes 1G", "--minbytes", "--minbytes is --min-bytes", "--min-bytes 8"),
        ("--ngpus 8", "--ngpus", "--ngpus is --gpus", "--gpus 8"),
        ("--stepfactor=2", "--stepfactor", "no step factor", ""),
        ("-n 20 -g 8", "-n", "-n is --iters", "--iters 20 --gpus 8"),
    ],
)
def test_a_flag_answers_with_what_it_is_here(line: str, flag: str, reason: str, here: str) -> None:
    error = refusal(line)
    assert flag in error.message
    assert error.hint is not None
    assert reason in error.hint
    assert f"type: torchscale measure collectives {here}".strip() in error.hint


@pytest.mark.parametrize(
    "line",
    [
        "-b 8 -e 1M -d fp16 -w 2 --iters 5 -n 2",
        "-g 2",
        "-o results/all --op all_reduce,broadcast",
        "--collectives.min_bytes=8",
        "",
    ],
)
def test_its_own_options_stay(line: str) -> None:
    refuse_foreign_options("measure collectives", line.split())


def test_other_commands_have_other_flags() -> None:
    refuse_foreign_options("benchmark", ["-f", "2"])
