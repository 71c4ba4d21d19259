"""What importing torch's compiler leaves in TMPDIR."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

IMPORT = """
import os
import torch
from torchscale.worker.compiler import import_compiler
import_compiler()
torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)
made = [name for name in os.listdir(os.environ["TMPDIR"]) if "inductor" in name]
print(made, os.environ.get("TORCHINDUCTOR_CACHE_DIR"))
from torch._inductor.runtime.cache_dir_utils import cache_dir
print(cache_dir())
"""


@pytest.mark.slow
@pytest.mark.parametrize("of_user", [None, "kept/by/the/user"])
def test_the_cache_is_made_by_what_compiles_where_it_would_be(
    tmp_path: Path, of_user: str | None
) -> None:
    variables = {
        name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"
    }
    variables["TMPDIR"] = str(tmp_path)
    if of_user is not None:
        variables["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path / of_user)
    done = subprocess.run(
        [sys.executable, "-c", IMPORT],
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    after_import, cache = done.stdout.splitlines()
    if of_user is None:
        assert after_import == "[] None"
        assert Path(cache).parent == tmp_path
        assert Path(cache).name.startswith("torchinductor_")
    else:
        assert cache == str(tmp_path / of_user)
    assert Path(cache).is_dir()
