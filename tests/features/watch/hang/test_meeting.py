"""A torchrun that waits for those of other nodes, by its stack and command line."""

from __future__ import annotations

import os

import pytest

from torchscale.features.watch.hang import meeting as module
from torchscale.features.watch.hang.joining import Meeting
from torchscale.features.watch.hang.meeting import meeting_from, meeting_of
from torchscale.schema.launch.hang import StackFrame

WAITING = StackFrame(
    file="/x/site-packages/torch/distributed/elastic/agent/server/api.py",
    line=528,
    function="SimpleElasticAgent._rendezvous",
)


@pytest.mark.parametrize(
    ("words", "variables", "expected"),
    [
        (
            "--nnodes 2:4 --rdzv-backend c10d --rdzv-endpoint head:29400 train.py --nnodes 9",
            {},
            Meeting("head:29400", 2, 4),
        ),
        (
            "--nnodes=2 --node-rank=1 --master_addr=head --master-port 1234 train.py",
            {},
            Meeting("head:1234", 2, 2, None, 1),
        ),
        ("--nnodes 2 train.py", {}, Meeting("127.0.0.1:29500", 2, 2, None, 0)),
        (
            "--nproc-per-node 2 train.py",
            {"PET_NNODES": "2", "PET_RDZV_ENDPOINT": "head:1"},
            Meeting("head:1", 2, 2),
        ),
        ("--nnodes x --rdzv-endpoint h:1 train.py", {}, Meeting("h:1")),
    ],
)
def test_options_and_variables(words: str, variables: dict[str, str], expected: Meeting) -> None:
    assert meeting_from(["python", "/bin/torchrun", *words.split()], variables) == expected


def test_a_process_in_its_rendezvous(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "py_spy_stack", lambda pid: (WAITING,))
    assert meeting_of(os.getpid()) is not None
    monkeypatch.setattr(module, "py_spy_stack", lambda pid: ())
    assert meeting_of(os.getpid()) is None
