"""``python -m torchscale.worker.probe DIRECTORY [SCRATCH SECONDS]`` prints the node's facts as JSON, one
line per group of facts. With an empty directory for temporary files and a time limit, the last line
has an all-reduce over gloo too, where torch can be imported and cannot use CUDA.

Each line holds all facts so far, the last one all of them: facts found before a crash or a hang are
kept.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from torchscale.schema.node.probe import NodeFacts
from torchscale.worker.answers import open_answers
from torchscale.worker.probe.collective import check_over_gloo
from torchscale.worker.probe.node import probe


def main(arguments: Sequence[str]) -> None:
    """Print each line as soon as its facts are there."""
    answers, facts = open_answers(), NodeFacts()
    for facts in probe(Path(arguments[0] if arguments else os.curdir)):
        answers.write(facts.model_dump_json() + "\n")
    software = facts.software
    if len(arguments) < 2 or software is None or software.torch is None or software.cuda_available:
        return
    collective = check_over_gloo(Path(arguments[1]), float(arguments[2]))
    answers.write(facts.model_copy(update={"collective": collective}).model_dump_json() + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
