"""The strategies that a search compares: which can run, which fit, and where it starts."""

from __future__ import annotations

import pytest

from tests.factories import experiment, machine
from tests.features.decide.tune.test_memory import GIB, Predicted
from torchscale.config.experiment import Experiment
from torchscale.features.decide.tune.memory import MemoryForecast
from torchscale.features.decide.tune.space import StrategySpace, strategy_space
from torchscale.features.decide.tune.surface import AxisChange
from torchscale.measure.context import PlannedRun
from torchscale.observer import SILENT
from torchscale.plan.expand import make_plan
from torchscale.schema.cells.kinds import of_kind
from torchscale.schema.cells.training import TrainingCell


@pytest.fixture
def predicted(monkeypatch: pytest.MonkeyPatch) -> Predicted:
    """Peaks by strategy; the states of the whole model are 8 GiB, and a rank has 4."""
    predicted = Predicted({"ddp": GIB, "zero1": GIB, "fsdp": GIB})
    monkeypatch.setattr("torchscale.features.decide.tune.memory.predict_cells", predicted)
    return predicted


def space_of(**content: object) -> StrategySpace:
    config: Experiment = experiment(
        **{
            "models": "tiny-decoder",
            "gpu_counts": [4],
            "launch": {"threads_per_rank": 1},
            **content,
        }
    )
    here = machine(cores=4)
    planned = PlannedRun(config, here, make_plan(config, here))
    (start,) = of_kind([entry.cell for entry in planned.plan.cells], TrainingCell)
    return strategy_space(planned, start, MemoryForecast(planned, 4), SILENT)


def left_out(space: StrategySpace) -> dict[str, str]:
    return {entry.choice.label: entry.left_out for entry in space.entries if entry.left_out}


def test_what_a_model_cannot_be_split_into_is_left_out_with_the_reason(
    predicted: Predicted,
) -> None:
    del predicted
    space = space_of(models="tiny-resnet")
    assert {entry.choice.label for entry in space.runnable} == {
        "ddp",
        "zero1",
        "fsdp",
        "fsdp shard=2",
        "fsdp reshard_after_forward=false",
        "fsdp reshard_after_forward=false shard=2",
    }
    reasons = left_out(space)
    assert "tiny-resnet does not support tensor parallelism" in reasons["tensor"]
    assert (
        "tiny-resnet does not support pipeline parallelism" in reasons["hybrid shard=2 pipeline=2"]
    )
    assert "tiny-resnet does not support expert parallelism" in reasons["ep"]


def test_what_is_predicted_not_to_fit_is_left_out_before_any_launch(predicted: Predicted) -> None:
    predicted.peaks = {"ddp": 3 * GIB, "zero1": 9 * GIB}
    space = space_of()
    reasons = left_out(space)
    assert reasons["zero1"] == "predicted to take 9.00 GiB a rank, of 4.00 GiB"
    assert "tensor" not in reasons  # at least 2 GiB
    assert (space.start.choice.label, space.moved) == ("ddp", "")
    assert space.rank_bytes == 4 * GIB


def test_a_config_that_does_not_fit_starts_from_the_simplest_that_may(
    predicted: Predicted,
) -> None:
    predicted.peaks = {"ddp": 9 * GIB, "zero1": 9 * GIB, "fsdp": 3 * GIB}
    space = space_of()
    assert space.start.choice.label == "fsdp"
    assert space.moved == "ddp: predicted to take 9.00 GiB a rank, of 4.00 GiB"
    assert space.start not in space.others
    assert "ddp" not in {one.value for one in space.candidates}


def test_where_none_fits_none_can_be_launched(predicted: Predicted) -> None:
    predicted.peaks = dict.fromkeys(
        ("ddp", "zero1", "fsdp", "fsdp shard=2", "fsdp reshard_after_forward=false"), 9 * GIB
    )
    predicted.peaks["fsdp reshard_after_forward=false shard=2"] = 9 * GIB
    assert space_of(models="tiny-resnet").runnable == ()


def test_the_strategy_of_the_config_is_there_once_with_its_own_options(
    predicted: Predicted,
) -> None:
    del predicted
    own = space_of(parallel={"strategy": {"name": "fsdp", "offload": True}})
    assert own.start.choice.label == "fsdp offload=true"
    assert "fsdp" in {one.value for one in own.candidates}
    same = space_of(parallel={"strategy": {"name": "hybrid", "tensor": 2}})
    assert same.start.choice.label == "hybrid tensor=2"
    assert "tensor degree=2" not in {entry.choice.label for entry in same.entries}


def test_products_wait_for_their_parts(predicted: Predicted) -> None:
    del predicted
    space = space_of()
    assert AxisChange("strategy", "hybrid tensor=2 pipeline=2") in space.held
    assert AxisChange("strategy", "sequence") in space.held
    assert AxisChange("strategy", "tensor degree=2") not in space.held
    assert set(space.traits) == {None, *(entry.change for entry in space.others)}


def test_the_next_start_is_the_simplest_that_is_left(predicted: Predicted) -> None:
    del predicted
    space = space_of()
    following = space.without(space.start, "oom: as the test says")
    assert following is not None
    assert following.start.choice.label == "zero1"
    assert following.moved == "ddp: oom: as the test says"
    last = following.without(following.start, "oom: too")
    assert last is not None
    assert last.moved == following.moved  # of the config's own
    assert last.exhaustive_launches == space.exhaustive_launches - 6
