"""Batches as trainers count them, micro-batch × accumulation × devices, as sizes of a step here."""

from __future__ import annotations

from torchscale.features.imports.worksheet import Worksheet


def place_batches(
    sheet: Worksheet,
    *,
    accumulation: str,
    micro: str = "",
    whole: str = "",
    default: int | None = None,
) -> None:
    """Set ``batch_sizes``, which counts the samples of a step on each device.

    Args:
        sheet: The config.
        accumulation: Key of the passes of a step.
        micro: Key of the samples of a pass on a device, where there is one.
        whole: Key of the samples of a step on all devices, where there is one.
        default: The suite's own value of ``micro``.
    """
    passes = sheet.take_whole(accumulation)
    samples = sheet.take_whole(micro)
    total = sheet.take_whole(whole)
    if samples is None and default is not None and total is None:
        samples = default
        sheet.note(f"{micro} is not set: {default}, the suite's own default")
    if passes is not None:
        sheet.place("training.gradient_accumulation", passes, accumulation)
    if samples is not None:
        sheet.place("batch_sizes", samples * (passes or 1), micro)
        if (passes or 1) > 1:
            sheet.note(f"batch_sizes counts a whole step: {samples} samples × {passes} passes")
    if total is None:
        return
    if samples is None:
        sheet.place("scaling", "strong")
        sheet.place("batch_sizes", total, whole)
    elif passes is None:
        reason = f"{total}: passes × devices is {total / samples:g}; neither is named"
        sheet.leave(whole, reason)
    elif total % (samples * passes):
        sheet.leave(whole, f"{total} is no multiple of {samples} samples × {passes} passes")
    else:
        sheet.place("gpu_counts", [total // (samples * passes)], whole)
