"""Names that processes of ours know each other by, and the version."""

__version__ = "0.1.0"

RECORD_VARIABLE = "TORCHSCALE_RECORD"
"""Environment variable by which ``torchscale profile`` asks a training script for a recording."""
