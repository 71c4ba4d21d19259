"""Values that options and config keys accept. No pydantic here: the command line imports this to
build its help."""

from __future__ import annotations

from enum import Enum
from typing import Literal

MAX_NODES = 1024
"""Maximum number of nodes of a sweep: eight times as many as the channel between nodes was tried
with (benchmarks/channel_scale.py)."""
PrecisionChoice = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4"]
Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4", "own"]
"""Of a cell; ``own``: whatever a user's script computes in. The same for what follows."""
OptimizerChoice = Literal["sgd", "adam", "adamw"]
OptimizerName = Literal["sgd", "adam", "adamw", "own"]
DeviceRequest = Literal["auto", "cuda", "cpu", "mps", "xpu"]
DeviceKind = Literal["cuda", "cpu", "mps", "xpu"]
"""The device type that a request resolves to on a machine."""
CompileMode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
Checkpointing = Literal["none", "selective", "full"]
DataChoice = Literal["synthetic", "synthetic-host", "cifar100", "shards"]
DataSource = Literal["synthetic", "synthetic-host", "cifar100", "shards", "own"]
Packing = Literal["padded", "packed"]
"""How documents of different lengths become samples: each filled up to the longest beside it, or one
after the other without a gap."""
Isolation = Literal["auto", "cell", "group"]
Malloc = Literal["keep", "system"]
Placement = Literal["packed", "spread"]
Scaling = Literal["weak", "strong"]
Preset = Literal["standard", "quick"]
CellKind = Literal["training", "collectives", "hardware", "memory", "checkpoint"]
Operation = Literal[
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "send_recv",
    "pairs",
    "barrier",
]
ElementType = Literal["fp64", "fp32", "fp16", "bf16", "int64", "int32", "uint8"]
MatmulType = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8"]
PeakType = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4"]
"""Types of which a device may have a peak rate: also those whose products are not measured."""
OPERATIONS: tuple[Operation, ...] = Operation.__args__  # type: ignore[attr-defined]


class Rerun(str, Enum):
    """Which completed launches are measured again; earlier results are kept in a separate
    directory, not deleted."""

    FAILED = "failed"
    ALL = "all"


class SubmitEngine(str, Enum):
    """The scheduler that takes a benchmark; on Kubernetes, with Kubeflow Trainer or without."""

    SLURM = "slurm"
    KUBERNETES = "kubernetes"
    KUBERNETES_JOB = "kubernetes-job"


class Tool(str, Enum):
    """The profiler that makes a recording."""

    NSYS = "nsys"
    KINETO = "kineto"


class ToolChoice(str, Enum):
    """The requested profiler; ``auto`` uses nsys on CUDA if it is complete, else torch.profiler."""

    AUTO = "auto"
    NSYS = "nsys"
    KINETO = "kineto"


class ProfileTarget(str, Enum):
    """The purpose of a recording: decides what is recorded besides spans, and which tables are
    shown."""

    SYNC_STALLS = "sync_stalls"
    KERNELS = "kernels"
    MEMORY = "memory"
    INPUT = "input"
    ALL = "all"

    @property
    def memory(self) -> bool:
        """Whether allocations are recorded."""
        return self in (ProfileTarget.MEMORY, ProfileTarget.ALL)


class WindowChoice(str, Enum):
    """Which part of a recording is analyzed."""

    AUTO = "auto"
    STEPS = "steps"
    DEVICE = "device"


