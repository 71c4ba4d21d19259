"""The section ``export``: where each exporter writes, and what is refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from torchscale.config.choices import ExportTarget
from torchscale.config.sections.export import ExportSettings


def test_there_is_a_key_for_every_exporter_but_the_dashboard() -> None:
    keys = {name.replace("_", "-") for name in ExportSettings.model_fields} - {"timeout-seconds"}
    assert keys == {target.value for target in ExportTarget} - {
        ExportTarget.GRAFANA_DASHBOARD.value
    }


def test_places_are_those_that_are_named() -> None:
    settings = ExportSettings.model_validate(
        {"mlflow": "auto", "prometheus": "x.prom", "timeout_seconds": 5}
    )
    assert settings.places == {"prometheus": "x.prom", "mlflow": "auto"}
    assert ExportSettings().places == {}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"prometheus": "auto"}, "auto is for mlflow, wandb, github_summary; name a path here"),
        ({"mlflow": " "}, "expected a path or an address"),
        ({"grafana_dashboard": "x"}, "Extra inputs are not permitted"),
        ({"timeout_seconds": 0}, "greater than 0"),
    ],
)
def test_what_names_no_place_is_refused(content: dict[str, object], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        ExportSettings.model_validate(content)
