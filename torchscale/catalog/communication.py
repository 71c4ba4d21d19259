"""What communicates in a recording of a device: kernels by their names, and operators whose own
kernels do.

NCCL is one library of many: custom all-reduces of inference engines, symmetric memory, libraries of
other makers and of experts' tokens run in kernels of their own. Whatever is not known here counts as
compute, so that a wait in it would be lost: :func:`may_communicate` tells names that look like it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all_reduce", "all_gather", "reduce_scatter"
ALL_TO_ALL, BROADCAST, SEND_RECV = "all_to_all", "broadcast", "send_recv"
BARRIER = "barrier"


class Library(NamedTuple):
    """Kernels of one library.

    Attributes:
        name: As its users call it.
        kernels: Pattern of the names of kernels, from the start of a namespace or function, without
            arguments.
        source: Where the names were read.
    """

    name: str
    kernels: str
    source: str


LIBRARIES = (
    Library("NCCL, RCCL", r"nccl|rccl", "ncclDevKernel_…, ncclSymkDevKernel_…: src/device"),
    Library(
        "symmetric memory of torch",
        r"multimem_|(one|two)_shot_|c10d::symmetric_memory::|exchangeSplitAndOffset|allToAllV",
        "pytorch, csrc/distributed/c10d/symm_mem/*.cu; recordings of an H200",
    ),
    Library(
        "vLLM, sglang, AITER",
        r"cross_device_reduce|quickreduce|quick_reduce|reduce_scatter_cross_device"
        r"|allgather_(lastdim|vec|naive)|custom_all_reduce",
        "vllm csrc/custom_all_reduce.cuh, csrc/quickreduce; sgl-kernel csrc/allreduce; ROCm/aiter",
    ),
    Library(
        "TensorRT-LLM, FlashInfer",
        r"(one|two)ShotAllReduce|allreduce_fusion|lamport\w*(AllReduce|reduce|style)|moereduce"
        r"|moe(Prepare|AllToAll|Alltoall|A2A)|userbuffers_|kuserbuffers_|tensorrt_llm::mnnvl"
        r"|mnnvl_allreduce|twoshot_allreduce|rmsNormLamport",
        "TensorRT-LLM cpp/tensorrt_llm/kernels; flashinfer trtllm_allreduce*.cuh; Transformer "
        "Engine comm_gemm_overlap/userbuffers",
    ),
    Library(
        "DeepEP, pplx, NVSHMEM",
        r"deep_ep::(intranode|internode|internode_ll)::|deep_ep::\w*(dispatch|combine)"
        r"|hybrid_ep::|uccl::|pplx::|a2a_(dispatch|combine)|nvshmem|rocshmem"
        r"|(barrier|sync)(_all)?_on_stream_kernel|mori::|Ep(Dispatch|Combine)\w*Kernel"
        r"|grpcoll::|(notify_)?group_(cast|reduce)_kernel",
        "deepseek-ai/DeepEP csrc/kernels and its hybrid_ep; uccl; pplx-kernels, pplx-garden; "
        "NVSHMEM's device library; ROCm/mori; SandAI MagiAttention's grpcoll",
    ),
    Library("MSCCL, MSCCL++", r"msccl", "microsoft/msccl, microsoft/mscclpp src"),
    Library("oneCCL", r"oneccl|ccl_kernel|ccl::", "torch-xpu-ops; oneapi-src/oneCCL src/sched"),
    Library("HCCL", r"hccl|hcom_", "Ascend: hcom_allReduce__…; Gaudi: hccl"),
    Library("MCCL", r"mccl", "MooreThreads MUSA; MTIA"),
    Library("BKCL, CNCL, ECCL", r"bkcl|cncl|eccl|tccl|xccl", "Kunlun, Cambricon, Enflame"),
    Library("MPI", r"ucc_|mpi_(all|bcast|reduce|send|recv)", "openucx/ucc src/components/ec/cuda"),
)
_COLLECTIVE = (
    r"(?:(?<![a-z])all|(?-i:All))_?(?:reduce|gather|to_?all|2all)|reduce_?scatter"
    r"|cross_?device_?reduce|(?<![a-z])send_?recv"
)
"""What a function is called that is a collective, whoever wrote it; ``small_reduce`` is none."""
_WITHIN = r"(?:block|warp|thread|cta|group|cluster|wave|wavefront|simd|subgroup|grid)_?"
"""All-reduces of threads: the same words, but within a device."""
_NOT_ONE = re.compile(
    _WITHIN + r"(?:" + _COLLECTIVE + r")|^triton_[a-z]{2,4}_(?:fused|tem)", re.IGNORECASE
)
"""Besides, torch.compile names a kernel after the operators around those that it fuses."""
_ONE = re.compile(_COLLECTIVE, re.IGNORECASE)
_KNOWN = re.compile(
    r"(?:^|::|[^\w:])_*k?(?:" + "|".join(f"(?:{one.kernels})" for one in LIBRARIES) + r")",
    re.IGNORECASE,
)
_SIMILAR = re.compile(
    r"cross_?device|multi_?mem|nvls|lamport|peer_?(?:to_?peer|copy|access)|p2p|remote_(?:put|get)"
    r"|ipc_|(?:^|[^a-z])(?:dispatch|combine|exchange)_?(?:token|expert|rank)|a2a"
    r"|(?:token|expert|rank|moe|ep)s?_?(?:dispatch|combine|exchange)"
    r"|inter_?node|intra_?node|put_?signal|wait_?signal|symm_?mem|all_?red(?!uce)|push_?pull"
    r"|(?:^|[^a-z])ring_?(?:reduce|send|recv|all)|shmem_?(?:put|get|barrier)|comm_?kernel",
    re.IGNORECASE,
)
"""What such kernels are called by authors that are not in the table."""
_OPERATOR = re.compile(
    r"(?:c10d|symm_mem|_?c10d_functional|_dtensor|_C_custom_ar|_qr|deep_ep|pplx|mscclpp|nvshmem"
    r"|nccl|oneccl|xccl|hccl|mccl|torch_ccl|mori)::"
    r"|record_param_comms$|(?:nccl2?|xccl|hccl|mccl)[\w-]*:\w"
    r"|[A-Za-z_]\w*::\w*(?:" + _COLLECTIVE + r")",
    re.IGNORECASE,
)
"""``symm_mem::one_shot_all_reduce``, ``vllm::all_reduce``, ``trtllm::allreduce``,
``sgl_kernel::all_reduce``, ``aiter::all_reduce_``."""
_GENERAL = re.compile(
    r"at::native::|at_cuda_detail|cub::|cutlass|cublas|nvjet|gemm|^triton_[a-z]{2,4}_(?:fused|tem)"
    r"|elementwise|vectorized|Memset|fill_kernel|rocblas|Cijk_|tensile|cudnn|miopen|flash|split_?kv|attention|(?:^|[^a-z])(?:fmha|mla|attn|topk|moe_align)"
    r"|_copy_(?:in|out)(?:_|$)",
    re.IGNORECASE,
)
"""Kernels that an operator runs beside those that communicate."""
_TEMPLATE = re.compile(r"<[^<>]*>")
_MAX_NESTED = 12
_MAX_NAME = 2_000
"""Characters of a name that are looked at: namespaces and functions stand before arguments."""
_CACHED = 65_536


@lru_cache(maxsize=_CACHED)
def function_of(name: str) -> str:
    """Namespaces and function of a kernel: ``void vllm::f<c10::Half, 4>(int*)`` → ``vllm::f``."""
    text = name[:_MAX_NAME].replace("(anonymous namespace)", "_")
    for _ in range(_MAX_NESTED):
        shorter = _TEMPLATE.sub("", text)
        if shorter == text:
            break
        text = shorter
    return text.partition("<")[0].partition("(")[0].strip().removeprefix("void ")


@lru_cache(maxsize=_CACHED)
def communicates(kernel: str) -> bool:
    """Whether a kernel moves data between ranks, or waits for them, by its name."""
    function = function_of(kernel)
    if _KNOWN.search(function):
        return True
    return _ONE.search(function) is not None and _NOT_ONE.search(function) is None


def is_nccl_kernel(name: str) -> bool:
    """Whether a kernel is one of NCCL's."""
    return name[:4].lower() == "nccl"


