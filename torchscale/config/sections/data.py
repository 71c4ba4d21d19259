"""The section of a config that says what is read."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from torchscale.config.base import Axis, ConfigSection, PositiveInt
from torchscale.config.choices import DataChoice, Packing
from torchscale.util.length_file import LEAST, MAX_LENGTH

MAX_SIGMA = 4.0
"""Lengths a factor of 55 apart within a standard deviation: beyond any corpus of text."""


class Lengths(ConfigSection):
    """Lengths of documents in tokens: lognormal, or those that a file lists."""

    median: Annotated[int, Field(ge=LEAST, le=MAX_LENGTH)] | None = Field(
        None, description="Median of a lognormal distribution."
    )
    sigma: Annotated[float, Field(ge=0, le=MAX_SIGMA)] | None = Field(
        None, description="Its standard deviation, of the natural logarithm of the length."
    )
    file: str | None = Field(
        None,
        description="File with a length on each line, or a length and how often it occurs.",
    )

    @model_validator(mode="after")
    def _one_form(self) -> Lengths:
        has_law = self.median is not None and self.sigma is not None
        in_part = (self.median is None) != (self.sigma is None)
        if in_part or has_law == (self.file is not None):
            raise ValueError("expected median and sigma of a lognormal distribution, or a file")
        return self


class DataSettings(ConfigSection):
    """Data source, loader processes and data files."""

    source: Axis[DataChoice] = Field(
        ("synthetic",),
        description="synthetic (random, on the device), synthetic-host (random, through loader "
        "and copy), cifar100 or shards (files); an axis.",
    )
    num_samples: PositiveInt = Field(50_000, description="Samples in an epoch of synthetic data.")
    lengths: Lengths | None = Field(
        None,
        description="Lengths of the documents that a language model reads: {median: 300, sigma: "
        "1.0} (lognormal), or {file: lengths.txt}. Default: each sample is one of "
        "sequence_length tokens.",
    )
    packing: Axis[Packing] = Field(
        ("padded",),
        description="With lengths: padded (a document in each sample, filled up to the longest "
        "beside it) or packed (one after the other, which do not see each other); an axis.",
    )
    data_dir: str = Field(
        "data",
        description="Directory of cifar100, or of shards, which are written once and reused.",
    )
    num_shards: PositiveInt | None = Field(
        None, description="Number of files of a shards dataset; default: about 128 MB each."
    )
    total_mb: PositiveInt = Field(1024, description="Size of a shards dataset, in MB.")
    workers: Annotated[int, Field(ge=0)] = Field(
        2, description="Loader processes of each rank; 0 loads in the rank."
    )
    pin_memory: bool = Field(True, description="Copy to accelerators from pinned memory.")
    prefetch: PositiveInt = Field(2, description="Batches that each loader process keeps ready.")
    verify: bool = Field(True, description="Verify checksums of shards before they are reused.")
    drop_cache: bool = Field(
        False,
        description="Drop shards from the page cache before reading; the record says how many "
        "pages were still cached.",
    )
    download: bool = Field(False, description="Download cifar100 if it is not in data_dir.")
