"""Marks one NVTX range: run under nsys, it tells whether the ranges of this Python are recorded.
Does not import torch."""

from __future__ import annotations

from torchscale.schema.profiles.nvtx_names import CAPTURE


def main() -> None:
    """Mark the range."""
    import nvtx  # noqa: PLC0415 - its absence is what is asked

    nvtx.push_range(CAPTURE)
    nvtx.pop_range()


if __name__ == "__main__":
    main()
