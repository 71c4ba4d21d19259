"""What ``import torchscale`` offers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import torchscale
from tests.factories import cells, experiment
from tests.fake_launches import FakeLaunches, Recorder
from tests.features.trace.readers.builders import two_ranks
from torchscale.api import Config
from torchscale.errors import ConfigError, TraceError, UsageError
from torchscale.schema.state import State

CONFIG = {"models": "tiny-resnet", "batch_sizes": [8], "gpu_counts": [1, 2]}


def test_everything_that_is_offered_is_there_and_documented() -> None:
    for name in torchscale.__all__:
        assert getattr(torchscale, name) is not None
        assert name in dir(torchscale)
        if name != "__version__":
            assert getattr(torchscale, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = torchscale.nonsense


@pytest.mark.slow
def test_importing_it_loads_neither_torch_nor_pandas() -> None:
    program = (
        "import sys, torchscale\n"
        "assert not {'pydantic', 'pandas', 'torch'} & set(sys.modules)\n"
        "torchscale.load_results\n"
        "assert not {'torch', 'pandas', 'plotly', 'matplotlib'} & set(sys.modules), "
        "sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_mapping_is_measured_and_its_results_returned(
    tmp_path: Path, launches: FakeLaunches, recorder: Recorder
) -> None:
    runs = torchscale.benchmark(CONFIG, output_dir=tmp_path / "run", observer=recorder)
    assert list(runs.cells["state"]) == ["ok", "ok"]
    assert list(runs.cells["gpu_count"]) == [1, 2]
    assert "2 cells, 2 launches" in recorder.notes[0]
    assert len(torchscale.benchmark(CONFIG, output_dir=tmp_path / "run").cells) == 2
    assert len(launches.ran) == 2, "the same call resumes"


def test_a_file_an_experiment_and_overrides(tmp_path: Path, launches: FakeLaunches) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("models: tiny-resnet\nbatch_sizes: [8]\ngpu_counts: [1, 2]\n")
    overrides = {"gpu_counts": [1], "training.precision": "bf16"}
    configs: tuple[Config, ...] = (path, str(path), CONFIG, experiment())
    for number, config in enumerate(configs):
        runs = torchscale.benchmark(config, overrides=overrides, output_dir=tmp_path / str(number))
        assert list(runs.cells["precision"]) == ["bf16"]
    assert len(launches.ran) == 4


def test_mistakes_name_the_key(tmp_path: Path, launches: FakeLaunches) -> None:
    with pytest.raises(ConfigError, match="did you mean 'bf16'"):
        torchscale.benchmark({**CONFIG, "training": {"precision": "bf61"}}, output_dir=tmp_path)
    with pytest.raises(ConfigError, match=r"training\.precision"):
        torchscale.benchmark(CONFIG, overrides={"training.precision": 3}, output_dir=tmp_path)
    with pytest.raises(UsageError, match="rerun: 'some'; expected one of failed, all"):
        torchscale.benchmark(CONFIG, rerun="some", output_dir=tmp_path)
    assert not launches.ran


def test_a_failed_cell_is_a_state_and_no_exception(tmp_path: Path, launches: FakeLaunches) -> None:
    launches.states[cells()[1].id] = State.OOM
    runs = torchscale.benchmark(CONFIG, output_dir=tmp_path / "run")
    assert list(runs.cells["state"]) == ["ok", "oom"]
    launches.states.clear()
    assert list(
        torchscale.benchmark(CONFIG, rerun="failed", output_dir=tmp_path / "run").cells["state"]
    ) == [
        "ok",
        "ok",
    ]


def test_ctrl_c_is_a_keyboard_interrupt_and_loses_nothing(
    tmp_path: Path, launches: FakeLaunches
) -> None:
    launches.stop_after = 1
    with pytest.raises(KeyboardInterrupt):
        torchscale.benchmark(CONFIG, output_dir=tmp_path / "run")
    assert torchscale.load_results(tmp_path / "run").cells["state"].iloc[0] == "ok"


def test_recordings_are_analyzed(tmp_path: Path) -> None:
    database = tmp_path / "run.sqlite"
    two_ranks().write(database)
    analysis = torchscale.analyze(database, output_dir=tmp_path / "out")
    assert analysis.world_size == 2
    assert (tmp_path / "out" / "analysis.json").is_file()
    assert torchscale.analyze([str(database)]) == analysis
    with pytest.raises(TraceError):
        torchscale.analyze(tmp_path / "none.json")


@pytest.mark.slow
@pytest.mark.integration
def test_the_calling_process_never_imports_torch(tmp_path: Path) -> None:
    config = {**CONFIG, "models": "tiny-decoder", "device": "cpu", "gpu_counts": [1]}
    quick = {
        "preset": "quick",
        "warmup_steps": 2,
        "warmup_seconds": 0.05,
        "warmup_max_seconds": 0.2,
        "measure_steps": 10,
    }
    program = f"""
import sys, torchscale
runs = torchscale.benchmark({ {**config, "benchmark": quick}!r}, output_dir={str(tmp_path / "run")!r})
assert list(runs.cells["state"]) == ["ok"], runs.cells
assert float(runs.cells["samples_per_second"][0]) > 0
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=280, cwd=tmp_path)
