"""``python -m torchscale.worker.probe DIRECTORY`` prints the node's facts as JSON, one line per group
of facts.

Each line holds all facts so far, the last one all of them: facts found before a crash or a hang are
kept.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from torchscale.worker.probe.node import probe

if __name__ == "__main__":
    for facts in probe(Path(sys.argv[1] if len(sys.argv) > 1 else os.curdir)):
        sys.stdout.write(facts.model_dump_json() + "\n")
        sys.stdout.flush()
