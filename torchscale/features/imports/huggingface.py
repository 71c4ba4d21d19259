"""Arguments of Hugging Face's Trainer (and of trainers built on it) and configs of accelerate."""

from __future__ import annotations

from collections.abc import Mapping

from torchscale.config.translate import Translation
from torchscale.config.yaml_reader import Data
from torchscale.features.imports.batches import place_batches
from torchscale.features.imports.deepspeed import place_deepspeed, place_stage
from torchscale.features.imports.fsdp import place_accelerate_fsdp, place_trainer_fsdp
from torchscale.features.imports.models import hub_model
from torchscale.features.imports.names import OPTIMIZERS, PRECISIONS
from torchscale.features.imports.worksheet import Worksheet, is_on

_MODEL_KEYS = ("model_name_or_path", "base_model", "model_name", "model_id", "model")
_TRAINER_KEYS = (
    *_MODEL_KEYS[:2],
    "per_device_train_batch_size",
    "per_gpu_train_batch_size",
    "num_train_epochs",
    "micro_batch_size",
)
_ADAPTERS = ("finetuning_type", "adapter", "use_peft", "use_lora", "load_in_4bit", "load_in_8bit")
_ACCELERATE_KEYS = ("distributed_type", "compute_environment", "fsdp_config", "deepspeed_config")
_LEFT: Mapping[str, str] = {
    "max_steps": "is the length of a training; see benchmark.measure_steps",
    "num_train_epochs": "is the length of a training; see training.epochs",
    "num_epochs": "is the length of a training; see training.epochs",
    "warmup_steps": "warms the learning rate up, which is constant here",
    "warmup_ratio": "warms the learning rate up, which is constant here",
    "lr_scheduler_type": "the learning rate is constant here",
}
_TRAINER_BATCH = 8
"""TrainingArguments' own ``per_device_train_batch_size``."""
_STRATEGIES: Mapping[str, str] = {
    "no": "none",
    "multi_gpu": "ddp",
    "multi_cpu": "ddp",
    "multi_xpu": "ddp",
    "multi_npu": "ddp",
}
"""accelerate's ``distributed_type`` → a strategy; FSDP, DEEPSPEED and others have sections."""


def is_trainer(data: Mapping[str, Data]) -> bool:
    """Whether a config has the form of a Trainer's arguments."""
    return any(key in data for key in _TRAINER_KEYS)


def from_trainer(data: Mapping[str, Data]) -> Translation:
    """Arguments of a Trainer."""
    sheet = Worksheet("Hugging Face Trainer", data)
    place_trainer(sheet, batch=_TRAINER_BATCH)
    return sheet.done()


def place_trainer(sheet: Worksheet, above: str = "", batch: int | None = None) -> None:
    """Move a Trainer's arguments below ``above`` (with its dot) to their places.

    Args:
        sheet: The config.
        above: The section of the arguments.
        batch: The suite's own batch size.
    """
    for key in _MODEL_KEYS:
        name = sheet.take(above + key)
        if isinstance(name, str):
            sheet.place("models", [hub_model(name)], above + key)
    micro = next(
        (
            above + key
            for key in ("per_gpu_train_batch_size", "micro_batch_size")
            if sheet.has(above + key)
        ),
        f"{above}per_device_train_batch_size",
    )
    place_batches(
        sheet, micro=micro, accumulation=f"{above}gradient_accumulation_steps", default=batch
    )
    for precision in ("fp8", "bf16", "fp16", "tf32"):
        if is_on(sheet.take(above + precision)):
            sheet.place("training.precision", precision, above + precision)
    for key in ("learning_rate", "lr"):
        sheet.move(above + key, "training.learning_rate")
    sheet.move(f"{above}max_grad_norm", "training.gradient_clipping")
    sheet.move(f"{above}seed", "training.seed")
    sheet.move(f"{above}dataloader_num_workers", "data.workers")
    for key in ("max_seq_length", "max_length", "cutoff_len", "sequence_len", "block_size"):
        sheet.move(above + key, "model.options.sequence_length")
    for key in _ADAPTERS:
        word = sheet.take_word(above + key)
        if word and word not in ("full", "false"):
            sheet.leave(above + key, f"{word}: all parameters are trained here")
            sheet.differ(f"all parameters are trained: there {key} is {word}")
    _switches(sheet, above)
    _optimizer(sheet, above)
    place_trainer_fsdp(sheet, f"{above}fsdp")
    if sheet.has(f"{above}deepspeed"):
        if sheet.take(f"{above}deepspeed") is None:
            place_deepspeed(sheet, f"{above}deepspeed.")
        else:
            sheet.leave(f"{above}deepspeed", "is another file; `torchscale init --from` takes it")
    sheet.leave_present(_LEFT, above)
    sheet.settle(f"{above}output_dir", "needs no key: results go to results/NAME")


