"""Cost of analyzing recordings of many ranks: torchscale and HolisticTraceAnalysis on the same files.

::

    python -m venv PEER && PEER/bin/pip install HolisticTraceAnalysis
    python benchmarks/recording_peer.py RECORDINGS PEER/bin/python
    python benchmarks/recording_peer.py RECORDINGS PEER/bin/python --ranks 8 32 64 --repeats 3

RECORDINGS as for ``recording_scale.py``, which makes the copies. Both are run as whole processes in
turns, on the same cores. HolisticTraceAnalysis reads the traces and makes the two tables that are
nearest to what ``profile analyze`` says: the time of each rank in compute, communication and idle,
and the overlap of communication with compute. It pairs no collectives over ranks, names no rank
that others wait for, and replays nothing. CPU time and memory are those of all processes.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from recording_scale import Cost, make_templates, measure, write_ranks

PEER = """
import logging, sys
logging.disable(logging.WARNING)
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_dir=sys.argv[1])
print(analysis.get_temporal_breakdown(visualize=False))
print(analysis.get_comm_comp_overlap(visualize=False))
"""


def main() -> None:
    """Measure both at each number of ranks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recordings", type=Path)
    parser.add_argument("peer", type=Path, help="Python that has HolisticTraceAnalysis")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 32, 64])
    parser.add_argument("--megabytes", type=float, default=3.1, help="of a rank's trace")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--scratch", type=Path, help="where the recordings are written")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as scratch:
        templates = make_templates(arguments.recordings, Path(scratch), arguments.megabytes)
        for ranks in arguments.ranks:
            directory = Path(scratch) / "ranks"
            write_ranks(templates, directory, ranks, jitter=False)
            ours = [sys.executable, "-m", "torchscale", "profile", "analyze", str(directory)]
            commands = {
                "torchscale": [*ours, "--json"],
                "HolisticTraceAnalysis": [str(arguments.peer), "-c", PEER, str(directory)],
            }
            costs: dict[str, list[Cost]] = {name: [] for name in commands}
            for _ in range(arguments.repeats):
                for name, argv in commands.items():
                    costs[name].append(measure(argv, arguments.cores))
            for name, found in costs.items():
                cost = min(found, key=lambda one: one.cpu_seconds)
                print(f"{ranks:>5} ranks, {name}: {cost}", flush=True)
            shutil.rmtree(directory)


if __name__ == "__main__":
    main()
