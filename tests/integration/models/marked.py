"""A training loop that marks itself as a CPU rank for nsys: ``marked.py STEPS [EXIT_CODE |
crash]``."""

from __future__ import annotations

import sys
import time

import nvtx


def main() -> None:
    """Train, and end as asked."""
    steps, ending = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "0"
    print("training begins", flush=True)
    for step in range(steps):
        nvtx.mark("torchscale.rank 0/1")
        with nvtx.annotate(f"torchscale.step {step}"), nvtx.annotate("torchscale.forward"):
            time.sleep(0.02)
    print("training is over", flush=True)
    if ending == "crash":
        raise ValueError("the loss is not finite")
    sys.exit(int(ending))


if __name__ == "__main__":
    main()
