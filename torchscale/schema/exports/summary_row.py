"""The columns of ``summary.csv`` and of :meth:`torchscale.api.Results.cells`."""

from __future__ import annotations

from dataclasses import dataclass, fields

ColumnValue = str | int | float | bool | None


@dataclass(frozen=True)
class SummaryRow:
    """One cell. The fields are the columns, in their order; new ones go to the end. ``None`` was
    not measured, or is nothing that a cell of this kind has.

    Times are in the unit of the name, rates per second, memory in bytes. Columns that begin with
    ``gpu_`` are means over GPUs, read beside the ranks. ``x_low`` and ``x_high`` are the ends of
    the 95 % interval of ``x``; ``x_high`` is ``None`` where the interval has no upper end.
    """

    cell_id: str
    model: str | None = None
    batch_size: int | None = None
    gpu_count: int | None = None
    precision: str | None = None
    strategy: str | None = None
    state: str | None = None
    samples_per_second: float | None = None
    samples_per_second_per_gpu: float | None = None
    tokens_per_second: float | None = None
    step_time_p50_ms: float | None = None
    step_time_p95_ms: float | None = None
    step_time_p99_ms: float | None = None
    efficiency: float | None = None
    peak_memory_bytes: int | None = None
    flags: str | None = None
    reason: str | None = None
    scaling: str | None = None
    global_batch_size: int | None = None
    optimizer: str | None = None
    channels_last: bool | None = None
    compile: str | bool | None = None
    fused: bool | None = None
    gradient_accumulation: int | None = None
    activation_checkpointing: str | None = None
    data_source: str | None = None
    launches: int | None = None
    efficiency_flags: str | None = None
    kind: str | None = None
    flops_per_second_per_gpu: float | None = None
    mfu: float | None = None
    bound: str | None = None
    joules_per_step: float | None = None
    samples_per_joule: float | None = None
    gpu_busy: float | None = None
    gpu_power_watts: float | None = None
    gpu_sm_clock_hertz: float | None = None
    cpu_busy: float | None = None
    host_memory_peak_bytes: int | None = None
    sent_bytes_per_second: float | None = None
    received_bytes_per_second: float | None = None
    step_time_mean_ms: float | None = None
    planned_launches: int | None = None
    outcome: str | None = None
    sessions: int | None = None
    samples_per_second_low: float | None = None
    samples_per_second_high: float | None = None
    samples_per_second_per_gpu_low: float | None = None
    samples_per_second_per_gpu_high: float | None = None
    tokens_per_second_low: float | None = None
    tokens_per_second_high: float | None = None
    step_time_mean_ms_low: float | None = None
    step_time_mean_ms_high: float | None = None
    efficiency_low: float | None = None
    efficiency_high: float | None = None

    def columns(self) -> dict[str, ColumnValue]:
        """By name, in the order of the file."""
        return dict(vars(self))


SUMMARY_COLUMNS: tuple[str, ...] = tuple(field.name for field in fields(SummaryRow))
"""Names of the columns, in the order of the file."""
