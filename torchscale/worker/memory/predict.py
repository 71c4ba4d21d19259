"""``python -m torchscale.worker.memory.predict`` predicts the memory of training cells, given as JSON on
its standard input, without running them.

Prints one line of JSON per cell, in order: the prediction, or ``problem`` with the reason.
"""

from __future__ import annotations

import json
import sys

from pydantic import TypeAdapter

from torchscale.schema.cells.training import TrainingCell
from torchscale.worker.answers import open_answers
from torchscale.worker.compiler import import_compiler


def main() -> None:
    """Predict each cell of the file and print its line at once, so that a timeout loses only the
    rest."""
    import_compiler()
    from torchscale.worker.memory.predicted_memory import (  # noqa: PLC0415 - after the compiler
        predict_memory,
    )

    answers = open_answers()
    for cell in TypeAdapter(list[TrainingCell]).validate_json(sys.stdin.buffer.read()):
        try:
            line = predict_memory(cell).model_dump_json()
        except Exception as error:  # noqa: BLE001 - whatever a user's model raises there, the others must be predicted
            line = json.dumps(
                {"problem": f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"}
            )
        answers.write(line + "\n")


if __name__ == "__main__":
    main()