class Metric(str, Enum):
    """The metric of a comparison; values as in options and files."""

    THROUGHPUT = "throughput"
    """Global samples per second."""
    STEPS = "steps"
    """Optimizer steps per second of a script that is not told its batch size."""
    STEP_P95 = "step-p95"
    """95th percentile of the group's step within a launch, seconds."""
    MEMORY = "memory"
    """Peak bytes of the device that uses most."""
    ENERGY = "energy"
    """Samples per joule of all GPUs."""
    COST = "cost"
    """Samples per unit of money, from throughput and a price."""
    BUSBW = "busbw"
    """Highest bus bandwidth of a collective, bytes per second."""
    COMPUTE = "compute"
    """Peak rate of matrix products, FLOP/s of a device."""
    COPY = "copy"
    """Copy bandwidth, bytes per second."""
    SAVE = "save"
    """Rate at which a checkpoint is saved, bytes per second of all ranks."""
    LOAD = "load"
    """Rate at which a checkpoint is loaded from a disk proved cold, bytes per second of all
    ranks."""
    STOP = "stop"
    """How long training stops for a synchronous save, seconds."""
    STOP_ASYNC = "stop-async"
    """How long training stops for an asynchronous save, seconds."""

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher value is better."""
        lower = (Metric.STEP_P95, Metric.MEMORY, Metric.STOP, Metric.STOP_ASYNC)
        return self not in lower


class ResultSchema(str, Enum):
    """JSON that commands print or write for other programs, each with a published JSON Schema."""

    REPORT = "report"
    """``report --format json`` and ``benchmark --json``."""
    COMPARE = "compare"
    """``compare --format json``."""
    PEERS = "peers"
    """``compare --against FILE --format json``."""
    MACHINE = "machine"
    """``measure collectives --json``, ``measure hardware --json`` and ``measure memory --json``."""
    MAX_BATCH = "max-batch"
    """``measure memory --find-max-batch --json``."""
    PREDICT = "predict"
    """``predict --json``."""
    HISTORY = "history"
    """``history --json``."""
    TUNE = "tune"
    """``tune --json``."""
    BISECT = "bisect"
    """``bisect --json``."""
    PROFILE = "profile"
    """``profile --json`` and ``analysis.json``."""
    VALIDATE = "validate"
    """``validate --json``."""
    FLEET = "fleet"
    """``validate --nnodes N --json``."""
    AUTOPSY = "autopsy"
    """``autopsy --json``, and ``autopsy`` in the cells of a report."""
    BASELINE = "baseline"
    """The files of ``compare --save``."""


class TuningAxis(str, Enum):
    """What ``tune`` changes of a config to make training faster."""

    PRECISION = "precision"
    COMPILE = "compile"
    FUSED = "fused"
    CHANNELS_LAST = "channels_last"
    BUCKET = "bucket"
    """Size of DDP's gradient buckets, and gradients as views of them."""
    COMM_HOOK = "comm_hook"
    """Compression of gradients for communication."""
    CHECKPOINTING = "checkpointing"
    BATCH = "batch"
    WORKERS = "workers"
    """Loader processes."""
    STRATEGY = "strategy"
    """How devices share the work: every strategy that the model and their number allow."""


class Requirement(str, Enum):
    """What ``validate --require`` insists on."""

    CUDA = "cuda"
    NCCL = "nccl"
    NSYS = "nsys"


class CatalogKind(str, Enum):
    """What ``docs names`` shows."""

    MODELS = "models"
    STRATEGIES = "strategies"
    PRECISIONS = "precisions"
    OPTIMIZERS = "optimizers"
    PRESETS = "presets"
    HARDWARE = "hardware"
    DEVICES = "devices"
    LINKS = "links"


class ReportFormat(str, Enum):
    """What ``report`` writes."""

    HTML = "html"
    PDF = "pdf"
    MARKDOWN = "md"
    CSV = "csv"
    JSON = "json"
    TERMINAL = "terminal"


class ExportTarget(str, Enum):
    """Whose format ``export`` writes."""

    JUNIT = "junit"
    PROMETHEUS = "prometheus"
    OPENMETRICS = "openmetrics"
    GRAFANA_DASHBOARD = "grafana-dashboard"
    GITHUB_SUMMARY = "github-summary"
    GITHUB_BENCHMARK = "github-benchmark"
    GITHUB_BENCHMARK_SMALLER = "github-benchmark-smaller"
    PARQUET = "parquet"
    MLFLOW = "mlflow"
    WANDB = "wandb"
    STORAGE = "storage"

    @property
    def is_store(self) -> bool:
        """Whether it takes a directory or a store of runs, and no single text."""
        return self in _STORES


_STORES = (ExportTarget.PARQUET, ExportTarget.MLFLOW, ExportTarget.WANDB, ExportTarget.STORAGE)


class CompareFormat(str, Enum):
    """What ``compare`` writes."""

    TERMINAL = "terminal"
    HTML = "html"
    PDF = "pdf"
    MARKDOWN = "md"
    JSON = "json"


class MatchKey(str, Enum):
    """What of training cells must be equal for ``compare --match`` to compare them."""

    MODEL = "model"
    BATCH = "batch"
    """Samples of a step on each device."""
    GLOBAL_BATCH = "global_batch"
    DEVICES = "devices"
    PRECISION = "precision"
    STRATEGY = "strategy"
    SCALING = "scaling"
    OPTIMIZER = "optimizer"
    DATA = "data"


class Accept(str, Enum):
    """What ``compare --accept`` lets pass."""

    MISSING = "missing"
    """A side measured less than the reference."""
    UNCLEAR = "unclear"
    """Nothing could be decided."""
    FLAGS = "flags"
    """Only one side was contended or throttled."""
    VERSIONS = "versions"
    """Devices, precisions or versions of torch differ."""
    TRANSPORT = "transport"
    """Data moved between ranks another way, such as sockets instead of InfiniBand."""


class FailOn(str, Enum):
    """What makes ``compare`` fail."""

    REGRESSION = "regression"
    UNCLEAR = "unclear"
    NEVER = "never"
