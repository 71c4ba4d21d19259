"""The keys that may change between a run and its resumption."""

from __future__ import annotations

import pytest

from tests.factories import experiment
from torchscale.config.resume_keys import MAY_CHANGE, fixed_values


def keys_of_the_schema() -> set[str]:
    """Every key, as ``section`` and as ``section.key``."""
    keys = set()
    for name, value in experiment().model_dump(mode="json").items():
        keys.add(name)
        if isinstance(value, dict):
            keys |= {f"{name}.{key}" for key in value}
    return keys


@pytest.mark.parametrize("key", MAY_CHANGE)
def test_every_key_is_one_of_the_config(key: str) -> None:
    assert key in keys_of_the_schema()


def test_what_must_stay_is_all_the_rest() -> None:
    fixed = set(fixed_values(experiment()))
    assert {
        "scaling",
        "training.seed",
        "benchmark.warmup_steps",
        "launch.threads_per_rank",
    } <= fixed
    assert not fixed & set(MAY_CHANGE)
    assert not {key for key in fixed if key.partition(".")[0] in MAY_CHANGE}
