"""Checkpoints as text: rates, stops, and how an asynchronous save slows the steps."""

from __future__ import annotations

from torchscale.analysis.machine.checkpoint import MIN_STEPS
from torchscale.schema.exports.checkpoint import CheckpointFigures, Coldness
from torchscale.util.units import format_byte_rate, format_change, format_percent, format_seconds
from torchscale.util.words import from_to, listed, plural


def load_text(figures: CheckpointFigures) -> str:
    """``1.2 GB/s``, with ``(not proved cold)`` where it is not; ``warm``, without a rate, where the
    page cache had it."""
    rate = figures.load_bytes_per_second
    if rate is None:
        return Coldness.WARM.value
    doubt = " (not proved cold)" if figures.coldness is Coldness.NOT_PROVED else ""
    return format_byte_rate(rate) + doubt


def slowing_text(figures: CheckpointFigures) -> str:
    """``12 % slower``, ``not told from scatter (8 %)``, or that the saves ended too early; – where
    none was measured."""
    saves = figures.async_saves
    if not saves:
        return "–"
    slowed = figures.slowed
    if slowed is None:
        most = max(save.steps_during for save in saves)
        return f"ended after {plural(most, 'step')}"
    if not figures.is_slowing_shown:
        return f"within scatter ({format_percent(figures.scatter, 0)})"
    return f"{format_percent(abs(slowed), 0)} {'slower' if slowed > 0 else 'faster'}"


def slowing_line(figures: CheckpointFigures) -> str:
    """The same in a sentence, with the number of steps that it rests on; empty where no
    asynchronous save was measured."""
    saves = figures.async_saves
    if not saves:
        return figures.not_async and f"Asynchronous saves were not measured: {figures.not_async}."
    before, after = saves[0].steps_before, saves[0].steps_after
    counts = [save.steps_during for save in saves]
    during = from_to(str(min(counts)), str(max(counts)))
    steps = f"{during} steps during a save against {before} before and {after} after it"
    if figures.slowed is None:
        return (
            f"How asynchronous saves slow the steps is not known: none lasted {MIN_STEPS} whole steps, "
            f"the longest {max(counts)}; larger states take longer."
        )
    if not figures.is_slowing_shown:
        return (
            f"The rate of steps changes by {format_change(-figures.slowed)} ({steps}), which is "
            f"within what the rates before and after differ by "
            f"({format_percent(figures.scatter, 0)})."
        )
    way = "slow" if figures.slowed > 0 else "quicken"
    return (
        f"Asynchronous saves {way} the steps by {format_percent(abs(figures.slowed), 0)} ({steps})."
    )


def busy_line(figures: CheckpointFigures) -> str:
    """That the processor limits, and not the disk; empty where it does not."""
    if not figures.busy_ways:
        return ""
    return (
        f"The processor limits {listed(figures.busy_ways)}, not the disk: ranks compute most of that "
        "time (a higher checkpoint.threads may help where cores are free)."
    )


def outcome_text(figures: CheckpointFigures) -> str:
    """``saved at 1.2 GB/s, loaded at 0.9 GB/s, stops 1.3 s (asynchronous 0.2 s)``."""
    stop = format_seconds(figures.stop_seconds)
    asynchronous = figures.async_stop_seconds
    if asynchronous is not None:
        stop += f" (asynchronous {format_seconds(asynchronous)})"
    loaded = load_text(figures)
    loaded = "load warm" if loaded == Coldness.WARM.value else f"loaded at {loaded}"
    return f"saved at {format_byte_rate(figures.save_bytes_per_second)}, {loaded}, stops {stop}"
