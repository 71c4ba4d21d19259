"""The process of a rank, between launches and when it imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_rank_whose_group_was_removed_leaves(tmp_path: Path) -> None:
    """Of a launcher that was killed: nobody bounds the wait for its next launch."""
    program = (
        "import sys; from pathlib import Path; from torchscale.worker.launcher.rank_process import "
        "group_launches; "
    )
    program += "print(list(group_launches(Path(sys.argv[1]))))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "gone")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "[]\n"


OPTIMIZERS = """
import sys
import torch
from torchscale.worker.compiler import import_compiler
import_compiler()
before = set(sys.modules)
for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
    model = torch.nn.Linear(2, 2)
    optimizer = kind(model.parameters(), lr=0.1, fused=True)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
print(len(set(sys.modules) - before))
"""


@pytest.mark.slow
def test_forks_import_nothing_large_for_an_optimizer() -> None:
    """torch imports 800 modules when it makes the first one, which takes a second in every fork."""
    done = subprocess.run(
        [sys.executable, "-c", OPTIMIZERS], capture_output=True, text=True, timeout=120, check=True
    )
    assert int(done.stdout) < 20
