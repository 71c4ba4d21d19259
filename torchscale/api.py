"""What ``import torchscale`` offers: measure, validate, profile and read results from Python.

::

    import torchscale

    runs = torchscale.benchmark({"models": ["resnet18"], "batch_sizes": [32], "gpu_counts": [1, 2]})
    runs.cells[["model", "batch_size", "gpu_count", "samples_per_second", "efficiency"]]
    runs.throughput_figures()["ResNet-18, fp32"].show()

The calling process never imports torch: ranks are processes of their own. Every error is a subclass
of :class:`torchscale.errors.TorchscaleError` with a ``message`` and a ``hint``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TypeVar

from torchscale.config.choices import (
    MatchKey,
    ProfileTarget,
    Requirement,
    Rerun,
    ToolChoice,
    WindowChoice,
)
from torchscale.config.dump import to_json
from torchscale.config.experiment import Experiment
from torchscale.config.load import load_experiment, load_experiment_from
from torchscale.config.values import ConfigValue
from torchscale.errors import UsageError
from torchscale.features.compare.analysis.compare import compare
from torchscale.features.compare.analysis.pair import Pair
from torchscale.features.compare.inputs import load_source
from torchscale.features.trace.analyze import analyze_recordings, make_parts
from torchscale.features.trace.profile import profile_workload
from torchscale.features.validate.baseline import read_baseline
from torchscale.features.validate.policy_file import read_policy
from torchscale.features.validate.run.acceptance import AcceptanceOptions
from torchscale.features.validate.run.validate import TIMEOUT_SECONDS
from torchscale.features.validate.run.validate import validate as run_validate
from torchscale.measure.benchmark import benchmark as run_benchmark
from torchscale.observer import SILENT, Observer
from torchscale.run_results import Results, load_results
from torchscale.schema.node.policy import Policy
from torchscale.schema.node.validation import Validation
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.run.result_set import ResultSet

__all__ = [
    "Results",
    "analyze",
    "benchmark",
    "compare_results",
    "load_results",
    "profile",
    "validate",
]

E = TypeVar("E", bound=Enum)

Config = Experiment | Mapping[str, object] | str | Path
"""An experiment, its keys as a mapping, or the path of a YAML or JSON file."""


def benchmark(
    config: Config,
    *,
    overrides: Mapping[str, object] | None = None,
    output_dir: str | Path | None = None,
    rerun: Rerun | str | None = None,
    observer: Observer = SILENT,
) -> Results:
    """Measure an experiment and return everything in its run folder.

    The same call resumes an interrupted sweep: completed launches are kept. A cell that fails ends
    in a named state with its reason and raises nothing; look at the ``state`` column of
    ``Results.cells``.

    Args:
        config: What to measure.
        overrides: Config keys with dots → values: ``{"training.precision": "bf16"}``.
        output_dir: The run folder; ``results/<experiment_name>`` by default.
        rerun: ``"failed"`` or ``"all"``: completed launches to measure again.
        observer: Receives messages and progress; by default nothing is shown.

    Raises:
        ConfigError: the config is wrong; one line per mistake.
        UsageError: ``rerun`` has no such value.
        MachineError: this machine can run none of the cells.
        StoreError: the folder holds another experiment, or another torchscale writes to it.
        OutputError: the folder cannot be written.
        KeyboardInterrupt: Ctrl-C or TERM stopped the sweep; completed launches are kept.
    """
    outcome = run_benchmark(
        _experiment(config, overrides),
        output_dir=None if output_dir is None else Path(output_dir),
        rerun=None if rerun is None else _choice(Rerun, "rerun", rerun),
        observer=observer,
    )
    if outcome.interrupted:
        raise KeyboardInterrupt
    return load_results(outcome.directory)


def validate(
    *,
    require: Collection[Requirement | str] = (),
    min_gpus: int = 0,
    output_dir: str | Path = "results",
    timeout_seconds: float = TIMEOUT_SECONDS,
    burn_in_seconds: float | None = None,
    acceptance_seconds: float | None = None,
    baseline: str | Path | None = None,
    policy: str | Path | None = None,
    observer: Observer = SILENT,
) -> Validation:
    """Check whether this node is fit: software, GPUs, interconnect, host, disk, and a real
    all-reduce over its GPUs.

    Args:
        require: ``"cuda"``, ``"nccl"``, ``"nsys"``: what the node must have.
        min_gpus: The fewest usable GPUs.
        output_dir: Where results would go: its disk is checked.
        timeout_seconds: Bound on the collective.
        burn_in_seconds: How long all devices work with known results; ``None`` for no burn-in.
        acceptance_seconds: Time for rounds that measure the speed of every device and link; ``None``
            for none.
        baseline: An earlier acceptance to hold them against: its folder, JSON or bundle.
        policy: A YAML file that says what *keep* asks for.
        observer: Receives messages.

    Returns:
        Every check with its status and advice; ``fit``, ``disposition`` and ``verdict`` sum them up.

    Raises:
        MachineError: the probe gave no facts at all.
        UsageError: the baseline cannot be read or is of another kind; no room for a round.
        ConfigError: the policy is wrong.
    """
    acceptance = None
    if acceptance_seconds is None and (baseline, policy) != (None, None):
        raise UsageError("baseline and policy are of an acceptance; expected acceptance_seconds")
    if acceptance_seconds is not None:
        known = None if baseline is None else read_baseline(Path(baseline))
        asked = Policy() if policy is None else read_policy(Path(policy))
        acceptance = AcceptanceOptions(acceptance_seconds, known, asked)
    outcome = run_validate(
        require=[_choice(Requirement, "require", name) for name in require],
        min_gpus=min_gpus,
        output_dir=Path(output_dir),
        timeout_seconds=timeout_seconds,
        burn_in_seconds=burn_in_seconds,
        acceptance=acceptance,
        observer=observer,
    )
    return outcome.validation


def profile(
    config: Config,
    *,
    overrides: Mapping[str, object] | None = None,
    output_dir: str | Path | None = None,
    seconds: float = 10.0,
    max_steps: int | None = None,
    target: ProfileTarget | str = ProfileTarget.SYNC_STALLS,
    tool: ToolChoice | str = ToolChoice.AUTO,
    observer: Observer = SILENT,
) -> ProfileAnalysis:
    """Record some training steps of one workload and analyze what limits them.

    Args:
        config: Describes one workload; its largest device count is recorded.
        overrides: Overrides as of :func:`benchmark`.
        output_dir: A run folder, new or to be joined; ``results/profile-<what>-<time>`` by default.
        seconds: Record this long, in whole steps,
        max_steps: but no more steps than this; 200 with torch.profiler and 1000 with nsys by
            default.
        target: ``"sync_stalls"``, ``"kernels"``, ``"memory"``, ``"input"`` or ``"all"``.
        tool: ``"auto"``, ``"nsys"`` or ``"kineto"``.
        observer: Receives messages.

    Raises:
        ConfigError: the config is wrong.
        UsageError: it describes several workloads.
        MachineError: this machine cannot run it, or lacks the profiler.
        TorchscaleError: the recording failed; the message says why.
        KeyboardInterrupt: Ctrl-C or TERM stopped it.
    """
    outcome = profile_workload(
        _experiment(config, overrides),
        output_dir=None if output_dir is None else Path(output_dir),
        seconds=seconds,
        max_steps=max_steps,
        target=_choice(ProfileTarget, "target", target),
        tool=_choice(ToolChoice, "tool", tool),
        observer=observer,
    )
    if outcome.profile is None:
        raise KeyboardInterrupt
    return outcome.analysis


def analyze(
    paths: str | Path | Sequence[str | Path],
    *,
    window: WindowChoice | str = WindowChoice.AUTO,
    output_dir: str | Path | None = None,
    ranks: str | None = None,
    sample: int | None = None,
    steps: str | None = None,
    memory: str | None = None,
) -> ProfileAnalysis:
    """Analyze recordings of nsys or torch.profiler, of one or many ranks. Needs no torch and no
    GPU.

    Args:
        paths: A file or directory, or several: ``.nsys-rep``, ``.sqlite``, ``.json``, ``.json.gz``,
            ``.tar.gz``.
        window: ``"auto"``, ``"steps"`` or ``"device"``: which part is analyzed.
        output_dir: Where ``analysis.json`` and a timeline for Perfetto are written; by default
            nothing is written.
        ranks: Ranks that are analyzed, ``"0-7,512"``; by default all.
        sample: How many of them, chosen so that process groups and nodes keep members.
        steps: Steps that are analyzed, from one number to another: ``"100:150"``.
        memory: What reading may take, ``"1GB"`` by default.

    Raises:
        TraceError: they cannot be read, or hold nothing that can be analyzed.
        MachineError: a ``.nsys-rep`` cannot be exported here.
        UsageError: ranks, steps or memory are not as they are to be written.
    """
    several = [paths] if isinstance(paths, str | Path) else paths
    return analyze_recordings(
        [Path(path) for path in several],
        window=_choice(WindowChoice, "window", window),
        output_dir=None if output_dir is None else Path(output_dir),
        parts=make_parts(ranks, sample, steps, memory),
    )


def compare_results(
    reference: str | Path | ResultSet,
    other: str | Path | ResultSet,
    *,
    threshold: float | None = None,
    match: Sequence[MatchKey | str] = (),
    accept_flags: bool = False,
) -> Pair:
    """``other`` against ``reference``: results directories, records or baselines, as ``torchscale
    compare`` takes them.

    Args:
        reference: The side that ratios divide by.
        other: The side that is judged.
        threshold: Relative changes up to this count as none; ``None`` for the calibrated
            thresholds of ``reference`` where it has them, else 0.02.
        match: Compare training and memory cells that are equal in these, whatever else differs:
            ``["model", "global_batch"]``.
        accept_flags: Judge the ratios as measured, although launches were contended or throttled.

    Raises:
        UsageError: a side does not exist, or ``match`` is wrong or does not tell cells apart.
        StoreError: a side cannot be read.
    """
    sides = [
        side if isinstance(side, ResultSet) else load_source(str(side))
        for side in (reference, other)
    ]
    keys = [_choice(MatchKey, "match", key) for key in match]
    return compare(sides[0], sides[1], threshold=threshold, match=keys, accept_flags=accept_flags)


def _experiment(config: Config, overrides: Mapping[str, object] | None) -> Experiment:
    values = [ConfigValue(key, value) for key, value in (overrides or {}).items()]
    if isinstance(config, Experiment):
        return (
            load_experiment_from(json.loads(to_json(config)), values=values) if values else config
        )
    if isinstance(config, Mapping):
        return load_experiment_from(config, values=values)
    return load_experiment(Path(config), values=values)


def _choice(choices: type[E], argument: str, value: E | str) -> E:
    """The member of an enum that an argument names.

    Raises:
        UsageError: there is no such member.
    """
    try:
        return choices(value)
    except ValueError as error:
        known = ", ".join(choice.value for choice in choices)
        raise UsageError(f"{argument}: {value!r}; expected one of {known}") from error
