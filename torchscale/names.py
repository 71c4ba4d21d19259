"""Names that processes of ours know each other by."""

RECORD_VARIABLE = "TORCHSCALE_RECORD"
"""Environment variable by which ``torchscale profile`` asks a training script for a recording."""
