"""Commands that mend what a check found, or that show the cause where no command mends it. None is
executed here."""

from __future__ import annotations

from collections.abc import Iterable

from torchscale.schema.node.probe import GpuFacts

Fixes = tuple[str, ...]

_TORCH_INDICES = ((13, 0), (12, 9), (12, 8), (12, 6), (12, 4), (11, 8))
"""CUDA versions for which download.pytorch.org has wheels of PyTorch 2.6 or newer, the newest
first."""

PYTHON = ("python3.12 -m venv venv", "venv/bin/pip install '.[all]'  # in a checkout of torchscale")
TORCH_BROKEN = ("python -c 'import torch'", "pip install --force-reinstall torch")
TORCH_MISSING = "pip install 'torch>=2.6'"
TORCH_OLD = ("pip install --upgrade 'torch>=2.6'",)
PROBE = ("python -m torchscale.worker.probe",)
DRIVER_UPDATE = (
    "apt-cache search --names-only '^nvidia-driver-[0-9]+$'",
    "sudo ubuntu-drivers install",
)
FABRIC_MANAGER = ("sudo systemctl restart nvidia-fabricmanager", "nvidia-smi -q | grep -A 2 Fabric")
NO_COMPAT = ("echo $LD_LIBRARY_PATH | tr : '\\n' | grep compat", "unset LD_LIBRARY_PATH")
CUDA_DEVICES = ("nvidia-smi -L", "unset CUDA_VISIBLE_DEVICES", "ls -l /dev/nvidia*")
ROCM_DEVICES = (
    "rocm-smi",
    "unset HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES",
    "ls -l /dev/kfd /dev/dri",
    "groups",
)
NCCL_DEBUG = ("NCCL_DEBUG=INFO torchscale measure collectives --op all_reduce",)
LOOPBACK = ("ip addr show lo", "sudo iptables -L -n")
DRIVER_BROKEN = ("nvidia-smi", "sudo dmesg | grep -i -E 'nvrm|xid'", "sudo reboot")
GPU_LOST = ("sudo dmesg | grep -i xid", "sudo nvidia-bug-report.sh", "sudo reboot")
DRIVER_MISSING = (
    "lspci -d 10de:",
    "sudo modprobe nvidia",
    "docker run --gpus all …",
    "srun --gres=gpu:1 …",
)
KERNEL_LOG = ("sudo dmesg | grep -i xid",)
REBOOT = ("sudo nvidia-bug-report.sh", "sudo reboot")
VISIBLE_DEVICES = ("unset CUDA_VISIBLE_DEVICES", "nvidia-smi -L")
BUS_ORDER = ("export CUDA_DEVICE_ORDER=PCI_BUS_ID",)
P2P = (
    "nvidia-smi topo -p2p r",
    "sudo dmesg | grep -i -e iommu -e DMAR",
    "sudo lspci -vvv | grep ACSCtl",
)
NVLINK = ("nvidia-smi nvlink --status", "sudo dmesg | grep -i -e nvlink -e xid")
RDMA = ("ibstat", "rdma link show", "sudo systemctl restart opensm")
SHARED_MEMORY = ("sudo mount -o remount,size=8g /dev/shm", "docker run --shm-size=8g …")
SHARED_MEMORY_MISSING = (
    "sudo mount -t tmpfs -o size=8g tmpfs /dev/shm",
    "docker run --shm-size=8g …",
)
OPEN_FILES = ("ulimit -n 65536", "docker run --ulimit nofile=65536 …")
LOCKED_MEMORY = ("ulimit -l unlimited", "docker run --ulimit memlock=-1 …")
TASKS = ("ulimit -u unlimited", "docker run --pids-limit=-1 …")
HOSTNAME = ('echo "127.0.1.1 $(hostname)" | sudo tee -a /etc/hosts',)
NSYS = ("sudo apt-get install nsight-systems",)
ONLY_EQUAL_GPUS = ("nvidia-smi -L", "torchscale benchmark config.yaml --launch.devices=[0]")
MEMORY_LIMIT = (
    "docker run --memory=64g …",
    "srun --mem=0 …",
    "ps -eo pid,rss,comm --sort=-rss | head",
)
CPU_LIMIT = ("docker run --cpus=0 …", "srun --exclusive …")
CPU_LOAD = ("ps -eo pid,pcpu,comm --sort=-pcpu | head",)
TEMPORARY = ('mkdir -p "$HOME/tmp" && export TMPDIR="$HOME/tmp"',)
HOME = ("export HOME=$(mktemp -d)",)
LOCALE = ("export LC_ALL=C.UTF-8",)
CLOCK = ("timedatectl", "sudo timedatectl set-ntp true")
PORTS = ("sudo sysctl -w net.ipv4.ip_local_port_range='32768 60999'",)
GOVERNOR = ("sudo cpupower frequency-set -g performance",)
HUGE_PAGES = ("echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/defrag",)
NUMA_BALANCING = ("sudo sysctl -w kernel.numa_balancing=0",)
FILES = ("df -i .", "torchscale benchmark config.yaml --output-dir=DIRECTORY")


def torch_for(driver_cuda: str | None) -> Fixes:
    """Installs a CUDA build of PyTorch that the driver supports; ``driver_cuda``: the newest CUDA
    of the driver."""
    supported = tuple(int(part) for part in (driver_cuda or "").split(".") if part.isdigit())
    newest = next((index for index in _TORCH_INDICES if index <= supported), None)
    if newest is None:
        return ("nvidia-smi", *DRIVER_UPDATE)
    tag = "".join(map(str, newest))
    return (
        f"pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu{tag}",
    )


def gpu_commands(gpus: Iterable[GpuFacts], *commands: str) -> Fixes:
    """Each command for each GPU, ``{}`` being how ``nvidia-smi -i`` takes it."""
    return tuple(command.format(target(gpu)) for gpu in gpus for command in commands)


def target(gpu: GpuFacts) -> str:
    """UUID, else PCI address, else number: what stays the same if a GPU is lost comes first."""
    return gpu.uuid or gpu.pci_address or str(gpu.index)


ECC_RESET = ("nvidia-smi -i {} -q -d ECC,ROW_REMAPPER", "sudo nvidia-smi -i {} --gpu-reset")
ECC_REPLACE = ("nvidia-smi -i {} -q -d ROW_REMAPPER", "sudo nvidia-bug-report.sh")
ECC_ON = ("sudo nvidia-smi -i {} -e 1", "sudo nvidia-smi -i {} --gpu-reset")
PERFORMANCE = ("nvidia-smi -i {} -q -d PERFORMANCE,TEMPERATURE,POWER",)
PROCESSES = ("nvidia-smi -i {} --query-compute-apps=pid,name,used_memory --format=csv",)
PCIE = ("nvidia-smi -i {} -q -d PCIE", "sudo nvidia-smi -i {} --gpu-reset")
PERSISTENCE = ("sudo nvidia-smi -i {} -pm 1",)
COMPUTE_MODE = ("sudo nvidia-smi -i {} -c DEFAULT",)


def wrong_sums(gpus: Iterable[GpuFacts]) -> Fixes:
    """Which device gives wrong results: their memory's counters, and each part by itself for
    longer."""
    return (*gpu_commands(gpus, ECC_RESET[0]), "torchscale validate --burn-in 10m")


def choose_directory(required: str) -> Fixes:
    """Another output directory; ``required``: the space, as in ``10G``."""
    return (
        "df -h",
        f"torchscale benchmark config.yaml --output-dir=DIRECTORY  # with {required} free",
    )
