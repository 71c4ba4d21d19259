"""FSDP's sharding strategies, as Hugging Face's Trainer and accelerate name them."""

from __future__ import annotations

from collections.abc import Mapping

from torchscale.config.yaml_reader import Data
from torchscale.features.imports.worksheet import Worksheet, as_list, is_on, with_options

_SHARDING: Mapping[str, str] = {
    "1": "full_shard",
    "2": "shard_grad_op",
    "3": "no_shard",
    "4": "hybrid_shard",
    "5": "hybrid_shard_zero2",
    "_hybrid_shard_zero2": "hybrid_shard_zero2",  # PyTorch's own name of it
}
"""Numbers and other names of FSDP's sharding strategies → accelerate's names."""
_KEPT_WHOLE = {
    "full_shard": "shard_grad_op",
    "hybrid_shard": "hybrid_shard_zero2",
}
"""Sharding strategy → the one that differs from it in that parameters stay whole between the
forward and the backward pass."""

_OFF = ("false", "no", "off")


def place_trainer_fsdp(sheet: Worksheet, key: str) -> None:
    """A Trainer's ``fsdp: full_shard auto_wrap offload``."""
    words = [word for part in as_list(sheet.take(key)) for word in str(part).casefold().split()]
    if not words:
        return
    named = [word for word in words if word in _SHARDING.values()]
    if not named:
        sheet.leave(key, f"{' '.join(words)}: see parallel.strategy")
        return
    known = {named[0], "auto_wrap", "offload"}
    for word in words:
        if word not in known:
            sheet.leave(f"{key}.{word}", f"expected {_expected_sharding()}")
    offload = f"{key}.offload" if "offload" in words else ""
    _place_sharding(sheet, named[0], key, offload=offload)


def _expected_sharding() -> str:
    return f"one of {', '.join(dict.fromkeys(_SHARDING.values()))}"


def _place_sharding(
    sheet: Worksheet, sharding: str, *sources: str, offload: str, group: int | None = None
) -> None:
    """FSDP's sharding strategy.

    Args:
        sheet: The config.
        sharding: As accelerate names it.
        sources: The keys that say it.
        offload: The key that says that parameters are kept on the host; empty where none does.
        group: GPUs of a node, that share a copy under hybrid_shard; ``None`` where not known.
    """
    if sharding == "no_shard":
        if offload:
            sheet.leave(offload, "no_shard is ddp here, which keeps all on the device")
        sheet.place("parallel.strategy", "ddp", *sources)
        return
    options: dict[str, Data] = {}
    if sharding in _KEPT_WHOLE.values():
        options["reshard_after_forward"] = False
    if sharding.startswith("hybrid_shard") and group is not None:
        options["shard"] = group
    elif sharding.startswith("hybrid_shard"):
        sheet.note(f"{sharding}: set parallel.strategy {{name: fsdp, shard: GPUs of a node}}")
    if offload:
        options["offload"] = True
        sources = (*sources, offload)
    sheet.place("parallel.strategy", with_options("fsdp", options), *sources)


def place_accelerate_fsdp(sheet: Worksheet, local: int | None) -> None:
    """accelerate's section ``fsdp_config``; ``local``: GPUs of a node, of several nodes."""
    section = "fsdp_config.fsdp_"
    sharding, sources = _accelerate_sharding(sheet, section)
    offload = f"{section}offload_params"
    if not is_on(sheet.take(offload)):
        offload = ""
    _place_sharding(sheet, sharding, "distributed_type", *sources, offload=offload, group=local)
    if is_on(sheet.take(f"{section}activation_checkpointing")):
        target = "training.activation_checkpointing"
        sheet.place(target, "full", f"{section}activation_checkpointing")


def _accelerate_sharding(sheet: Worksheet, section: str) -> tuple[str, list[str]]:
    """The sharding strategy, and the keys that say it; FSDP2's key replaces that of FSDP1."""
    sharding = "full_shard"
    sources: list[str] = []
    for key in (f"{section}sharding_strategy", f"{section}reshard_after_forward"):
        word = sheet.take_word(key)
        meant = _SHARDING.get(word, word)
        if is_on(word):
            whole = {kept: freed for freed, kept in _KEPT_WHOLE.items()}
            meant = whole.get(sharding, sharding)
        elif word in _OFF:
            meant = _KEPT_WHOLE.get(sharding, sharding)
        if meant in _SHARDING.values():
            sharding = meant
            sources.append(key)
        elif word:
            sheet.leave(key, f"{word}: expected {_expected_sharding()}; {sharding} is written")
    return sharding, sources
