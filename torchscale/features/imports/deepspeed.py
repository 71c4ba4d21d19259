"""DeepSpeed's JSON, alone or within a config of accelerate or of a Trainer."""

from __future__ import annotations

from collections.abc import Mapping

from torchscale.config.translate import Translation
from torchscale.config.yaml_reader import Data
from torchscale.features.imports.batches import place_batches
from torchscale.features.imports.names import OPTIMIZERS
from torchscale.features.imports.worksheet import Worksheet, is_on, whole_of, with_options

_KEYS = (
    "train_micro_batch_size_per_gpu",
    "train_batch_size",
    "zero_optimization",
    "zero_allow_untested_optimizer",
    "steps_per_print",
    "wall_clock_breakdown",
    "autotuning",
)
_LEFT: Mapping[str, str] = {
    "scheduler": "the learning rate is constant here",
    "autotuning": "`torchscale tune` searches for the fastest setting",
    "communication_data_type": "see parallel.strategy: {name: ddp, comm_hook: fp16}",
    "monitor_config": "see export",
}
_NEEDLESS: Mapping[str, str] = {
    "steps_per_print": "is for the log alone",
    "wall_clock_breakdown": "is measured anyway",
    "flops_profiler": "is in every report as MFU",
}
NO_STRATEGY = {
    0: "ddp",
    1: "zero1",
}
"""Stage of ZeRO → a strategy without options."""


def is_deepspeed(data: Mapping[str, Data]) -> bool:
    """Whether a config has the form of DeepSpeed's."""
    switches = [data.get(key) for key in ("fp16", "bf16")]
    has_switch = any(isinstance(switch, dict) and "enabled" in switch for switch in switches)
    return has_switch or any(key in data for key in _KEYS)


def from_deepspeed(data: Mapping[str, Data]) -> Translation:
    """A config of DeepSpeed, which names no model."""
    sheet = Worksheet("DeepSpeed", data)
    place_deepspeed(sheet)
    return sheet.done()


def place_deepspeed(sheet: Worksheet, above: str = "") -> None:
    """Move DeepSpeed's keys below ``above`` (with its dot) to their places."""
    for name in ("bf16", "fp16"):
        if is_on(sheet.take(f"{above}{name}.enabled")):
            sheet.place("training.precision", name, f"{above}{name}.enabled")
        if sheet.has(f"{above}{name}"):
            sheet.leave(f"{above}{name}", "loss scaling has PyTorch's defaults here")
    place_batches(
        sheet,
        micro=f"{above}train_micro_batch_size_per_gpu",
        accumulation=f"{above}gradient_accumulation_steps",
        whole=f"{above}train_batch_size",
    )
    sheet.move(f"{above}gradient_clipping", "training.gradient_clipping")
    _optimizer(sheet, above)
    _stage(sheet, above)
    sheet.leave_present(_LEFT, above)
    for key, text in _NEEDLESS.items():
        sheet.settle(above + key, text)


def place_stage(sheet: Worksheet, stage: Data, source: str, *, offload: bool) -> None:
    """The strategy of a stage of ZeRO.

    Stage 2 keeps the parameters whole, as FSDP2 does that does not free them after the forward
    pass.
    """
    strategy: Data = None
    stage = _stage_number(stage)
    if isinstance(stage, int) and stage in NO_STRATEGY:
        strategy = NO_STRATEGY[stage]
    elif stage in (2, 3):
        options: dict[str, Data] = {}
        if stage == 2:
            options["reshard_after_forward"] = False
        if offload:
            options["offload"] = True
        strategy = with_options("fsdp", options)
    if strategy is None:
        sheet.leave(source, f"{stage!r}: expected a stage of 0 to 3")
        return
    sheet.place("parallel.strategy", strategy, source)


def _stage_number(stage: Data) -> Data:
    """``"2"`` is 2; a switch, which Python counts as 0 or 1, is no stage."""
    if isinstance(stage, bool):
        return str(stage)
    return whole_of(stage)


def _stage(sheet: Worksheet, above: str) -> None:
    section = f"{above}zero_optimization"
    stage = _stage_number(sheet.take(f"{section}.stage"))
    offload = False
    for part in ("offload_optimizer", "offload_param"):
        device = sheet.take_word(f"{section}.{part}.device")
        if device in ("cpu", "nvme"):
            offload = True
            if stage in (2, 3) and device == "cpu":
                sheet.result.renamed[f"{section}.{part}.device"] = "parallel.strategy.offload"
            else:
                sheet.leave(f"{section}.{part}.device", f"{device}: fsdp offloads to the host")
    if stage is not None:
        place_stage(sheet, stage, f"{section}.stage", offload=offload)
    if sheet.has(section):
        sheet.leave(section, "is tuning of DeepSpeed's own; FSDP2 gathers layer by layer")


def _optimizer(sheet: Worksheet, above: str) -> None:
    name = sheet.take_word(f"{above}optimizer.type")
    if name and name != "auto":
        here = OPTIMIZERS.get(name)
        if name == "adam" and sheet.take(f"{above}optimizer.params.adam_w_mode") is not False:
            here = OPTIMIZERS["adamw"]  # DeepSpeed's Adam decays weights apart by default
            sheet.note("optimizer.type Adam is AdamW in DeepSpeed (adam_w_mode)")
        if here is None:
            sheet.leave(f"{above}optimizer.type", f"{name}: sgd, adam or adamw here")
        else:
            sheet.place("training.optimizer", here[0], f"{above}optimizer.type")
    sheet.move(f"{above}optimizer.params.lr", "training.learning_rate")
    if sheet.has(f"{above}optimizer"):
        sheet.leave(f"{above}optimizer", "the rest has no place here; PyTorch's defaults are used")
