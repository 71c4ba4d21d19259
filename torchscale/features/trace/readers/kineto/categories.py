"""What the categories of events mean, of every accelerator that torch records.

Kineto names its activities in ``ActivityType.h``; torch before 1.12 wrote them in other words.
"""

from __future__ import annotations

import re

HOST = -1
"""Where a device's number is expected: of an event of the host."""
OLD = {
    "Operator": "cpu_op",
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Runtime": "cuda_runtime",
}
"""torch 1.8 to 1.11 → today."""
OLD_NOTE = "recorded by a torch before 1.12 (its categories are Operator, Kernel, Runtime)"
KERNELS = frozenset({"kernel", "mtia_ccp_events"})
"""Work of a device: of CUDA, ROCm, XPU and torch's backends for others; of MTIA."""
COPIES = frozenset({"gpu_memcpy", "gpu_memset"})
_COPIES_AMONG_KERNELS = frozenset({"dma_request"})
"""MTIA's."""
_HOST = frozenset({"cpu_op", "user_annotation"})
UNTITLED_TASK = "tasks of an Ascend NPU"
"""torch_npu writes a device's tasks without a category; their arguments have a Task Type."""
_UNUSED = frozenset(
    {
        "", "python_function", "ac2g", "fwdbwd", "async_gpu", "Trace", "overhead", "cpu_instant_event",
        "gpu_user_annotation", "cuda_sync", "cuda_event", "cuda_profiler_range", "external_correlation",
        "async_npu", "async_cpu_to_gpu", "async_task_queue", "enqueue", "dequeue", "HostToDevice", "forward_backward",
        "mtia_counters", "gpu_pm_counter", "async",
    }
)  # fmt: skip
"""Known, and of no use here: what they tell is told by others, or is no work."""
_ACCELERATOR = re.compile(
    r"(?:gpu|cuda|hip|xpu|hpu|npu|mtia|mlu|musa|gcu|tpu|glow|ascend|privateuse1|collective_comm"
    r"|device)(?:_|$)"
)
"""``hpu_op``, ``glow_runtime``, ``mtia_insight``."""
_LAUNCH = re.compile(r"launch|enqueue|submit|mem(?:cpy|set)\w*async", re.IGNORECASE)
"""``cudaLaunchKernelExC``, ``hipExtModuleLaunchKernel``, ``hipGraphLaunch``,
``urEnqueueKernelLaunch``, ``zeCommandListAppendLaunchKernel``, ``cudaMemcpyPeerAsync`` …"""
_HOST_WAIT = re.compile(
    r"(?:cuda|cu|hip)(?:Stream|Device|Event|Ctx)Synchronize|(?:cuda|hip)Memcpy(?:WithStream)?$"
    r"|ur(?:QueueFinish|EventWait)|ze\w*HostSynchronize|zeCommandQueueSynchronize"
    r"|aclrtSynchronize\w+|mu(?:sa)?(?:Stream|Device|Event|Ctx)Synchronize"
)


def is_copy(category: str, name: str) -> bool:
    """Whether events of the device are copies or fills."""
    return category in COPIES or (category in KERNELS and name in _COPIES_AMONG_KERNELS)


def may_be_of_device(category: str) -> bool:
    """Whether events of a category that is not read are of an accelerator, by its name."""
    return category == UNTITLED_TASK or _ACCELERATOR.match(category) is not None


def is_driver(category: str) -> bool:
    """Whether events of a category are calls that the host makes to a device's driver:
    ``cuda_runtime``, ``xpu_driver``, ``mtia_runtime``, ``privateuse1_runtime``."""
    return category.endswith(("_runtime", "_driver"))


def is_launch(call: str) -> bool:
    """Whether a call hands work to a device."""
    return _LAUNCH.search(call) is not None


def is_host_wait(call: str) -> bool:
    """Whether a call waits for a device."""
    return _HOST_WAIT.match(call) is not None


def is_unread(category: str) -> bool:
    """Whether events of a category may matter, and none of them is read."""
    read = KERNELS | COPIES | _HOST | OLD.keys()
    return category not in _UNUSED | read and not is_driver(category)
