"""What other suites call models, precisions, optimizers, strategies and collectives → the names
here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

PLACEHOLDER_MODEL = "my_package.my_module:build_model"
"""Written where no model is known, so that the config loads; it names nothing that exists."""

MODELS: Mapping[str, str] = {
    # SuperBench's sizes are those of the papers.
    "gpt2-small": "gpt2",
    "gpt2_small": "gpt2",
    "gpt2-124m": "gpt2",
    "openai-community/gpt2": "gpt2",
    "openai-community/gpt2-medium": "gpt2-medium",
    "openai-community/gpt2-large": "gpt2-large",
    "openai-community/gpt2-xl": "gpt2-xl",
    # The uncased vocabulary is that of the catalogue; the cased one is smaller.
    "bert-base-uncased": "bert-base",
    "bert-large-uncased": "bert-large",
    "google-bert/bert-base-uncased": "bert-base",
    "google-bert/bert-large-uncased": "bert-large",
    "resnet-18": "resnet18",
    "resnet-50": "resnet50",
    "resnet-152": "resnet152",
    "microsoft/resnet-18": "resnet18",
    "microsoft/resnet-50": "resnet50",
    "microsoft/resnet-152": "resnet152",
    "google/vit-base-patch16-224": "vit-b",
    "google/vit-large-patch16-224": "vit-l",
    "vit_b_16": "vit-b",
    "vit_l_16": "vit-l",
    "google-t5/t5-small": "t5-small",
    "google-t5/t5-base": "t5-base",
    "google-t5/t5-large": "t5-large",
    # Llama 3.1 8B has the shapes of Llama 3 8B.
    "meta-llama/llama-3.2-1b": "llama-1b",
    "meta-llama/llama-3.2-1b-instruct": "llama-1b",
    "meta-llama/meta-llama-3-8b": "llama-8b",
    "meta-llama/meta-llama-3-8b-instruct": "llama-8b",
    "meta-llama/llama-3.1-8b": "llama-8b",
    "meta-llama/llama-3.1-8b-instruct": "llama-8b",
    "meta-llama/meta-llama-3.1-8b": "llama-8b",
    "meta-llama/meta-llama-3.1-8b-instruct": "llama-8b",
    "mistralai/mixtral-8x7b-v0.1": "mixtral-8x7b",
    "mistralai/mixtral-8x7b-instruct-v0.1": "mixtral-8x7b",
    "qwen/qwen3-30b-a3b": "qwen3-30b-a3b",
    "deepseek-ai/deepseek-v2-lite": "deepseek-v2-lite",
    "deepseek-ai/deepseek-v3": "deepseek-v3",
}
"""Name there, in lower case → a catalogued model of the same architecture and size."""

MLPERF_MODELS: Mapping[str, str] = {
    "resnet": "resnet50",
    "bert": "bert-large",
    "llama31_8b": "llama-8b",
    "deepseekv3_671b": "deepseek-v3",
}
"""Benchmark of MLPerf Training → the catalogued model that it trains."""

_TORCHVISION = """
alexnet convnext_base convnext_large convnext_small convnext_tiny densenet121 densenet161
densenet169 densenet201 efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3
efficientnet_b4 efficientnet_b5 efficientnet_b6 efficientnet_b7 efficientnet_v2_l efficientnet_v2_m
efficientnet_v2_s googlenet inception_v3 maxvit_t mnasnet0_5 mnasnet0_75 mnasnet1_0 mnasnet1_3
mobilenet_v2 mobilenet_v3_large mobilenet_v3_small regnet_x_16gf regnet_x_1_6gf regnet_x_32gf
regnet_x_3_2gf regnet_x_400mf regnet_x_800mf regnet_x_8gf regnet_y_128gf regnet_y_16gf
regnet_y_1_6gf regnet_y_32gf regnet_y_3_2gf regnet_y_400mf regnet_y_800mf regnet_y_8gf resnet101
resnet152 resnet18 resnet34 resnet50 resnext101_32x8d resnext101_64x4d resnext50_32x4d
shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5 shufflenet_v2_x2_0 squeezenet1_0
squeezenet1_1 swin_b swin_s swin_t swin_v2_b swin_v2_s swin_v2_t vgg11 vgg11_bn vgg13 vgg13_bn vgg16
vgg16_bn vgg19 vgg19_bn vit_b_16 vit_b_32 vit_h_14 vit_l_16 vit_l_32 wide_resnet101_2
wide_resnet50_2
"""
TORCHVISION = frozenset(_TORCHVISION.split())
"""Image classifiers of torchvision."""

PRECISIONS: Mapping[str, str] = {
    "no": "fp32",
    "fp32": "fp32",
    "float32": "fp32",
    "tf32": "tf32",
    "tensorfloat32": "tf32",
    "fp16": "fp16",
    "float16": "fp16",
    "half": "fp16",
    "amp": "fp16",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp8": "fp8",
    "fp8_hybrid": "fp8",
    "fp8_e4m3": "fp8",
}

OPTIMIZERS: Mapping[str, tuple[str, bool]] = {
    "adam": ("adam", False),
    "adamw": ("adamw", False),
    "adamw_torch": ("adamw", False),
    "adamw_hf": ("adamw", False),
    "adamw_torch_fused": ("adamw", True),
    "sgd": ("sgd", False),
}
"""Optimizer there, in lower case → its name here, and whether it is the fused implementation."""

STRATEGIES: Mapping[str, str] = {
    "none": "none",
    "single": "none",
    "data": "ddp",
    "data_parallel": "ddp",
    "dp": "ddp",
    "ddp": "ddp",
    "zero1": "zero1",
    "fsdp": "fsdp",
    "model": "model",
    "model_parallel": "model",
    "tensor": "tensor",
    "tensor_parallel": "tensor",
    "tp": "tensor",
    "sequence": "sequence",
    "pipeline": "pipeline",
    "pipeline_parallel": "pipeline",
    "pp": "pipeline",
    "hybrid": "hybrid",
}

DEVICES: Mapping[str, str] = {
    "cuda": "cuda",
    "gpu": "cuda",
    "rocm": "cuda",
    "cpu": "cpu",
    "mps": "mps",
    "metal": "mps",
    "xpu": "xpu",
    "auto": "auto",
}

COLLECTIVES: Mapping[str, str] = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "sendrecv": "send_recv",
}
"""Operation of nccl-tests, without underscores → its name here."""

NCCL_TYPES: Mapping[str, str] = {
    "float": "fp32",
    "float32": "fp32",
    "fp32": "fp32",
    "half": "fp16",
    "float16": "fp16",
    "fp16": "fp16",
    "bfloat16": "bf16",
    "bf16": "bf16",
    "double": "fp64",
    "float64": "fp64",
    "fp64": "fp64",
    "int32": "int32",
    "int": "int32",
    "int64": "int64",
    "uint8": "uint8",
}

NCCL_FLAGS: Mapping[str, str] = {
    "t": "nthreads",
    "g": "ngpus",
    "b": "minbytes",
    "e": "maxbytes",
    "i": "stepbytes",
    "f": "stepfactor",
    "n": "iters",
    "m": "agg_iters",
    "w": "warmup_iters",
    "N": "run_cycles",
    "p": "parallel_init",
    "c": "check",
    "o": "op",
    "d": "datatype",
    "r": "root",
    "z": "blocking",
    "y": "stream_null",
    "T": "timeout",
    "G": "cudagraph",
    "C": "report_cputime",
    "a": "average",
    "R": "local_register",
    "D": "device_implementation",
    "V": "device_cta_count",
    "S": "report_timestamps",
    "J": "output_file",
    "M": "memory",
    "u": "unalign",
    "I": "per_iter_timing",
    "K": "per_iter_skip",
}
"""Short flag of nccl-tests → the long one."""
NCCL_OPTIONS: Mapping[str, str] = {
    "minbytes": "--min-bytes",
    "maxbytes": "--max-bytes",
    "iters": "--iters",
    "warmup_iters": "--warmup",
    "datatype": "--dtype",
    "ngpus": "--gpus",
}
"""Long flag of nccl-tests → the option of ``measure collectives`` that means the same."""
NCCL_REASONS: Mapping[str, str] = {
    "stepfactor": "sizes double, there is no step factor",
    "stepbytes": "sizes double, there is no fixed step",
    "nthreads": "a GPU is a process, there are no threads",
    "check": "every element of every result is checked",
    "op": "reductions are sums, there is no choice",
    "root": "the root is rank 0",
    "agg_iters": "calls are not aggregated",
    "average": "times are means over ranks",
    "blocking": "calls do not block",
    "run_cycles": "there is no repetition of a sweep",
    "timeout": "launch.timeout_seconds ends a launch",
    "parallel_init": "a GPU is a process, there are no threads",
    "cudagraph": "there are no CUDA graphs of collectives",
    "output_file": "--json prints the results",
    "report_cputime": "there is no CPU time of collectives",
    "per_iter_timing": "calls are also timed one by one",
}
"""Long flag of nccl-tests that has no option here → why."""


def nccl_flags(arguments: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Each flag in arguments of nccl-tests, as it is typed, its long name and its value."""
    remaining = list(arguments)
    while remaining:
        typed = remaining.pop(0)
        flag, _, value = typed.partition("=")
        name = flag.lstrip("-")
        if not flag.startswith("-") or not name:
            continue
        if not flag.startswith("--") and len(name) > 1:
            flag, name, value = flag[:2], name[0], typed[2:]  # -b8
        if not value and remaining and not remaining[0].startswith("-"):
            value = remaining.pop(0)
        yield flag, NCCL_FLAGS.get(name, name), value
