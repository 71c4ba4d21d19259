"""What training costs, from measured throughput, measured energy and a price."""

from __future__ import annotations

from dataclasses import dataclass

from torchscale.analysis.training.summary import TrainingSummary

_JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True)
class Cost:
    """What training one cell costs, in dollars and energy.

    Attributes:
        dollars_per_hour: Price of all its devices; ``None`` without a price.
        samples_per_dollar, tokens_per_dollar: Samples and tokens for a dollar, from throughput.
        dollars_per_million_samples: Price of a million samples, in dollars.
        samples_per_joule: Samples for a joule of all GPUs; ``None`` where no energy was read.
        kwh_per_million_samples: Energy of all GPUs for a million samples, in kWh.
    """

    dollars_per_hour: float | None = None
    samples_per_dollar: float | None = None
    tokens_per_dollar: float | None = None
    dollars_per_million_samples: float | None = None
    samples_per_joule: float | None = None
    kwh_per_million_samples: float | None = None


def cost_of(cell: TrainingSummary, dollars_per_device_hour: float | None) -> Cost | None:
    """``None`` where neither a price nor energy is known, or nothing was measured."""
    figures = cell.figures
    if figures is None or (dollars_per_device_hour is None and figures.samples_per_joule is None):
        return None
    energy = figures.samples_per_joule
    kwh = None if energy is None else 1e6 / energy / _JOULES_PER_KWH
    if dollars_per_device_hour is None:
        return Cost(samples_per_joule=energy, kwh_per_million_samples=kwh)
    per_hour = dollars_per_device_hour * cell.cell.world_size
    if figures.samples_per_second is None:
        return Cost(dollars_per_hour=per_hour)
    samples = figures.samples_per_second * 3600 / per_hour
    tokens = figures.tokens_per_second
    return Cost(
        dollars_per_hour=per_hour,
        samples_per_dollar=samples,
        tokens_per_dollar=None if tokens is None else tokens * 3600 / per_hour,
        dollars_per_million_samples=1e6 / samples,
        samples_per_joule=energy,
        kwh_per_million_samples=kwh,
    )
