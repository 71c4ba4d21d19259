"""Predicted memory of strategies, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from tests.factories import experiment, machine
from torchscale.config.experiment import Experiment
from torchscale.config.strategy import strategy_label
from torchscale.features.decide.tune.memory import MemoryForecast, MemoryNeed, as_ddp, need
from torchscale.measure.context import PlannedRun
from torchscale.plan.expand import make_plan
from torchscale.schema.cells.kinds import of_kind
from torchscale.schema.cells.memory import MemoryParts, PredictedMemory
from torchscale.schema.cells.training import TrainingCell

GIB = 2**30
WHOLE = PredictedMemory(
    parts=MemoryParts(
        parameters=2 * GIB,
        buffers=0,
        gradients=2 * GIB,
        optimizer_states=4 * GIB,
        activations=3 * GIB,
    ),
    peak_bytes=13 * GIB,
    method="as the test says",
)


def planned(config: Experiment) -> PlannedRun:
    here = machine(cores=4)
    return PlannedRun(config, here, make_plan(config, here))


def on_four(strategy: object, **content: object) -> TrainingCell:
    config = experiment(
        models="tiny-decoder", gpu_counts=[4], parallel={"strategy": strategy}, **content
    )
    (cell,) = of_kind([entry.cell for entry in planned(config).plan.cells], TrainingCell)
    return cell


@pytest.mark.parametrize(
    ("strategy", "shares"),
    [
        ("tensor", 4),
        ({"name": "tensor", "degree": 2}, 2),
        ("pipeline", 4),
        ({"name": "hybrid", "shard": 2, "tensor": 2}, 4),
        ({"name": "hybrid", "pipeline": 2, "tensor": 2}, 4),
        ({"name": "hybrid", "cp": 2, "tensor": 2}, 2),
    ],
)
def test_a_split_model_takes_at_least_its_share_of_the_states(
    strategy: object, shares: int
) -> None:
    assert need(on_four(strategy), None, WHOLE) == MemoryNeed(8 * GIB // shares, at_least=True)


def test_a_prediction_counts_as_it_is() -> None:
    assert need(on_four("fsdp"), WHOLE, WHOLE) == MemoryNeed(13 * GIB)


def test_nothing_is_said_where_nothing_is_known() -> None:
    assert need(on_four("tensor"), None, None) is None
    offloaded = {"name": "hybrid", "shard": 2, "tensor": 2, "offload": True}
    assert need(on_four(offloaded), None, WHOLE) is None


def test_the_same_cell_as_ddp_has_an_id_of_its_own() -> None:
    """An id is kept once it was asked for."""
    cell = on_four("tensor")
    assert cell.id != as_ddp(cell).id
    assert as_ddp(cell) == on_four("ddp")


class Predicted:
    """Stands for the worker's predictions; counts its processes."""

    def __init__(self, peaks: Mapping[str, int]) -> None:
        self.peaks, self.asked = peaks, 0
        self.parts = WHOLE.parts
        self.peak_of: Callable[[TrainingCell], int | None] = lambda cell: self.peaks.get(
            strategy_label(cell.strategy)
        )

    def __call__(
        self, cells: Sequence[TrainingCell], *, timeout_seconds: float, env: Mapping[str, str]
    ) -> dict[str, PredictedMemory]:
        del timeout_seconds, env
        self.asked += 1
        assert len({cell.id for cell in cells}) == len(cells)
        return {
            cell.id: WHOLE.model_copy(update={"peak_bytes": peak, "parts": self.parts})
            for cell in cells
            if (peak := self.peak_of(cell)) is not None
        }


def test_what_does_not_fit_is_refused_with_both_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host of the factories has 16 GiB, of which four ranks have four each."""
    predicted = Predicted({"ddp": 5 * GIB, "fsdp": 4 * GIB})
    predicted.parts = WHOLE.parts.model_copy(update={"optimizer_states": 6 * GIB})
    monkeypatch.setattr("torchscale.features.decide.tune.memory.predict_cells", predicted)
    forecast = MemoryForecast(planned(experiment(gpu_counts=[4])), 4)
    half = {"name": "tensor", "degree": 2}
    cells = [on_four("ddp"), on_four("fsdp"), on_four("zero1"), on_four("tensor"), on_four(half)]
    forecast.predict(cells)
    assert forecast.rank_bytes == 4 * GIB
    assert [forecast.refusal(cell) for cell in cells] == [
        "predicted to take 5.00 GiB a rank, of 4.00 GiB",
        None,
        None,
        None,
        "predicted to take at least 5.00 GiB a rank, of 4.00 GiB",
    ]
    assert predicted.asked == 1


@pytest.mark.parametrize("changed", [{"precision": "fp8"}, {"precision": "mxfp8"}])
def test_states_are_those_of_a_type_that_can_be_predicted(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, str]
) -> None:
    predicted = Predicted({})
    asked: list[TrainingCell] = []

    def nothing(cell: TrainingCell) -> None:
        asked.append(cell)

    predicted.peak_of = nothing
    monkeypatch.setattr("torchscale.features.decide.tune.memory.predict_cells", predicted)
    cell = on_four("tensor", training=changed, model={"compile": True})
    MemoryForecast(planned(experiment(gpu_counts=[4])), 4).predict([cell])
    (whole,) = [one for one in asked if one.strategy.name == "ddp"]
    assert (whole.precision, whole.compile) == ("bf16", False)


def test_a_limit_of_the_config_counts_where_it_is_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "torchscale.features.decide.tune.memory.predict_cells", Predicted({"ddp": 3 * GIB})
    )
    limited = planned(experiment(gpu_counts=[4], memory={"limit": "2GiB"}))
    refusal = MemoryForecast(limited, 4).refusal(on_four("ddp"))
    assert refusal == "predicted to take 3.00 GiB a rank, of 2.00 GiB"
    wide = planned(experiment(gpu_counts=[4], memory={"limit": "64GiB"}))
    assert MemoryForecast(wide, 4).rank_bytes == 4 * GIB
