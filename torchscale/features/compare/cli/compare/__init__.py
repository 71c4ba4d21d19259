"""``torchscale compare``: faster, slower, or within noise?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from torchscale.cli.command import words_after_dashes
from torchscale.cli.options import Several
from torchscale.cli.output import TERMINAL, tell
from torchscale.cli.parameters import LOCAL, READS, READS_TEXT, argument, option
from torchscale.cli.parsing import members, share
from torchscale.cli.rendering import chosen_formats, refuse_two_documents
from torchscale.config.choices import Accept, CompareFormat, FailOn, Metric
from torchscale.errors import UsageError
from torchscale.features.compare.cli.compare.commands import (
    LaunchOptions,
    check_options,
    launched,
)
from torchscale.features.compare.cli.compare.keep import SaveOptions, refuse_without_save, save
from torchscale.features.compare.cli.compare.output import show, show_recordings
from torchscale.features.compare.cli.compare.peers import are_machines, refuse_rules, show_peers
from torchscale.features.compare.cli.compare.values import (
    chosen_fail_on,
    parse_accepted,
    parse_match_keys,
    sources_and_prices,
)
from torchscale.util.optional import optional


@dataclass(frozen=True)
class _RuleOptions:
    """What is compared, and what decides."""

    threshold: Annotated[
        str | None,
        option(
            "--threshold",
            "Smaller changes count as equal: 2% or 0.02. Default: the thresholds of a calibrated "
            "baseline (--calibrate), else 2%.",
        ),
    ] = None
    fail_on: Annotated[
        FailOn | None,
        option(
            "--fail-on",
            "What gives exit code 1. regression: something is worse, failed or was not "
            "measured, or there is no verdict and a loss of 25 % or more is not ruled out; unclear: "
            "also any unclear cell; never. Default: regression; with --cost never.",
        ),
    ] = None
    metrics: Annotated[
        Several,
        option(
            "--metric -m NAME,…",
            "What decides: throughput, step-p95, memory, energy, cost, busbw, compute, copy, "
            "save, load, stop, stop-async. Default: speed (throughput, busbw, compute, copy, "
            "save, load).",
        ),
    ] = None
    match: Annotated[
        list[str] | None,
        option(
            "--match KEYS",
            "Compare cells that are equal in these, whatever else differs: model, batch, "
            "global_batch, devices, precision, strategy, scaling, optimizer, data. With "
            "commas, or several times.",
        ),
    ] = None


@dataclass(frozen=True)
class _ReferenceOptions:
    """What the others are compared with."""

    reference: Annotated[
        str | None,
        option(
            "--reference",
            "Name of the side to compare with. Default: the first, or the oldest run.",
        ),
    ] = None
    against: Annotated[
        str | None,
        option(
            "--against WHICH",
            "Take the reference from earlier runs: last (the newest before A), main (the "
            "newest whose git branch is main or master), median-of-N (over the last N). A FILE or "
            "DIR with results of other machines: where this one lies among them.",
            **READS_TEXT,
        ),
    ] = None
    history: Annotated[
        Path | None,
        option(
            "--history FILE|DIR",
            "Where --against looks, and runs by name that are not here: a file of `torchscale "
            "history --db`, or a directory with run folders. Default of --against: the "
            "directory that holds A.",
            **READS,
        ),
    ] = None


def compare(
    context: typer.Context,
    sources: Annotated[
        list[str],
        argument(
            "A B [C ...]",
            "Runs by name or directory, a directory that holds several, record.json files, or "
            "baselines by file or name; with --why also two folders of recordings. A is the "
            "reference; of a directory of runs the oldest.",
            **READS_TEXT,
        ),
    ],
    why: Annotated[
        bool,
        option(
            "--why",
            "Split the difference of each training cell's mean step into parts that add up, "
            "with what changed beside it and the likeliest cause; of recordings also by "
            "operator.",
        ),
    ] = False,
    cost: Annotated[
        list[str] | None,
        option(
            "--cost PRICE",
            "Price of a device and hour: one for all sides, or one for each: --cost 3.00 5.50",
        ),
    ] = None,
    *,
    rules: _RuleOptions,
    earlier: _ReferenceOptions,
    launches: LaunchOptions,
    accept: Annotated[
        Several,
        option(
            "--accept WHAT,…",
            "Let pass: missing (a side measured less than the reference), unclear (all is "
            "unclear), flags (launches were contended or throttled), versions (devices, "
            "precisions or versions of torch differ), transport (data moved another way).",
        ),
    ] = None,
    formats: Annotated[
        Several,
        option(
            "--format -f NAME,…",
            "terminal, html, pdf, md, json. Default: by the suffix of --output, else terminal",
        ),
    ] = None,
    output: Annotated[
        str | None,
        option(
            "--output -o FILE",
            "File, or - for standard output. Default: comparison.<format> here; standard "
            "output for md or json alone",
            **LOCAL,
        ),
    ] = None,
    as_json: Annotated[bool, option("--json", "Print the comparison as JSON.")] = False,
    keep: SaveOptions,
) -> None:
    """Compare results cell by cell and overall, with 95 % intervals.

    Exit code 1 where something is worse, failed or was not measured, or there is no verdict and a
    loss of 25 % or more is not ruled out.

    The unit is the launch: measure with benchmark.repeats of 3 or 5. With fewer than 3 a side, a
    change is unclear.

    Commands after [bold]--[/bold], each in quotes, are launched by turns until the answer is clear;
    the mean step of torch.optim counts. The same command continues what was interrupted.

    [bold]Examples[/bold]

    [cyan]torchscale compare results/before results/after[/cyan]

    [cyan]torchscale compare --why results/before results/after[/cyan]

    [cyan]torchscale compare main results/new --threshold 3% --format md --output - >>
    $GITHUB_STEP_SUMMARY[/cyan]

    [cyan]torchscale compare results/a100 results/h100 --match model,global_batch --cost 3.00
    5.50[/cyan]

    [cyan]torchscale compare results --reference monday[/cyan]

    [cyan]torchscale compare results/nightly --save main && git add baselines/main.json[/cyan]

    [cyan]torchscale compare results/nightly --calibrate 20 --save main[/cyan]

    [cyan]torchscale compare results/new --against median-of-10 --history torchscale.sqlite[/cyan]

    [cyan]torchscale compare -- 'torchrun --nproc-per-node 8 a.py' 'torchrun --nproc-per-node 8
    b.py'[/cyan]

    [cyan]torchscale compare --over mb=10,25,50 -- torchrun … train.py --bucket {mb}[/cyan]
    """
    from torchscale.features.compare import compare as run  # noqa: PLC0415 - `--help` does not need it
    from torchscale.features.compare import recordings as recorded  # noqa: PLC0415
    from torchscale.features.compare.gate import gate  # noqa: PLC0415

    words = words_after_dashes(context)
    check_options(context, words)
    if words is not None and len(sources) > len(words):
        raise UsageError(
            f"{sources[0]} before -- is a result, and -- is followed by commands",
            hint="compare their folders with it afterwards",
        )
    if keep.save is not None:
        raise typer.Exit(save(context, keep.save, sources, keep, rules.metrics, as_json=as_json))
    refuse_without_save(context)
    accepted = parse_accepted(accept)
    gated_by = chosen_fail_on(rules.fail_on, with_prices=bool(cost))
    if Accept.UNCLEAR in accepted and gated_by is FailOn.UNCLEAR:
        raise UsageError(
            f"--accept unclear contradicts --fail-on {gated_by.value}", hint="leave one of them out"
        )
    refuse_two_documents("--output", output, as_json=as_json)
    chosen = chosen_formats(
        members("--format", formats, CompareFormat), CompareFormat.TERMINAL, output
    )
    chosen_rules = run.Rules(
        optional(partial(share, "--threshold"), rules.threshold),
        tuple(members("--metric", rules.metrics, Metric)),
        Accept.VERSIONS in accepted,
        parse_match_keys(rules.match),
        Accept.FLAGS in accepted,
        earlier.against,
        earlier.history,
        why,
    )
    if words is not None:
        comparison = launched(context, words, launches, chosen_rules)
    else:
        paths, prices = sources_and_prices(sources, cost or [])
        if earlier.against is not None and are_machines(earlier.against, keep.baselines):
            refuse_rules(context, earlier.against)
            show_peers(
                paths, earlier.against, rules.metrics, keep.baselines, chosen, output, as_json
            )
            return
        if why and recorded.are_recordings(paths):
            show_recordings(paths[0], paths[1], chosen, output, as_json=as_json)
            return
        comparison = run.compare_sources(
            paths,
            chosen_rules,
            reference=earlier.reference,
            prices=prices,
            baselines=keep.baselines,
            observer=TERMINAL,
        )
    show(comparison, chosen, output, as_json=as_json)
    gated = gate(
        comparison,
        gated_by,
        allow_missing=Accept.MISSING in accepted,
        allow_unclear=Accept.UNCLEAR in accepted,
        allow_transport=Accept.TRANSPORT in accepted,
    )
    for message in gated.messages:
        tell(message)
    raise typer.Exit(gated.exit_code)
