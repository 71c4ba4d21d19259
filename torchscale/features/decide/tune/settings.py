"""Which settings ``tune`` tries on an experiment: each a change of one key. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torchscale.catalog.model_facts import InputKind
from torchscale.catalog.models import find_model
from torchscale.config.choices import Checkpointing, CompileMode, DeviceKind, Precision, TuningAxis
from torchscale.config.experiment import Experiment
from torchscale.config.strategies.data_parallel import CommHook, Ddp
from torchscale.config.strategy import Strategy

_BUCKETS_MIB = (1.0, 5.0, 25.0, 100.0)
"""Sizes from what keeps a fast network busy to what puts most models into one bucket; torch's
default is 25."""
_COMPRESSION: tuple[CommHook, ...] = ("fp16", "bf16", "powersgd")
_BATCH_FACTORS = (2, 4)
_WORKERS = (0, 1, 2, 4, 8)
PREDICTED_MIB = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0)
"""Sizes that a prediction chooses from."""

Apply = Callable[[Experiment], Experiment]


@dataclass(frozen=True)
class SettingChange:
    """A change of one key of an experiment.

    Attributes:
        axis: What it is about.
        value: The new value, as a table shows it.
        key: Key of the config.
        apply: Gives the experiment with the change.
        note: What else it changes than speed; empty where results stay the same but for rounding.
    """

    axis: TuningAxis
    value: str
    key: str
    apply: Apply
    note: str = ""


EXCHANGES_NOTHING = SettingChange(
    TuningAxis.COMM_HOOK,
    "noop",
    "parallel.strategy",
    lambda experiment: _with_ddp(experiment, comm_hook="noop"),
    "not training: ranks exchange nothing",
)
"""The most that any setting of communication could gain."""


def candidates(
    experiment: Experiment, axis: TuningAxis, device: DeviceKind, cores: int
) -> tuple[SettingChange, ...]:
    """Every other value of an axis that could be faster on this device; of strategies none, which
    depend on the number of devices (:mod:`torchscale.features.decide.tune.strategies`).

    Args:
        experiment: An experiment with one value on each axis.
        axis: Which key is changed.
        device: Where it runs.
        cores: Cores of the machine, for loader processes.
    """
    if axis is TuningAxis.STRATEGY:
        return ()
    return tuple(_OF_AXIS[axis](experiment, device, cores))


NUMERICS = (TuningAxis.PRECISION, TuningAxis.COMM_HOOK, TuningAxis.BATCH)
"""Axes whose values change what is computed, and not only how fast."""


BY_EXPECTED_GAIN = (
    TuningAxis.PRECISION,
    TuningAxis.COMPILE,
    TuningAxis.CHECKPOINTING,
    TuningAxis.BATCH,
    TuningAxis.WORKERS,
    TuningAxis.FUSED,
    TuningAxis.CHANNELS_LAST,
    TuningAxis.BUCKET,
    TuningAxis.COMM_HOOK,
)
"""The order in which axes are tried, for searches that have not the time for all: tensor cores
multiply some times faster in 16 bits; a compiler removes traffic of memory from every layer;
recomputation is a third of the FLOPs; larger batches and more loader processes help where the
device waits; an optimizer and a memory format are a few percent of most steps; what communication
could give is measured first, in launches of its own."""


COMMUNICATION = (TuningAxis.BUCKET, TuningAxis.COMM_HOOK)
"""Axes that change how DDP exchanges gradients, and nothing else."""


EXPECTED_COSTS = {TuningAxis.COMPILE: 5.0}
"""How many times longer a launch takes that compiles, before one was seen: measured 6 times for the
tiny ResNet on two CPU ranks (87 s against 14.5 s), with nothing in the compiler's cache."""


def has_buckets(experiment: Experiment) -> bool:
    """Whether gradients are sent in DDP's buckets."""
    return isinstance(experiment.parallel.strategy[0], Ddp)


def _precisions(experiment: Experiment, device: DeviceKind, cores: int) -> Iterator[SettingChange]:
    del cores
    known: tuple[Precision, ...] = (
        ("fp32", "tf32", "bf16", "fp16") if device == "cuda" else ("fp32", "bf16")
    )
    for value in known:
        if value != experiment.training.precision[0]:
            yield SettingChange(
                TuningAxis.PRECISION,
                value,
                "training.precision",
                lambda one, value=value: _with_training(one, precision=(value,)),  # type: ignore[misc]
                "changes numerics",
            )


def _compiled(experiment: Experiment, device: DeviceKind, cores: int) -> Iterator[SettingChange]:
    del cores
    modes: tuple[bool | CompileMode, ...] = (False, True)
    if device == "cuda":
        modes = (*modes, "reduce-overhead")
    for mode in modes:
        if mode != experiment.model.compile[0]:
            yield SettingChange(
                TuningAxis.COMPILE,
                str(mode).lower(),
                "model.compile",
                lambda one, mode=mode: _with_model(one, compile=(mode,)),  # type: ignore[misc]
            )


def _fused(experiment: Experiment, device: DeviceKind, cores: int) -> Iterator[SettingChange]:
    del device, cores
    other = not experiment.training.fused[0]
    yield SettingChange(
        TuningAxis.FUSED,
        str(other).lower(),
        "training.fused",
        lambda one: _with_training(one, fused=(other,)),
    )


