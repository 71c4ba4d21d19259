"""Finds why a cell cannot run on a machine, as far as it is known before a launch. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from torchscale.catalog.devices import BLOCK_SCALED, MIN_CAPABILITY, TORCHAO
from torchscale.catalog.models import CONTEXT, EXPERT, MODELS, InputKind, find_model
from torchscale.config.choices import DeviceKind
from torchscale.config.degrees import Degrees
from torchscale.config.strategy import (
    Ddp,
    Hybrid,
    PipelineBase,
    is_sequence_parallel,
    sharding,
)
from torchscale.schema.cells.kinds import AnyCell
from torchscale.schema.cells.training import WIDTH_MULTIPLE, TrainingCell
from torchscale.schema.node.environment import DeviceInfo
from torchscale.util.versions import version_numbers

_HEADS_OF_WIDTH = (("d_model", "nhead"), ("hidden_size", "num_heads"))
"""Options whose width is split evenly over attention heads."""
_CUDA_ONLY = ("tf32", "fp8", *BLOCK_SCALED)
_LEAST_TORCHAO = tuple(map(int, TORCHAO.split(".")))
_CIFAR_CLASSES = 100
_EXPERTS = "moe"
_TAKES_DOCUMENTS = ("decoder", _EXPERTS)
"""Families whose attention keeps documents apart, and whose loss leaves tokens out."""
_FSDP_ON_CPUS = (2, 7)
"""The first torch whose CPU streams record events, which FSDP needs."""
_PIPELINES_ON_CPUS = (2, 8)
"""Earlier schedules of torch wait only for the last transfer of a batch
(torch/distributed/pipelining/schedules.py); on gloo they hung with 2.6 and 2.7. Those of 2.8 wait
for all, according to their source."""


@dataclass(frozen=True)
class ExecutionTarget:
    """Where the cells of a plan would run.

    Attributes:
        device: What the device request resolved to.
        indices: Usable devices in the order in which ranks take them: GPU indices, or cores on CPU.
        threads: CPU threads of every rank.
        devices: What is known of the machine's devices.
        oversubscribe: Whether ranks may share devices.
        torch: Version.
        fixed_threads: Whether the config sets ``threads``; else they are the cores, shared out over
            the largest count that fits.
        nodes: Number of nodes of the sweep, each like this one.
        devices_per_node: Ranks on each node of a cell that needs several; ``None`` on a single node
            without such a limit.
        torchao: Version; ``None`` where it is not installed.
    """

    device: DeviceKind
    indices: tuple[int, ...]
    threads: int
    devices: tuple[DeviceInfo, ...]
    oversubscribe: bool
    torch: str
    fixed_threads: bool = False
    nodes: int = 1
    devices_per_node: int | None = None
    torchao: str | None = None

    @property
    def capacity(self) -> int:
        """Ranks of a node that have a device, or enough cores, of their own."""
        if self.device == "cpu":
            return len(self.indices) // self.threads
        return len(self.indices)


def training_obstacle(cell: TrainingCell, target: ExecutionTarget) -> str | None:
    """Why a training cell cannot run, apart from the number of devices; ``None`` if it can."""
    if cell.script is not None:
        return _script_obstacle(cell, target)
    return (
        _strategy_obstacle(cell)
        or _compile_obstacle(cell)
        or _batch_obstacle(cell)
        or _model_obstacle(cell)
        or _lengths_obstacle(cell)
        or _device_obstacle(cell, target.device)
        or _version_obstacle(cell, target)
        or _precision_obstacle(cell, target)
    )


def machine_obstacle(cell: AnyCell, target: ExecutionTarget) -> str | None:
    """What keeps a cell that measures the machine itself from running; ``None`` if nothing does."""
    if reason := too_few_devices(cell, target):
        return reason
    if target.device == "mps" and cell.world_size > 1:
        return "mps has a single device; use world size 1"
    return None


def too_few_devices(cell: AnyCell, target: ExecutionTarget) -> str | None:
    """How many devices are missing; ``None`` where there are enough, or ranks may share them."""
    capacity, threads = target.capacity, target.threads
    if target.devices_per_node is not None:
        return _too_few_nodes(cell, target.nodes, target.devices_per_node)
    if cell.world_size <= capacity or (target.oversubscribe and capacity > 0):
        return None
    have = f"{capacity} GPU{'s' * (capacity != 1)}"
    if target.device == "cpu":
        ranks, each = len(target.indices), 1
        if target.fixed_threads:
            ranks, each = capacity, threads
        have = f"{ranks} CPU rank{'s' * (ranks != 1)} of {each} core{'s' * (each != 1)}"
    return (
        f"needs {cell.world_size} devices; there {'is' if have.startswith('1 ') else 'are'} {have}"
    )


def _too_few_nodes(cell: AnyCell, nodes: int, per_node: int) -> str | None:
    if cell.world_size <= nodes * per_node:
        return None
    needed = -(-cell.world_size // per_node)
    each = f"{per_node} device{'s' * (per_node != 1)}"
    return f"needs {needed} node{'s' * (needed != 1)} of {each}; the sweep has {nodes}"


def _strategy_obstacle(cell: TrainingCell) -> str | None:
    """Degrees whose product is not the world size, or a split that the model does not support."""
    try:
        degrees = cell.degrees
    except ValueError as error:
        text = str(error)
        if text.startswith("strategy"):
            return text
        return f"{cell.strategy.name}: {text}"
    facts = find_model(cell.model)
    if (
        isinstance(cell.strategy, Hybrid)
        and degrees.data == degrees.world_size
        and degrees.shard == degrees.expert == 1 < degrees.world_size
    ):
        return "hybrid without degrees is plain DDP; name ddp, or set shard, tensor, pipeline, ep or cp"
    for split in (
        cell.strategy.splits
    ):  # also on one device: a baseline without its other world sizes is useless
        if facts is not None and split not in facts.splits:
            if split == CONTEXT and facts.input_kind is InputKind.IMAGE:
                return f"{cell.model} takes images: it has no sequence of tokens to split"
            able = dict.fromkeys(other.family for other in MODELS.values() if split in other.splits)
            *several, last = sorted(able)
            families = f"{', '.join(several)} and {last}" if several else last
            own = "" if split == EXPERT else ", or your own"
            return f"{cell.model} does not support {split} parallelism; {families} models do{own}"
    return (
        _shape_obstacle(cell, degrees)
        or _context_obstacle(cell, degrees)
        or _expert_obstacle(cell, degrees)
    )


def _context_obstacle(cell: TrainingCell, degrees: Degrees) -> str | None:
    """Sequences that cannot be split, or not beside what else is split."""
    if degrees.context == 1:
        return None
    if "num_experts" in cell.model_options and degrees.model > degrees.context:
        return (
            "models with experts that are split along the sequence and by tensor or pipeline "
            "parallelism were never compared with a single process; use cp with copies, shard or ep"
        )
    length = cell.model_options.get("sequence_length")
    if not isinstance(length, int):
        return None
    return chunks_problem(length, degrees.context)


def chunks_problem(length: int, devices: int) -> str | None:
    """Why sequences of ``length`` tokens cannot be split over so many devices; ``None`` if they
    can."""
    if length % (2 * devices) == 0:
        return None
    return (
        f"sequences of {length} tokens do not divide into {2 * devices} chunks, two for each of "
        f"{devices} devices"
    )


def _expert_obstacle(cell: TrainingCell, degrees: Degrees) -> str | None:
    """Experts, or their rows, that the degrees do not divide."""
    options = cell.model_options
    experts, inner = options.get("num_experts"), options.get("expert_size")
    if isinstance(experts, int) and experts % degrees.expert:
        return f"{experts} experts do not divide over {degrees.expert} devices"
    if isinstance(inner, int) and inner % degrees.tensor:
        return f"expert_size {inner} does not divide over {degrees.tensor} tensor-parallel devices"
    if degrees.tensor > 1 and options.get("kv_rank"):
        return (
            "tensor parallelism does not split latent attention: all heads share the part of the "
            "keys that holds positions"
        )
    if degrees.expert == 1:
        return None
    return _spread_obstacle(cell, degrees)


def _spread_obstacle(cell: TrainingCell, degrees: Degrees) -> str | None:
    """What experts that are spread over devices cannot be combined with."""
    options = cell.model_options
    is_sharded = sharding(cell.strategy, degrees) is not None
    if is_sharded and cell.activation_checkpointing == "selective":
        return (
            "selective activation checkpointing does not support experts that FSDP2 shards within "
            "a block (seen with PyTorch 2.13); use full"
        )
    if is_sharded and degrees.tensor * degrees.pipeline > 1:
        return (
            "experts that are spread over devices, sharded by FSDP2 and split by tensor or pipeline "
            "parallelism take 8 devices, and were never compared with a single process; use shard: 1"
        )
    if degrees.pipeline > 1 and degrees.replicate > 1:
        return (
            "copies of experts are averaged as soon as a gradient is there, which in a pipeline is "
            f"once a micro-batch; use data: 1, such as ep: {degrees.expert * degrees.replicate}"
        )
    shards = degrees.beside_context(sharded=is_sharded).shard
    for name in ("hidden_size", "expert_size"):
        rows = options.get(name)
        if isinstance(rows, int) and rows % shards:
            return f"{name} {rows} of experts does not divide over {shards} shards"
    return None


def _script_obstacle(cell: TrainingCell, target: ExecutionTarget) -> str | None:
    """A launch of a script runs on one node, and is told a batch that divides."""
    if cell.script is not None and cell.script.form == "watched":
        return "a benchmark starts no program that was watched; name it as script or command"
    per_node = target.devices_per_node
    if per_node is not None and cell.world_size > per_node:
        return (
            f"a script of your own is launched on a single node, here of {per_node} devices; run it "
            "over nodes under `torchscale watch`"
        )
    batch = cell.batch_size
    if batch is not None and cell.scaling == "strong" and batch % cell.world_size:
        return f"global batch {batch} does not divide by {cell.world_size} devices"
    return None


def _shape_obstacle(cell: TrainingCell, degrees: Degrees) -> str | None:
    """Heads, tokens and layers that the degrees do not divide, as far as the options give their
    numbers."""
    options, strategy = cell.model_options, cell.strategy
    facts = find_model(cell.model)
    heads = options.get("num_heads", None if facts is None else facts.heads)
    heads = options.get("num_kv_heads", heads)
    has_own_width = "head_size" in options
    for width_name, heads_name in () if has_own_width else _HEADS_OF_WIDTH:
        width, parts = options.get(width_name), options.get(heads_name)
        if isinstance(width, int) and isinstance(parts, int) and width % parts:
            return f"{heads_name} {parts} does not divide {width_name} {width}"
    length, layers = options.get("sequence_length"), options.get("num_layers")
    if isinstance(heads, int) and heads % degrees.tensor:
        return (
            f"{heads} attention heads do not divide over {degrees.tensor} tensor-parallel devices"
        )
    if is_sequence_parallel(strategy) and isinstance(length, int):
        tokens = length // degrees.context
        if tokens % degrees.tensor:
            return f"{tokens} tokens do not divide over {degrees.tensor} devices along the sequence"
    if degrees.pipeline > 1 and isinstance(strategy, PipelineBase):
        stages, pieces = strategy.stages(degrees), strategy.pieces(degrees)
        if isinstance(layers, int) and layers < stages:
            return (
                f"{layers} layers are too few for {stages} pipeline stages; lower the pipeline "
                "degree"
            )
        if strategy.schedule == "1f1b" and pieces < stages:
            return (
                f"schedule 1f1b over {stages} stages needs at least {stages} microbatches, not "
                f"{pieces}"
            )
        if strategy.schedule == "interleaved" and pieces % degrees.pipeline:
            return (
                f"{pieces} microbatches do not divide by the {degrees.pipeline} devices of an "
                "interleaved schedule"
            )
    return None


def _compile_obstacle(cell: TrainingCell) -> str | None:
    degrees = cell.degrees
    if cell.compile and degrees.tensor > 1 and degrees.data * degrees.context > 1:
        return (
            "torch.compile fails on tensor parallelism combined with data parallelism (seen with "
            "PyTorch 2.13)"
        )
    if (
        degrees.tensor > 1
        and isinstance(cell.compile, str)
        and cell.compile.startswith("max-autotune")
    ):
        return (
            f"compile {cell.compile} may choose other kernels on each tensor-parallel rank, and "
            "the parameters that they all hold then drift apart; use true or reduce-overhead"
        )
    return None


def _batch_obstacle(cell: TrainingCell) -> str | None:
    """Samples of a step that cannot be split evenly."""
    if cell.scaling == "strong" and cell.global_batch_size != cell.batch_size:
        return f"global batch {cell.batch_size} does not divide by {cell.world_size} devices"
    degrees = cell.degrees
    pieces, copy = cell.strategy.pieces(degrees), cell.copy_batch_size
    if degrees.pipeline > 1 and cell.gradient_accumulation > 1:
        return "a pipeline splits the batch into microbatches itself; set gradient_accumulation: 1"
    parts = max(pieces, cell.gradient_accumulation)
    if copy % parts:
        what = "microbatches" if pieces > 1 else "passes"
        return f"the {copy} samples per step and model replica do not divide by {parts} {what}"
    synthetic = cell.data_source.startswith("synthetic")
    epochs = cell.measurement.epochs or cell.measurement.warmup_epochs
    if epochs is not None and synthetic and cell.num_samples < cell.global_batch_size:
        return (
            f"an epoch of {cell.num_samples} samples is less than one global batch of "
            f"{cell.global_batch_size}"
        )
    return None


def _model_obstacle(cell: TrainingCell) -> str | None:
    facts = find_model(cell.model)
    kind = None if facts is None else facts.input_kind
    if kind is InputKind.TOKENS and cell.channels_last:
        return f"channels_last is a memory format for image models; {cell.model} takes tokens"
    if kind is InputKind.TOKENS and cell.data_source == "cifar100":
        return f"cifar100 has images, but {cell.model} takes tokens"
    classes = cell.model_options.get("num_classes")
    if cell.data_source == "cifar100" and isinstance(classes, int) and classes < _CIFAR_CLASSES:
        return (
            f"cifar100 has {_CIFAR_CLASSES} classes, {cell.model} has num_classes={classes}; raise "
            "it"
        )
    return None


def _lengths_obstacle(cell: TrainingCell) -> str | None:
    """Samples of different lengths where a model, its data or its strategy take one length."""
    lengths, facts, degrees = cell.lengths, find_model(cell.model), cell.degrees
    if lengths is None:
        return None
    if facts is None or facts.family not in _TAKES_DOCUMENTS:
        return (
            f"{cell.model} takes samples of one length; data.lengths needs a decoder or moe model"
        )
    if not cell.data_source.startswith("synthetic"):
        return f"{cell.data_source} has samples of one length; data.lengths needs synthetic data"
    if degrees.model > degrees.tensor:
        return (
            "data.lengths is not supported where devices pass a sample on or share its tokens: each "
            "must have the same shape, and the borders of documents are not sent along"
        )
    if lengths.packing == "padded" and facts.family == _EXPERTS:
        return "experts would compute the padding as well; use data.packing: packed"
    along = degrees.tensor if is_sequence_parallel(cell.strategy) else 1
    if lengths.packing == "padded" and WIDTH_MULTIPLE % along:
        return (
            f"samples are padded to a multiple of {WIDTH_MULTIPLE} tokens, which {along} devices "
            "along the sequence do not divide; use data.packing: packed"
        )
    return None


def _device_obstacle(cell: TrainingCell, device: DeviceKind) -> str | None:
    if device == "mps" and cell.world_size > 1:
        return "mps has a single device; use world size 1"
    staged = cell.degrees.pipeline > 1
    if staged and (device == "xpu" or (device == "cuda" and cell.measurement.sync_cuda)):
        return (
            "sync_cuda (and the clock for xpu) would synchronize the device between a pipeline's "
            "micro-batches"
        )
    if device != "cuda" and isinstance(cell.strategy, Ddp) and cell.strategy.comm_hook == "bf16":
        return "comm_hook bf16 needs NCCL, that is CUDA devices"
    return None


def _version_obstacle(cell: TrainingCell, target: ExecutionTarget) -> str | None:
    """Strategies that an older torch does not support on CPUs."""
    installed = version_numbers(target.torch)
    if target.device != "cpu" or not installed:
        return None
    degrees = cell.degrees
    needs = []
    if sharding(cell.strategy, degrees) is not None:
        needs.append(("FSDP", _FSDP_ON_CPUS))
    if degrees.pipeline > 1:
        needs.append(("a pipeline", _PIPELINES_ON_CPUS))
    for what, needed in needs:
        if installed < needed:
            return (
                f"{what} on CPUs needs PyTorch {'.'.join(map(str, needed))}; this is {target.torch}"
            )
    return None


def _precision_obstacle(cell: TrainingCell, target: ExecutionTarget) -> str | None:
    if cell.precision in ("fp8", *BLOCK_SCALED) and cell.degrees.tensor > 1:
        return f"{cell.precision} cannot be combined with tensor parallelism; use bf16"
    if cell.precision == "fp16" and cell.degrees.tensor * cell.degrees.pipeline > 1:
        return "fp16's gradient scaler does not support models that are split over ranks; use bf16"
    if cell.precision == "fp16" and cell.degrees.expert > 1:
        return (
            "fp16's gradient scaler does not know of gradients that overflow in another rank's "
            "experts; use bf16"
        )
    if target.device != "cuda":
        if cell.precision in _CUDA_ONLY:
            return f"{cell.precision} needs a CUDA device"
        return None
    needed = MIN_CAPABILITY.get(cell.precision)
    if needed is None:
        return None
    for info in target.devices:
        if info.index not in target.indices[: cell.world_size] or info.compute_capability is None:
            continue
        capability = tuple(int(part) for part in info.compute_capability.split("."))
        if capability < needed:
            minimum = ".".join(map(str, needed))
            return (
                f"{cell.precision} needs compute capability {minimum}; {info.name} has "
                f"{info.compute_capability}"
            )
    return _torchao_obstacle(cell, target)


def _torchao_obstacle(cell: TrainingCell, target: ExecutionTarget) -> str | None:
    """A precision whose products come from torchao, which is missing or too old."""
    if cell.precision not in BLOCK_SCALED:
        return None
    needs, install = (
        f"{cell.precision} needs torchao {TORCHAO}",
        f"pip install 'torchao>={TORCHAO}'",
    )
    if target.torchao is None:
        return f"{needs}, which is not installed: {install}"
    installed = version_numbers(target.torchao)
    if installed and installed < _LEAST_TORCHAO:
        return f"{needs}; this is {target.torchao}: {install}"
    return None
