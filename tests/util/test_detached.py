"""Processes that outlive the one that starts them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from torchscale.util.detached import start_detached


@pytest.mark.slow
def test_it_is_no_child_and_has_a_session_of_its_own(tmp_path: Path) -> None:
    left = tmp_path / "left"
    code = (
        "import os, sys; part = sys.argv[1] + '.part'; "
        "open(part, 'w').write(f'{os.getppid()} {os.getsid(0)}'); os.rename(part, sys.argv[1])"
    )
    start_detached([sys.executable, "-c", code, str(left)])
    deadline = time.monotonic() + 30
    while not left.exists() and time.monotonic() < deadline:
        time.sleep(0.05)

    parent, session = map(int, left.read_text().split())
    assert parent != os.getpid()
    assert session != os.getsid(0)
