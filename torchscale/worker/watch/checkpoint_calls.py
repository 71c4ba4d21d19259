"""The functions that save and load checkpoints, by their modules: each a line with the file that it
writes or reads. A function that a version does not have is not looked for."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import NamedTuple

from .saved_files import FindFile, checkpoint_folder, file_at, folder_at


class How(Enum):
    """What a call does.

    SAVES: its file is complete once it returns. BEGINS: what it returns tells when that is
    complete; nothing where it is. LOADS: it reads a file.
    """

    SAVES = auto()
    BEGINS = auto()
    LOADS = auto()


class Call(NamedTuple):
    """A function that saves or loads.

    Attributes:
        function: In its module, with its class where it is a method.
        how: What it does.
        file: Found by its arguments.
    """

    function: str
    how: How
    file: FindFile


OF_TORCH = (
    Call("save", How.SAVES, file_at(1, "f")),
    Call("load", How.LOADS, file_at(0, "f")),
)
_OF_LIGHTNING = (
    # It saves into memory first: the rest of its time, and the path, are seen here alone.
    Call("_atomic_save", How.SAVES, file_at(1, "filepath")),
    Call("_load", How.LOADS, file_at(0, "path_or_url")),
)
CALLS: Mapping[str, tuple[Call, ...]] = MappingProxyType(
    {
        "torch.distributed.checkpoint": (
            Call("save", How.SAVES, checkpoint_folder),
            Call("save_state_dict", How.SAVES, checkpoint_folder),
            Call("load", How.LOADS, checkpoint_folder),
            Call("load_state_dict", How.LOADS, checkpoint_folder),
            Call("async_save", How.BEGINS, checkpoint_folder),
        ),
        "safetensors": (Call("safe_open", How.LOADS, file_at(0, "filename")),),
        "safetensors.torch": (Call("save_file", How.SAVES, file_at(1, "filename")),),
        "lightning.fabric.utilities.cloud_io": _OF_LIGHTNING,
        "lightning_fabric.utilities.cloud_io": _OF_LIGHTNING,
        "megatron.core.dist_checkpointing.serialization": (
            Call("save", How.BEGINS, folder_at(1, "checkpoint_dir")),
            Call("load", How.LOADS, folder_at(1, "checkpoint_dir")),
            # Read before anything else; its file is one of the folder.
            Call("load_common_state_dict", How.LOADS, folder_at(0, "checkpoint_dir")),
        ),
        "torch_checkpointing.checkpoint_manager": (
            Call("CheckpointManager.save", How.BEGINS, folder_at(1, "checkpoint_id")),
            Call("CheckpointManager.load", How.LOADS, folder_at(1, "checkpoint_id")),
        ),
    }
)
UNSEEN = (
    "torchsnapshot",
    "tensorizer",
    "tensorstore",
    "zarr",
    "bytecheckpoint",
    "datastates",
    "nvidia_resiliency_ext.checkpointing.local.ckpt_managers",
)
"""Modules that save and load checkpoints past these calls."""
