"""``torchscale validate``: is this node fit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchscale.cli.command import given_options
from torchscale.cli.copying import CopyOption, with_copy
from torchscale.cli.options import NodeArguments, Several
from torchscale.cli.output import TERMINAL, note
from torchscale.cli.parameters import READS, option
from torchscale.cli.parsing import members, parse_seconds
from torchscale.config.choices import Requirement
from torchscale.errors import UsageError
from torchscale.features.validate.cli.output import show_bundle, show_fleet, show_node
from torchscale.measure.nodes import NodeOptions, say_nodes
from torchscale.util.optional import optional

if TYPE_CHECKING:
    from torchscale.features.validate.run.acceptance import AcceptanceOptions
    from torchscale.schema.node.validation import Validation


@dataclass(frozen=True)
class _RoundOptions:
    """Speeds, measured in rounds."""

    acceptance: Annotated[
        bool,
        option(
            "--acceptance",
            "Measure the speed of every device and link in rounds, and judge them: keep, "
            "retest, return or undecided.",
        ),
    ] = False
    budget: Annotated[
        str | None,
        option(
            "--budget TIME",
            "Time for the rounds, which end earlier where every figure can be judged. Default: 20m",
        ),
    ] = None
    baseline: Annotated[
        Path | None,
        option(
            "--baseline FILE",
            "An earlier acceptance to hold the figures against: its folder, acceptance.json, "
            "--json output or bundle.",
            **READS,
        ),
    ] = None

    policy: Annotated[
        Path | None,
        option(
            "--policy FILE",
            "YAML that says what keep asks for: looked_at, burn_in_minutes, rounds, compared, "
            "baseline_loss_percent, flap_percent, return_percent.",
            **READS,
        ),
    ] = None

    copy_to: CopyOption = None

    def checked(self) -> AcceptanceOptions | None:
        """What ``--acceptance`` asks for; ``None`` without it.

        Raises:
            UsageError: other options of it were given without it.
        """
        if not self.acceptance:
            if any((self.budget, self.baseline, self.policy, self.copy_to)):
                raise UsageError(
                    "--budget, --baseline, --policy and --copy-to are of an acceptance",
                    hint="add --acceptance",
                )
            return None
        from torchscale.features.validate.baseline import read_baseline  # noqa: PLC0415 - `--help` does not need it
        from torchscale.features.validate.policy_file import read_policy  # noqa: PLC0415
        from torchscale.features.validate.run.acceptance import BUDGET_SECONDS, AcceptanceOptions  # noqa: PLC0415
        from torchscale.schema.node.policy import Policy  # noqa: PLC0415

        seconds = BUDGET_SECONDS if self.budget is None else parse_seconds("--budget", self.budget)
        policy = Policy() if self.policy is None else read_policy(self.policy)
        return AcceptanceOptions(seconds, optional(read_baseline, self.baseline), policy)


@dataclass(frozen=True)
class _BundleOptions:
    """An archive of the checks."""

    bundle: Annotated[
        Path | None,
        option(
            "--bundle FILE",
            "Write an archive of checks, facts, report and digests, to be sent and verified.",
        ),
    ] = None
    sign: Annotated[Path | None, option("--sign KEY", "Sign the bundle with this SSH key.")] = None
    verify: Annotated[
        Path | None,
        option(
            "--verify FILE",
            "Check a bundle of any node instead of this node: whether it was changed, who "
            "signed it, whether its verdict follows from its facts.",
            **READS,
        ),
    ] = None


def _refuse_beside_verify(context: typer.Context) -> None:
    """What is judged anew is the bundle's own, by its own policy."""
    for name, spelling in given_options(context).items():
        if name not in ("verify", "as_json"):
            raise UsageError(f"{spelling} is for a node, and --verify reads a bundle")


