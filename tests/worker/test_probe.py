"""The probe as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from torchscale.schema.node.probe import NodeFacts


def test_a_broken_torch_is_a_fact_and_not_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise OSError('libcudart.so.12: cannot open shared object file')")
    done = subprocess.run(
        [sys.executable, "-m", "torchscale.worker.probe", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=tmp_path,
    )
    facts = NodeFacts.model_validate(json.loads(done.stdout.splitlines()[-1]))
    assert facts.software is not None
    assert facts.software.torch is None
    assert facts.software.torch_error == "OSError: libcudart.so.12: cannot open shared object file"
    assert facts.host is not None
