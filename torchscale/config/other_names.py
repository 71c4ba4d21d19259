"""What other tools call keys and precisions of a config."""

from __future__ import annotations

from collections.abc import Mapping

OTHER_KEYS: Mapping[str, str] = {
    "experiment": "experiment_name",
    "experiment.name": "experiment_name",
    "name": "experiment_name",
    "data.batch_size": "batch_sizes",
    "training.batch_size": "batch_sizes",
    "data.mode": "data.source",
    "data.dataset": "data.source",
    "data.root": "data.data_dir",
    "data.num_workers": "data.workers",
    "model.name": "models",
    "model.d_model": "model.options.d_model",
    "d_model": "model.options.d_model",
    "sequence_length": "model.options.sequence_length",
    "seq_len": "model.options.sequence_length",
    "seq_length": "model.options.sequence_length",
    "image_size": "model.options.image_size",
    "num_classes": "model.options.num_classes",
    "gpus": "gpu_counts",
    "num_gpus": "gpu_counts",
    "num_devices": "gpu_counts",
    "world_size": "gpu_counts",
    "nproc_per_node": "gpu_counts",
    "hardware.gpus": "gpu_counts",
    "hardware.num_gpus": "gpu_counts",
    "hardware.gpu_counts": "gpu_counts",
    "hardware.device": "device",
    "hardware.precision": "training.precision",
    "hardware.name": "device",
    "hardware.preset": "benchmark.preset",
    "preset": "benchmark.preset",
    "strategy": "parallel.strategy",
    "training.strategy": "parallel.strategy",
    "training.lr": "training.learning_rate",
    "optimizer.name": "training.optimizer",
    "optimizer.type": "training.optimizer",
    "epochs": "training.epochs",
    "steps": "benchmark.measure_steps",
    "num_steps": "benchmark.measure_steps",
    "num_iterations": "benchmark.measure_steps",
    "benchmark.iterations": "benchmark.measure_steps",
    "num_warmup": "benchmark.warmup_steps",
    "warmup": "benchmark.warmup_steps",
    "warmup_iterations": "benchmark.warmup_steps",
    "mixed_precision": "training.precision",
    "dtype": "training.precision",
    "gradient_accumulation_steps": "training.gradient_accumulation",
    "repeats": "benchmark.repeats",
    "runs": "benchmark.repeats",
}
"""Keys of other tools' configs, and shorter guesses → the key here."""
SAME_PRECISIONS: Mapping[str, str] = {
    "float32": "fp32", "float": "fp32", "float16": "fp16", "half": "fp16", "bfloat16": "bf16", "float8": "fp8"
}  # fmt: skip
"""What PyTorch calls a precision → its name here."""