def validate(
    context: typer.Context,
    require: Annotated[
        Several,
        option(
            "--require NAME,…", "cuda, nccl, nsys: exit with 3 unless this machine has all of them."
        ),
    ] = None,
    min_gpus: Annotated[
        int, option("--min-gpus", "Exit with 3 with fewer usable GPUs; implies CUDA.", min=0)
    ] = 0,
    output_dir: Annotated[
        Path, option("--output-dir -o", "Where results would go: its disk is checked.")
    ] = Path("results"),
    timeout: Annotated[str, option("--timeout", "Bound on the collective: 30, 90s or 2m.")] = "2m",
    burn_in: Annotated[
        str | None,
        option(
            "--burn-in TIME",
            "Stress all devices for so long (30s, 10m, 2h), with known results: find wrong "
            "bits, falling rates.",
        ),
    ] = None,
    *,
    rounds: _RoundOptions,
    nodes: NodeArguments,
    pairwise: Annotated[
        bool,
        option(
            "--pairwise",
            "Over several nodes: measure all pairs, and name slow nodes and slow links.",
        ),
    ] = False,
    fix_hints: Annotated[
        bool,
        option(
            "--fix-hints",
            "Print the commands that mend each warning and failure. None is executed.",
        ),
    ] = False,
    brief: Annotated[
        bool,
        option(
            "--brief", "Print one line: what to do with each part that is not kept, or the verdict."
        ),
    ] = False,
    archive: _BundleOptions,
    as_json: Annotated[bool, option("--json", "Print checks and facts as JSON.")] = False,
) -> None:
    """Check whether this node is fit: software, GPUs, interconnect, host, disk, and a real
    all-reduce over its GPUs.

    A node without a GPU can be fit for CPU benchmarking; the verdict names it as such.

    Over several nodes: in a job of Slurm or on a Ray cluster ([bold]--engine[/bold]) one command
    does it. Elsewhere, start the same command on each node with its [bold]--node-rank[/bold]; all
    share a secret (TORCHSCALE_TOKEN or --token-file). Node 0 prints what differs between nodes, the
    checks of each, and the result of a collective over all. See `torchscale docs nodes`.

    Exit codes: 0 fit, warnings included; of an acceptance keep; or a bundle as it was written. 1 a
    check failed; retest or return; or a bundle was changed. 3 this machine lacks what --require or
    --min-gpus asks for. 4 an acceptance is undecided. 130 the burn-in or the acceptance was
    interrupted.

    Without --policy, keep asks for 5 undisturbed rounds at least; a look at compute, memory, links,
    disk and training; no figure more than 5 % below its baseline, or slow among its peers; no two
    levels more than 25 % apart, but of a disk or virtual cores.

    [bold]Examples[/bold]

    [cyan]torchscale validate[/cyan]

    [cyan]torchscale validate --fix-hints[/cyan]

    [cyan]torchscale validate --burn-in 10m[/cyan]

    [cyan]torchscale validate --require cuda --min-gpus 8 --json > node.json[/cyan]

    [cyan]torchscale validate --burn-in 10m --bundle node.zip --sign ~/.ssh/id_ed25519[/cyan]

    [cyan]torchscale validate --acceptance --budget 20m --baseline node-17.zip[/cyan]

    [cyan]torchscale report results/acceptance-node-18-20261126-101500[/cyan]

    [cyan]torchscale validate --verify node.zip[/cyan]

    [cyan]torchscale validate --nnodes 4 --node-rank 0 --master 10.0.0.1:29500
    --token-file token --pairwise[/cyan]
    """
    if brief and as_json:
        raise UsageError("--brief is a line and --json is JSON", hint="leave one of them out")
    bundle, sign = archive.bundle, archive.sign
    if sign is not None and bundle is None:
        raise UsageError("--sign signs a bundle", hint="add --bundle FILE, or leave it out")
    if archive.verify is not None:
        _refuse_beside_verify(context)
        raise typer.Exit(show_bundle(archive.verify, as_json=as_json))
    timeout_seconds = parse_seconds("--timeout", timeout)
    burn_in_seconds = None if burn_in is None else parse_seconds("--burn-in", burn_in)
    speeds = rounds.checked()
    required = members("--require", require, Requirement)
    here = NodeOptions(**vars(nodes))
    if say_nodes(here):
        from torchscale.features.validate.fleet import run as fleet  # noqa: PLC0415 - most check one node
        from torchscale.features.validate.fleet.node_part import FleetOptions  # noqa: PLC0415

        together = fleet.join_fleet(here, TERMINAL)
        if together is not None:
            if bundle is not None:
                raise UsageError(
                    "a bundle is of one node", hint="run it on each node, without --nnodes"
                )
            options = FleetOptions(
                require=tuple(required),
                min_gpus=min_gpus,
                output_dir=output_dir,
                timeout_seconds=timeout_seconds,
                burn_in_seconds=burn_in_seconds,
                pairwise=pairwise,
                acceptance=speeds,
            )
            if not together.is_leader:
                raise typer.Exit(fleet.follow_fleet(together, options, observer=TERMINAL))
            checked = fleet.validate_fleet(together, options, observer=TERMINAL)
            show_fleet(checked, fix_hints=fix_hints, as_json=as_json, brief=brief)
            own = checked.validation.nodes[0].validation
            raise typer.Exit(_with_copy(checked.exit_code, output_dir, own, rounds.copy_to))
    if pairwise:
        raise UsageError(
            "--pairwise measures pairs of nodes", hint="add --nnodes N, or leave it out"
        )

    if bundle is not None:
        from torchscale.features.validate.bundle import check_place  # noqa: PLC0415 - `--help` does not need it

        check_place(bundle, sign)
    from torchscale.features.validate.run import validate as run  # noqa: PLC0415 - `--help` does not need it

    outcome = run.validate(
        require=required,
        min_gpus=min_gpus,
        output_dir=output_dir,
        timeout_seconds=timeout_seconds,
        burn_in_seconds=burn_in_seconds,
        acceptance=speeds,
        observer=TERMINAL,
    )
    show_node(outcome, fix_hints=fix_hints, as_json=as_json, brief=brief)
    if bundle is not None:
        from torchscale.features.validate.bundle import write_bundle  # noqa: PLC0415 - `--help` does not need it

        write_bundle(outcome.validation, bundle, sign, TERMINAL)
        note(f"Wrote {bundle}. Check it anywhere: torchscale validate --verify {bundle}")
    code = _with_copy(outcome.exit_code, output_dir, outcome.validation, rounds.copy_to)
    raise typer.Exit(code)


def _with_copy(code: int, output_dir: Path, own: Validation | None, place: str | None) -> int:
    """The exit code when the folder of this node's acceptance is copied too."""
    if own is None or own.acceptance is None or not own.acceptance.folder:
        return code
    return with_copy(code, output_dir / own.acceptance.folder, place)
