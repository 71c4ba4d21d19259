"""Finds why a cell cannot run on a machine, as far as it is known before a launch. Pure."""

from __future__ import annotations

from torchscale.catalog.model_facts import CONTEXT, EXPERT, InputKind
from torchscale.catalog.models import MODELS, find_model
from torchscale.config.degrees import Degrees
from torchscale.config.strategies.model_parallel import PipelineBase
from torchscale.config.strategy import Hybrid, is_sequence_parallel, sharding
from torchscale.plan.device_obstacles import device_obstacle, precision_obstacle, version_obstacle
from torchscale.plan.execution_target import ExecutionTarget
from torchscale.schema.cells.training import WIDTH_MULTIPLE, TrainingCell

_HEADS_OF_WIDTH = (("d_model", "nhead"), ("hidden_size", "num_heads"))
"""Options whose width is split evenly over attention heads."""
_CIFAR_CLASSES = 100
_EXPERTS = "moe"
_TAKES_DOCUMENTS = ("decoder", _EXPERTS)
"""Families whose attention keeps documents apart, and whose loss leaves tokens out."""


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
        or device_obstacle(cell, target.device)
        or version_obstacle(cell, target)
        or precision_obstacle(cell, target)
    )


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
