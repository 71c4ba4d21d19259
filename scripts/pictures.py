"""Make the pictures of the README from real output: run the program and draw what it printed.

::

    .venv/bin/python scripts/pictures.py results/demo
    .venv/bin/python scripts/pictures.py results/demo --tutorial results/first results/slow

The argument is a run folder (``make demo`` writes one), and those of the tutorial's steps 3 and 5;
each needs its ``report.html``. Chromium takes the screenshots. It measures a pair for ``compare``,
which takes a few minutes: nothing else should run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
MODELS = Path(__file__).resolve().parent.parent / "tests" / "integration" / "models"
TRAINING = MODELS / "user_training.py"
"""A training loop with ``step_profiler``, whose second rank is 20 ms late."""
LATE = ("--rank", "1", "--place", "host", "--extra-ms", "6")
WATCHED = Path(__file__).resolve().parent.parent / "benchmarks" / "jobs" / "slow_rank.py"
"""A training loop that knows nothing of torchscale, whose second rank is 6 ms late."""
PAIR = """\
experiment_name: pair
models: ["slowed:build"]
batch_sizes: [32, 64]
gpu_counts: [1, 2]
device: cpu
launch: {threads_per_rank: 1}
benchmark: {preset: quick, max_seconds: 4}
"""
"""A network that does more work in every step if ``EXTRA_PRODUCTS`` is set."""
PAIR_LAUNCHES = 5
WIDTH = 120
MISTAKES = """\
experiment_name: ../scaling
models: [resnet5, bert-large]
batch_sizes: [64, 0, 1e3]
trainin: {precision: bf16}
training:
  learning_rate: 1e-4
"""
MATRIX = """\
models: ["resnet50", "bert-large"]
batch_sizes: [64, 128]
gpu_counts: [1, 2, 4, 8]
"""
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-sync",
]


def main() -> None:
    """Make all pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="run folder with its report.html")
    parser.add_argument(
        "--tutorial",
        type=Path,
        nargs=2,
        metavar=("FIRST", "SLOW"),
        help="run folders of the tutorial",
    )
    arguments = parser.parse_args()
    run = arguments.run.resolve()
    PICTURES.mkdir(exist_ok=True)
    photograph(run / "report.html", top="report", lost="lost")
    if arguments.tutorial is not None:
        first, slow = (folder.resolve() / "report.html" for folder in arguments.tutorial)
        photograph(first, top="tutorial-report")
        photograph(slow, lost="tutorial-straggler", part="details")
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        (place / "matrix.yaml").write_text(MATRIX)
        (place / "mistakes.yaml").write_text(MISTAKES)
        draw("validate", place, "validate")
        draw("plan", place, "benchmark", "matrix.yaml", "--dry-run")
        draw("mistakes", place, "benchmark", "mistakes.yaml")
        draw(
            "benchmark",
            place,
            "report",
            str(run),
            "--format",
            "terminal",
            shown=f"report results/{run.name} --format terminal",
        )
        torchrun = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
        ]
        draw(
            "profile",
            place,
            *("profile", "--duration", "3s", "--tool", "kineto", "--output-dir", "out", "--"),
            *(*torchrun, str(TRAINING), "0.02", "100000"),
            shown="profile --duration 3s -- torchrun --nproc-per-node 2 train.py",
        )
        draw(
            "watch",
            place,
            *("watch", "--output-dir", "job", "--"),
            *(*torchrun, str(WATCHED), "--strategy", "fsdp", *LATE, "--steps", "400"),
            shown="watch -- torchrun --nproc-per-node 2 train.py",
        )
        measure_pair(place)
        draw("compare", place, "compare", "results/before", "results/after")


def measure_pair(directory: Path) -> None:
    """Measure the same network without and with more work in every step, alternating."""
    (directory / "pair.yaml").write_text(PAIR)
    for repeats in range(1, PAIR_LAUNCHES + 1):
        for side, extra in (("before", 0), ("after", 12)):
            options = [
                f"--benchmark.repeats={repeats}",
                f"--launch.env.EXTRA_PRODUCTS={extra}",
                "--output-dir",
            ]
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "torchscale",
                    "benchmark",
                    "pair.yaml",
                    *options,
                    f"results/{side}",
                ],
                cwd=directory,
                capture_output=True,
                check=True,
                timeout=600,
                env={**os.environ, "PYTHONPATH": str(MODELS)},
            )


def draw(name: str, directory: Path, *arguments: str, shown: str | None = None) -> None:
    """Run torchscale with colours on and write the terminal output as ``name.svg``."""
    done = subprocess.run(
        [sys.executable, "-m", "torchscale", "--quiet", *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "TERM": "xterm-256color"},
    )
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115, PTH123
    console.print(f"$ torchscale {shown or ' '.join(arguments)}", style="bold", highlight=False)
    printed = done.stdout + done.stderr
    for argument in arguments:
        if "results/" in argument:  # as somebody types it who is where the run was made
            printed = printed.replace(argument, argument[argument.rindex("results/") :])
    console.print(Text.from_ansi(printed), soft_wrap=False)
    (PICTURES / f"{name}.svg").write_text(
        console.export_svg(title=f"torchscale {arguments[0]}", unique_id=name)
    )


def photograph(
    page: Path, *, top: str | None = None, lost: str | None = None, part: str = ".charts"
) -> None:
    """Write the top of the HTML report and a part of its section on lost time as pictures of these
    names."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=CHROMIUM_ARGUMENTS
        )
        view = browser.new_page(viewport={"width": 1280, "height": 1150})
        view.goto(page.as_uri())
        if top is not None:
            view.screenshot(path=str(PICTURES / f"{top}.png"))
        if lost is not None:
            view.evaluate(
                "dispatchEvent(new Event('beforeprint'))"
            )  # unfolds what the picture shows
            shown = view.locator(f"section[aria-labelledby=lost] {part}").first
            shown.screenshot(path=str(PICTURES / f"{lost}.png"))
        browser.close()


if __name__ == "__main__":
    main()
