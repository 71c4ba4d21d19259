"""Which settings ``tune`` tries."""

from __future__ import annotations

import pytest

from tests.factories import experiment
from torchscale.config.choices import DeviceKind, TuningAxis
from torchscale.config.dump import to_yaml
from torchscale.config.experiment import Experiment
from torchscale.config.load import load_experiment_from
from torchscale.config.strategies.data_parallel import Ddp
from torchscale.config.yaml_reader import read_yaml
from torchscale.features.decide.tune.settings import EXCHANGES_NOTHING, NUMERICS, candidates


def values(config: Experiment, axis: TuningAxis, device: DeviceKind = "cpu") -> list[str]:
    return [one.value for one in candidates(config, axis, device, cores=4)]


@pytest.mark.parametrize("axis", TuningAxis)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_candidate_is_a_whole_config_with_one_other_key(
    axis: TuningAxis, device: DeviceKind
) -> None:
    config = experiment(
        data={"source": "synthetic-host"}, training={"activation_checkpointing": "full"}
    )
    before = config.model_dump()
    for one in candidates(config, axis, device, cores=4):
        changed = one.apply(config)
        document = read_yaml(to_yaml(changed), "test").data
        assert isinstance(document, dict)
        assert load_experiment_from(document) == changed
        differing = [
            f"{section}.{key}" if isinstance(value, dict) else section
            for section, value in changed.model_dump().items()
            for key in (value if isinstance(value, dict) else [""])
            if (
                value[key] != before[section][key]
                if isinstance(value, dict)
                else value != before[section]
            )
        ]
        assert differing == [one.key]
        assert bool(one.note) == (axis in NUMERICS)


def test_the_start_is_no_candidate() -> None:
    config = experiment(training={"precision": "bf16", "fused": True}, model={"compile": True})
    assert values(config, TuningAxis.PRECISION) == ["fp32"]
    assert values(config, TuningAxis.PRECISION, "cuda") == ["fp32", "tf32", "fp16"]
    assert values(config, TuningAxis.FUSED) == ["false"]
    assert values(config, TuningAxis.COMPILE) == ["false"]


def test_axes_without_meaning_are_empty() -> None:
    config = experiment(models="tiny-bert", parallel={"strategy": "fsdp"})
    for axis in (
        TuningAxis.CHANNELS_LAST,
        TuningAxis.BUCKET,
        TuningAxis.COMM_HOOK,
        TuningAxis.CHECKPOINTING,
    ):
        assert values(config, axis) == []
    assert values(config, TuningAxis.WORKERS) == []
    assert values(experiment(data={"source": "shards", "workers": 1}), TuningAxis.WORKERS) == [
        "0",
        "2",
        "4",
    ]


def test_changes_of_one_strategy_add_up() -> None:
    config = experiment()
    (bucket,) = [
        one for one in candidates(config, TuningAxis.BUCKET, "cpu", 4) if one.value == "5 MiB"
    ]
    strategy = EXCHANGES_NOTHING.apply(bucket.apply(config)).parallel.strategy[0]
    assert strategy == Ddp(bucket_cap_mb=5, comm_hook="noop")
    assert isinstance(strategy, Ddp)
    assert not strategy.exchanges_gradients