def is_communication_operator(operator: str) -> bool:
    """Whether an operator communicates, so that kernels which it launches itself do."""
    return _OPERATOR.match(operator) is not None


@lru_cache(maxsize=_CACHED)
def is_general(kernel: str) -> bool:
    """Whether a kernel is one of the many that all operators use: products, copies of elements."""
    return _GENERAL.search(kernel[:_MAX_NAME]) is not None


@lru_cache(maxsize=_CACHED)
def may_communicate(kernel: str) -> bool:
    """Whether the name of a kernel that is not known looks like communication."""
    return _SIMILAR.search(function_of(kernel)) is not None and not is_general(kernel)


_OPS = (
    ("crossdevicereduce", ALL_REDUCE),
    ("allreduce", ALL_REDUCE),
    ("allgather", ALL_GATHER),
    ("reducescatter", REDUCE_SCATTER),
    ("alltoall", ALL_TO_ALL),
    ("all2all", ALL_TO_ALL),
    ("broadcast", BROADCAST),
    ("bcast", BROADCAST),
    ("sendrecv", SEND_RECV),
    ("barrier", BARRIER),
    ("dispatch", ALL_TO_ALL),
    ("combine", ALL_TO_ALL),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
    ("send", SEND_RECV),
    ("recv", SEND_RECV),
)
"""Part of a name → operation; the first that fits decides, so ``allgather`` stands before
``gather``."""


def op_of(name: str) -> str:
    """The collective that a kernel, a call or an annotation stands for:
    ``ncclDevKernel_AllReduce_…`` → ``all_reduce``.

    A send here is a receive there: both are ``send_recv``. What is not known keeps its own name.
    """
    flat = name.lower().replace("_", "")
    for part, op in _OPS:
        if part in flat:
            return op
    return name.partition("(")[0][:80]


def is_known_op(name: str) -> bool:
    """Whether :func:`op_of` knows an operation in ``name``."""
    flat = name.lower().replace("_", "")
    return any(part in flat for part, _ in _OPS)
