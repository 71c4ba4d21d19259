"""Sweeps over what a cell can be, through the real program."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.campaign import cases
from tests.factories import machine
from tests.integration.conftest import FAST, Program
from torchscale.config.load import load_experiment
from torchscale.launch.exchanges import paired_waits
from torchscale.plan.expand import make_plan
from torchscale.schema.launch.training import TrainingResult

pytestmark = pytest.mark.integration


def write(program: Program, **content: Any) -> str:
    path = program.directory / "config.yaml"
    settings = {
        "experiment_name": "run",
        "batch_sizes": [4],
        "gpu_counts": [1, 2],
        "device": "cpu",
        "benchmark": FAST,
    }
    path.write_text(yaml.safe_dump({**settings, **content}))
    return str(path)


def rows(program: Program, config: str, *options: str, code: int = 0) -> list[dict[str, Any]]:
    done = program.here("benchmark", config, "--json", *options)
    assert done.returncode == code, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["cells"]
    return found


def record(program: Program, cell_id: str, launch: int = 0) -> dict[str, Any]:
    path = (
        program.directory
        / "results"
        / "run"
        / "cells"
        / cell_id
        / f"launch-{launch}"
        / "record.json"
    )
    content: dict[str, Any] = json.loads(path.read_text())
    return content


@pytest.mark.campaign
def test_one_file_sweeps_models_batches_counts_precisions_and_strategies(program: Program) -> None:
    batch_sizes, counts = [2, 4], [1, 2]
    config = write(
        program,
        models=["tiny-resnet", "tiny-decoder"],
        batch_sizes=batch_sizes,
        gpu_counts=counts,
        training={"precision": ["fp32", "bf16"]},
        parallel={
            "strategy": ["ddp", "fsdp", "tensor", {"name": "hybrid", "data": 2, "pipeline": 2}]
        },
        launch={"isolation": "group"},
        # What they measure is not the point: a few steps of each cell will do.
        benchmark={
            **FAST,
            "warmup_steps": 1,
            "warmup_seconds": 0.01,
            "warmup_max_seconds": 0.1,
            "measure_steps": 4,
        },
    )
    cells = rows(program, config)
    settings = len(batch_sizes) * len(counts) * 2  # with two precisions
    assert len(cells) == settings * 2 * 4
    states = {cell["state"] for cell in cells}
    assert states == {"ok", "skipped"}
    skipped = {cell["reason"].split(":")[0] for cell in cells if cell["state"] == "skipped"}
    assert skipped == {
        "hybrid",
        "tiny-resnet does not support tensor parallelism; decoder, llama and moe models do, or your own",
    }
    ran = [cell for cell in cells if cell["state"] == "ok"]
    assert len(ran) == settings * (2 + 3)  # two strategies for the one model, three for the other
    table = program.run("report", "--source", "results/run", "--format", "html")
    assert table.returncode == 0, table.stderr


@pytest.mark.campaign
def test_shards_against_random_samples_with_the_wait_for_data(program: Program) -> None:
    data = {
        "source": ["synthetic-host", "shards"],
        "total_mb": 2,
        "workers": 1,
        "data_dir": "here",
        "drop_cache": True,
    }
    config = write(
        program,
        models="tiny-decoder",
        gpu_counts=[2],
        data=data,
        launch={"isolation": "group"},
        benchmark={**FAST, "repeats": 2},
    )
    cells = rows(program, config)
    assert [cell["state"] for cell in cells] == ["ok", "ok"]
    assert all(cell["figures"]["phases"]["data_wait"] > 0 for cell in cells)
    ranks = record(program, cells[1]["cell_id"])["payload"]["ranks"]
    for rank in ranks:
        assert rank["data"]["source"] == "shards"
        assert rank["data"]["shards_written"] == 1
        assert rank["data"]["asked_cold"]
        assert rank["data"]["epochs"] > 0
    assert record(program, cells[0]["cell_id"])["payload"]["ranks"][0]["data"] is None
    second = record(program, cells[1]["cell_id"], launch=1)
    assert second["payload"]["ranks"][0]["data"]["shards_reused"] == 1


@pytest.mark.parametrize("counts", cases([[2]], [[1]]))
def test_epochs_of_real_images(program: Program, counts: list[int]) -> None:
    images = bytes([7, 42]) + bytes(range(256)) * 12
    (program.directory / "data").mkdir()
    (program.directory / "data" / "train.bin").write_bytes(images * 48)
    config = write(
        program,
        models={"name": "tiny-resnet", "num_classes": 100, "image_size": 40},
        gpu_counts=counts,
        data={"source": "cifar100", "workers": 0},
        training={"epochs": 2, "warmup_epochs": 1},
        telemetry={"enabled": False},
    )
    (cell,) = rows(program, config)
    assert cell["state"] == "ok"
    assert cell["figures"]["telemetry"] is None
    steps = 12 // counts[0]
    found = record(program, cell["cell_id"])
    assert [(epoch["steps"], epoch["samples"]) for epoch in found["payload"]["epochs"]] == [
        (steps, 48)
    ] * 2
    for epoch in found["payload"]["epochs"]:
        assert epoch["samples_per_second"] == pytest.approx(epoch["samples"] / epoch["seconds"])
    assert found["payload"]["ranks"][0]["stop_rule"] == "epochs"
    assert found["payload"]["ranks"][0]["warmup"]["steps"] >= steps


@pytest.mark.campaign
def test_data_that_is_not_there_is_told_by_its_cell(program: Program) -> None:
    config = write(
        program,
        models={"name": "tiny-resnet", "num_classes": 100},
        gpu_counts=[1],
        data={"source": "cifar100"},
    )
    (cell,) = rows(program, config, code=1)
    assert cell["state"] == "crashed"
    assert (
        "no train.bin in data or data/cifar-100-binary; unpack cifar-100-binary.tar.gz there"
        in cell["reason"]
    )


def test_a_cell_that_fails_in_a_group_runs_again_by_itself_and_the_others_go_on(
    program: Program,
) -> None:
    """The fault strikes in a process that has run another cell before, and not in one of its
    own; where it is and what to do is said."""
    faulty = {"name": "faulty:build", "fault": "raise", "rank": 0, "step": 6}
    config = write(
        program,
        models=[{**faulty, "fault": "none"}, faulty, "tiny-decoder", "contaminated:build"],
        gpu_counts=[1],
        launch={"isolation": "group"},
    )
    done = program.run("benchmark", config)
    assert done.returncode == 1, done.stderr
    assert "1 failed: 3 of 4 cells" in done.stdout
    assert re.search(r"at .*faulty\.py:\d+ in _fail", done.stdout)
    (log,) = re.findall(r"log: (\S+)", done.stdout)
    assert (program.directory / log).is_file()
    assert "--rerun failed" in done.stderr
    shown = program.here("report", "results/run", "--format", "json", "--output", "-")
    cells = json.loads(shown.stdout)["cells"]
    assert [cell["state"] for cell in cells] == ["ok", "crashed", "ok", "ok"]
    assert "the fault that was asked for" in cells[1]["reason"]
    failed = record(program, cells[1]["cell_id"])
    assert "faulty.py" in failed["failures"][0]["traceback"]
    assert failed["payload"]["ranks"] == []
    grouped = [record(program, cell["cell_id"])["grouped"] for cell in cells]
    assert grouped == [False, False, False, False]  # a failed one, and what follows it, start anew
    partial = list((program.directory / "results" / "run" / "quarantine").glob("*"))
    assert len(partial) == 2  # the first attempts of the faulty and of the contaminated cell


@pytest.mark.campaign
def test_a_pipeline_of_more_ranks_than_cores_is_flagged_and_tells_its_bubble(
    program: Program,
) -> None:
    config = write(
        program,
        models="tiny-decoder",
        gpu_counts=[3],
        launch={"oversubscribe": True, "threads_per_rank": 1},
        parallel={"strategy": {"name": "pipeline", "microbatches": 4}},
    )
    (cell,) = rows(program, config)
    assert cell["state"] == "ok"
    assert "oversubscribed" in cell["flags"]
    assert 0 < cell["figures"]["bubble"]["measured"] < 1
    assert cell["figures"]["bubble"]["computed"] == pytest.approx(2 / 6)


@pytest.mark.campaign
def test_local_hugging_face_configurations(program: Program) -> None:
    sizes = {
        "gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 128},
        "bert": {
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 128,
        },
    }
    models = []
    for kind, changes in sizes.items():
        content = {
            "model_type": kind,
            "vocab_size": 500,
            "bos_token_id": 0,
            "eos_token_id": 0,
            **changes,
        }
        (program.directory / kind).mkdir()
        (program.directory / kind / "config.json").write_text(json.dumps(content))
        models.append({"name": f"hf:{kind}/config.json", "sequence_length": 32})
    cells = rows(
        program, write(program, models=models, gpu_counts=[1], launch={"isolation": "group"})
    )
    assert [cell["state"] for cell in cells] == ["ok", "ok"]


def test_ready_files_are_plans(program: Program) -> None:
    configs = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
    assert len(configs) >= 8
    for path in configs:
        plan = make_plan(load_experiment(path, ["--device=cpu"]), machine())
        assert plan.cells, path.name
    done = program.here("benchmark", str(configs[0]), "--dry-run", "--no-predict", "--device=cpu")
    assert done.returncode == 0, done.stderr


def launched(
    program: Program, strategy: str | dict[str, Any], ranks: int
) -> tuple[Path, TrainingResult]:
    """A launch of a small decoder that was measured: its folder and its result."""
    config = write(
        program,
        models={"name": "late_decoder:build", "layers": 2},
        batch_sizes=[4],
        gpu_counts=[ranks],
        parallel={"strategy": strategy},
        launch={"oversubscribe": True},
        benchmark={**FAST, "measure_steps": 24},
    )
    (cell,) = rows(program, config)
    assert cell["state"] == "ok"
    (launch,) = (program.directory / "results" / "run" / "cells").glob("*/launch-0")
    payload = record(program, cell["cell_id"])["payload"]
    return launch, TrainingResult.model_validate(payload)


@pytest.mark.parametrize(
    ("strategy", "ranks", "includes_sync"),
    cases(
        [("fsdp", 2, False), ({"name": "hybrid", "data": 2, "tensor": 2}, 4, True)],
        [({"name": "fsdp", "shard": 2}, 4, False)],
    ),
)
def test_collectives_of_a_split_model_are_paired_over_its_ranks(
    program: Program, strategy: str | dict[str, Any], ranks: int, includes_sync: bool
) -> None:
    """What the ranks note must fit their records, else waits are judged by their totals."""
    launch, result = launched(program, strategy, ranks)
    pairs = paired_waits(launch, result.ranks)
    assert pairs is not None
    assert pairs.complete.all()
    assert pairs.includes_sync is includes_sync
    assert len(pairs.complete) == result.measured_steps
    assert pairs.transfer.min() > 0
    assert pairs.wait.sum() == pytest.approx(pairs.blame.sum())
    assert result.signals is not None
    assert result.signals.wait is not None


@pytest.mark.parametrize("within", cases([{"shard": 2}], [{"tensor": 2}]))
def test_waits_within_the_stages_of_a_pipeline_are_taken_apart(
    program: Program, within: dict[str, int]
) -> None:
    _, result = launched(program, {"name": "hybrid", "pipeline": 2, **within}, 4)
    assert result.rank_steps is not None
    assert all(seconds is not None and seconds > 0 for seconds in result.rank_steps.mean_sync)
    assert result.signals is not None
    assert result.signals.wait is None, "stages wait for each other by design"
    assert result.signals.windows is not None
