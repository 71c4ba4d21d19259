from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.factories import cells
from torchscale.config.sections.data import DataSettings
from torchscale.config.strategies.data_parallel import NoStrategy
from torchscale.schema.cells.script import Script
from torchscale.schema.cells.training import Loader, SampleLengths, TrainingCell

CELL = cells(models="resnet50", batch_sizes=[64], gpu_counts=[4])[0]


def test_an_id_is_readable_and_does_not_change_by_accident() -> None:
    """A changed id orphans every result measured before: change this only with a reason."""
    assert CELL.id == "resnet50-b64-n4-fp32-ddp-e95f4e38"


def test_every_field_is_part_of_the_id() -> None:
    changes: dict[str, object] = {
        "model": "resnet18",
        "model_options": {"image_size": 32},
        "batch_size": 65,
        "scaling": "strong",
        "world_size": 2,
        "device": "cuda",
        "precision": "bf16",
        "strategy": NoStrategy(),
        "optimizer": "sgd",
        "learning_rate": 1.0,
        "channels_last": True,
        "compile": True,
        "seed": 1,
        "cudnn_benchmark": False,
        "num_samples": 3,
        "data_source": "shards",
        "fused": True,
        "gradient_accumulation": 2,
        "activation_checkpointing": "full",
        "gradient_clipping": 1.0,
        "deterministic": True,
        "loader": Loader(**DataSettings().model_dump(include=set(Loader.model_fields))),
        "script": Script(form="script", text="train.py"),
        "lengths": SampleLengths(packing="packed", median=300, sigma=1.0),
        "measurement": CELL.measurement.model_copy(update={"max_steps": 7}),
    }
    assert {*changes, "kind"} == set(TrainingCell.model_fields)
    ids = {CELL.model_copy(update={key: value}).id for key, value in changes.items()}
    assert len(ids | {CELL.id}) == len(changes) + 1


def test_a_copy_with_other_fields_has_an_identity_of_its_own() -> None:
    known = (CELL.id, CELL.series, CELL.setting)
    copied = CELL.model_copy(update={"precision": "bf16"})
    assert not {copied.id, copied.series, copied.setting} & set(known)
    assert copied.id == TrainingCell.model_validate(copied.model_dump()).id


def test_a_series_is_equal_for_all_counts_and_nothing_else() -> None:
    assert CELL.model_copy(update={"world_size": 8}).series == CELL.series
    assert CELL.model_copy(update={"batch_size": 8}).series != CELL.series


@given(st.text(min_size=1, max_size=200))
def test_an_id_is_a_safe_file_name_for_any_model(name: str) -> None:
    identity = CELL.model_copy(update={"model": name}).id
    assert "/" not in identity
    assert "\0" not in identity
    assert not identity.startswith(".")
    assert len(identity.encode()) < 150
    assert not identity.startswith("-")
    assert re.search(r"-[0-9a-f]{8}$", identity)


def test_an_id_survives_a_trip_through_json() -> None:
    """Options keep their type: 1, 1.0 and true are three different settings."""
    for value in (1, 1.0, True, "1", 1e-7):
        cell = CELL.model_copy(update={"model_options": {"option": value}})
        assert TrainingCell.model_validate_json(cell.model_dump_json()).id == cell.id
    ids = {
        CELL.model_copy(update={"model_options": {"option": value}}).id
        for value in (1, 1.0, True, "1")
    }
    assert len(ids) == 4


def test_options_of_a_strategy_keep_their_types() -> None:
    """True is written as true, which the strict reader takes; as 1 it would refuse its own file."""
    (cell,) = cells(
        gpu_counts=[2], parallel={"strategy": {"name": "ddp", "gradient_as_bucket_view": True}}
    )
    text = cell.model_dump_json()
    assert '"gradient_as_bucket_view":true' in text
    assert type(cell).model_validate_json(text) == cell


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_size": None},
        {"learning_rate": None},
        {"precision": "own"},
        {"optimizer": "own"},
        {"strategy": "own"},
        {"data_source": "own"},
    ],
)
def test_only_a_script_leaves_something_open(changes: dict[str, Any]) -> None:
    """A cell without a batch size would count no samples, and be compared all the same."""
    whole = cells()[0].model_dump(mode="json")
    script = {"form": "script", "text": "train.py"}
    assert TrainingCell.model_validate({**whole, **changes, "script": script})
    with pytest.raises(ValidationError, match=f"{next(iter(changes))} is missing"):
        TrainingCell.model_validate({**whole, **changes})
