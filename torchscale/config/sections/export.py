"""Config section of the exports that a sweep makes while it runs."""

from __future__ import annotations

from pydantic import Field, field_validator

from torchscale.config.base import ConfigSection, PositiveSeconds
from torchscale.config.choices import ExportTarget

AUTO = "auto"
"""Word in place of a path or address: where the other program is set up to look."""
_HAVE_A_PLACE = (ExportTarget.MLFLOW, ExportTarget.WANDB, ExportTarget.GITHUB_SUMMARY)


class ExportSettings(ConfigSection):
    """Exports at the end of each cell and of the sweep; one that fails is a warning."""

    prometheus: str | None = Field(
        None, description="File for node_exporter's textfile collector: …/torchscale.prom"
    )
    openmetrics: str | None = Field(None, description="File in OpenMetrics 1.0.")
    junit: str | None = Field(None, description="File of JUnit XML.")
    github_summary: str | None = Field(
        None,
        description="auto: the job summary of the running step ($GITHUB_STEP_SUMMARY); or a file.",
    )
    github_benchmark: str | None = Field(
        None, description="JSON file for github-action-benchmark: more is better."
    )
    github_benchmark_smaller: str | None = Field(
        None, description="JSON file for github-action-benchmark: less is better."
    )
    parquet: str | None = Field(
        None, description="Directory for cells.parquet, launches.parquet and steps.parquet."
    )
    mlflow: str | None = Field(
        None,
        description="Tracking URI, such as sqlite:///mlflow.db; auto: $MLFLOW_TRACKING_URI, else "
        "MLflow's default.",
    )
    wandb: str | None = Field(
        None, description="Directory for W&B runs; auto: $WANDB_DIR, else here. Always offline."
    )
    storage: str | None = Field(
        None,
        description="Address that the run folder is copied to, under its own name: "
        "s3://bucket/runs; also --copy-to. A copy that fails is exit code 1 in the end.",
    )
    timeout_seconds: PositiveSeconds = Field(
        60.0,
        description="An export to parquet, mlflow or wandb that takes longer is ended, and so is a "
        "copy to storage before the end of the sweep.",
    )

    @property
    def places(self) -> dict[str, str]:
        """Key of each exporter that is asked for → its file, directory or address."""
        return {name: value for name, value in self if isinstance(value, str)}

    @field_validator("*", mode="after")
    @classmethod
    def _named(cls, value: object) -> object:
        if isinstance(value, str) and not value.strip():
            raise ValueError("expected a path or an address; leave the key out for none")
        return value

    @field_validator("storage", mode="after")
    @classmethod
    def _an_address(cls, value: str | None) -> str | None:
        if value is not None and "://" not in value:
            raise ValueError("expected an address such as s3://bucket/runs")
        return value

    @field_validator(
        "prometheus",
        "openmetrics",
        "junit",
        "github_benchmark",
        "github_benchmark_smaller",
        "parquet",
        mode="after",
    )
    @classmethod
    def _a_path(cls, value: str | None) -> str | None:
        if value == AUTO:
            names = ", ".join(target.value.replace("-", "_") for target in _HAVE_A_PLACE)
            raise ValueError(f"auto is for {names}; name a path here")
        return value