def _channels_last(
    experiment: Experiment, device: DeviceKind, cores: int
) -> Iterator[SettingChange]:
    del device, cores
    facts = find_model(experiment.models[0].name)
    if facts is not None and facts.input_kind is InputKind.TOKENS:
        return
    other = not experiment.model.channels_last[0]
    yield SettingChange(
        TuningAxis.CHANNELS_LAST,
        str(other).lower(),
        "model.channels_last",
        lambda one: _with_model(one, channels_last=(other,)),
    )


def _buckets(experiment: Experiment, device: DeviceKind, cores: int) -> Iterator[SettingChange]:
    del device, cores
    strategy = experiment.parallel.strategy[0]
    if not isinstance(strategy, Ddp):
        return
    for size in _BUCKETS_MIB:
        if size != strategy.bucket_cap_mb:
            yield bucket_candidate(size)
    if not strategy.gradient_as_bucket_view:
        yield SettingChange(
            TuningAxis.BUCKET,
            "views",
            "parallel.strategy",
            lambda one: _with_ddp(one, gradient_as_bucket_view=True),
        )


def all_buckets(experiment: Experiment) -> tuple[SettingChange, ...]:
    """Every size that a prediction may choose, but for the experiment's own."""
    strategy = experiment.parallel.strategy[0]
    if not isinstance(strategy, Ddp):
        return ()
    return tuple(bucket_candidate(size) for size in PREDICTED_MIB if size != strategy.bucket_cap_mb)


def bucket_candidate(mebibytes: float) -> SettingChange:
    """DDP with buckets of this size."""
    return SettingChange(
        TuningAxis.BUCKET,
        f"{mebibytes:g} MiB",
        "parallel.strategy",
        lambda one: _with_ddp(one, bucket_cap_mb=mebibytes),
    )


def with_strategies(experiment: Experiment, *strategies: Strategy) -> Experiment:
    """The experiment with these strategies in place of its own."""
    return experiment.model_copy(
        update={"parallel": experiment.parallel.model_copy(update={"strategy": strategies})}
    )


def _hooks(experiment: Experiment, device: DeviceKind, cores: int) -> Iterator[SettingChange]:
    del cores
    strategy = experiment.parallel.strategy[0]
    if not isinstance(strategy, Ddp):
        return
    for hook in _COMPRESSION:
        if hook != strategy.comm_hook and (hook != "bf16" or device == "cuda"):
            yield SettingChange(
                TuningAxis.COMM_HOOK,
                hook,
                "parallel.strategy",
                lambda one, hook=hook: _with_ddp(one, comm_hook=hook),  # type: ignore[misc]
                "changes numerics",
            )


def _checkpointing(
    experiment: Experiment, device: DeviceKind, cores: int
) -> Iterator[SettingChange]:
    """Less of it: recomputing more never makes the same batch faster, only smaller."""
    del device, cores
    less: dict[Checkpointing, tuple[Checkpointing, ...]] = {
        "full": ("none", "selective"),
        "selective": ("none",),
    }
    for value in less.get(experiment.training.activation_checkpointing[0], ()):
        yield SettingChange(
            TuningAxis.CHECKPOINTING,
            value,
            "training.activation_checkpointing",
            lambda one, value=value: _with_training(one, activation_checkpointing=(value,)),  # type: ignore[misc]
        )


def _batches(experiment: Experiment, device: DeviceKind, cores: int) -> Iterator[SettingChange]:
    del device, cores
    for factor in _BATCH_FACTORS:
        size = factor * experiment.batch_sizes[0]
        yield SettingChange(
            TuningAxis.BATCH,
            str(size),
            "batch_sizes",
            lambda one, size=size: one.model_copy(update={"batch_sizes": (size,)}),  # type: ignore[misc]
            "changes the global batch, and so the optimization",
        )


def _workers(experiment: Experiment, device: DeviceKind, cores: int) -> Iterator[SettingChange]:
    del device
    if experiment.data.source[0] == "synthetic":
        return
    for count in _WORKERS:
        if count != experiment.data.workers and count <= cores:
            yield SettingChange(
                TuningAxis.WORKERS,
                str(count),
                "data.workers",
                lambda one, count=count: one.model_copy(  # type: ignore[misc]
                    update={"data": one.data.model_copy(update={"workers": count})}
                ),
            )


def _with_training(experiment: Experiment, **changed: object) -> Experiment:
    return experiment.model_copy(
        update={"training": experiment.training.model_copy(update=changed)}
    )


def _with_model(experiment: Experiment, **changed: object) -> Experiment:
    return experiment.model_copy(update={"model": experiment.model.model_copy(update=changed)})


def _with_ddp(experiment: Experiment, **changed: object) -> Experiment:
    return with_strategies(experiment, experiment.parallel.strategy[0].model_copy(update=changed))


_OF_AXIS: dict[TuningAxis, Callable[[Experiment, DeviceKind, int], Iterator[SettingChange]]] = {
    TuningAxis.PRECISION: _precisions,
    TuningAxis.COMPILE: _compiled,
    TuningAxis.FUSED: _fused,
    TuningAxis.CHANNELS_LAST: _channels_last,
    TuningAxis.BUCKET: _buckets,
    TuningAxis.COMM_HOOK: _hooks,
    TuningAxis.CHECKPOINTING: _checkpointing,
    TuningAxis.BATCH: _batches,
    TuningAxis.WORKERS: _workers,
}