def _switches(sheet: Worksheet, above: str) -> None:
    for key, target, value in (
        ("gradient_checkpointing", "training.activation_checkpointing", "full"),
        ("torch_compile", "model.compile", True),
        ("use_cpu", "device", "cpu"),
        ("no_cuda", "device", "cpu"),
        ("full_determinism", "training.deterministic", True),
    ):
        if sheet.has(above + key) and is_on(sheet.take(above + key)):
            sheet.place(target, value, above + key)
    if sheet.has(f"{above}dataloader_pin_memory"):
        pinned = is_on(sheet.take(f"{above}dataloader_pin_memory"))
        sheet.place("data.pin_memory", pinned, f"{above}dataloader_pin_memory")


def _optimizer(sheet: Worksheet, above: str) -> None:
    for key in ("optim", "optimizer"):
        name = sheet.take_word(above + key)
        if not name:
            continue
        if name not in OPTIMIZERS:
            sheet.leave(above + key, f"{name}: sgd, adam or adamw here")
            continue
        here, fused = OPTIMIZERS[name]
        sheet.place("training.optimizer", here, above + key)
        if fused:
            sheet.place("training.fused", value=True)


def is_accelerate(data: Mapping[str, Data]) -> bool:
    """Whether a config has the form of accelerate's."""
    return any(key in data for key in _ACCELERATE_KEYS) or (
        "num_processes" in data and "mixed_precision" in data
    )


def from_accelerate(data: Mapping[str, Data]) -> Translation:
    """A config of accelerate, which names no model."""
    sheet = Worksheet("accelerate", data)
    count = sheet.take_whole("num_processes")
    nodes = sheet.take_whole("num_machines")
    if count is not None:
        sheet.place("gpu_counts", [count], "num_processes")
    if nodes is not None and nodes > 1:
        sheet.place("launch.nodes", nodes, "num_machines")
    local = None
    if count is not None and nodes is not None and nodes > 1 and count % nodes == 0:
        local = count // nodes
    word = sheet.take_word("mixed_precision")
    if word == "false":  # YAML 1.1 reads `no` so
        word = "no"
    if word in PRECISIONS:
        sheet.place("training.precision", PRECISIONS[word], "mixed_precision")
    elif word:
        sheet.leave("mixed_precision", f"{word}: expected no, fp16, bf16 or fp8")
    if is_on(sheet.take("use_cpu")):
        sheet.place("device", "cpu", "use_cpu")
    place_batches(sheet, accumulation="gradient_accumulation_steps")
    _accelerate_strategy(sheet, local, count)
    if sheet.take_word("dynamo_config.dynamo_backend") == "inductor":
        sheet.place("model.compile", value=True)
    sheet.leave_present(
        {
            "machine_rank": "torchscale asks for --node-rank",
            "main_process_ip": "torchscale asks for --master",
            "main_process_port": "torchscale asks for --master",
            "fsdp_config": "is tuning of FSDP's own",
            "compute_environment": "says where accelerate starts",
        }
    )
    return sheet.done()


def _accelerate_strategy(sheet: Worksheet, local: int | None, count: int | None) -> None:
    kind = sheet.take_word("distributed_type")
    if kind == "false":  # YAML 1.1 reads `NO` so
        kind = "no"
    degrees = {
        here: sheet.take_whole(f"parallelism_config.parallelism_config_{there}_size") or 1
        for here, there in (
            ("data", "dp_replicate"),
            ("shard", "dp_shard"),
            ("tensor", "tp"),
            ("cp", "cp"),
        )
    }
    above_one = {name: degree for name, degree in degrees.items() if degree > 1}
    if above_one:
        sheet.place("parallel.strategy", {"name": "hybrid", **above_one}, "parallelism_config")
    if kind == "fsdp":
        place_accelerate_fsdp(sheet, local)
    elif kind == "deepspeed":
        _accelerate_deepspeed(sheet)
    elif kind in _STRATEGIES:
        strategy = _STRATEGIES[kind]
        if strategy == "none" and (count or 1) > 1:
            strategy = "ddp"
        sheet.place("parallel.strategy", strategy, "distributed_type")
    elif kind:
        sheet.leave("distributed_type", f"{kind}: see parallel.strategy")


def _accelerate_deepspeed(sheet: Worksheet) -> None:
    section = "deepspeed_config."
    if sheet.has(f"{section}deepspeed_config_file"):
        file = sheet.take(f"{section}deepspeed_config_file")
        sheet.leave(
            f"{section}deepspeed_config_file",
            f"{file}: another file, with the strategy; `torchscale init --from` takes it",
        )
    stage = sheet.take(f"{section}zero_stage")
    devices = [
        sheet.take_word(f"{section}offload_{part}_device") for part in ("optimizer", "param")
    ]
    if stage is not None:
        place_stage(sheet, stage, f"{section}zero_stage", offload="cpu" in devices)
    place_batches(sheet, accumulation=f"{section}gradient_accumulation_steps")
    sheet.move(f"{section}gradient_clipping", "training.gradient_clipping")
