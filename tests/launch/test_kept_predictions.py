from __future__ import annotations

from pathlib import Path

import pytest

from torchscale.launch import kept_predictions
from torchscale.launch.kept_predictions import KeptPredictions
from torchscale.schema.cells.memory import MemoryParts, PredictedMemory

PARTS = MemoryParts(parameters=1, buffers=2, gradients=3, optimizer_states=4, activations=None)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def prediction(peak: int) -> PredictedMemory:
    return PredictedMemory(parts=PARTS, peak_bytes=peak, method="by hand")


def test_what_is_kept_is_found_by_its_content_alone() -> None:
    KeptPredictions({}).keep({"a": prediction(5), "b": prediction(6)})
    kept = KeptPredictions({})
    assert (kept.find("a"), kept.find("b")) == (prediction(5), prediction(6))
    assert kept.find("c") is None


@pytest.mark.parametrize(
    "change", ["variables", "_sources", "_versions", "_devices", "CUDA_VISIBLE_DEVICES"]
)
def test_nothing_is_found_once_what_it_depends_on_has_changed(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    KeptPredictions({}).keep({"a": prediction(5)})
    if change.startswith("_"):
        monkeypatch.setattr(kept_predictions, change, lambda: ["another"])
    elif change != "variables":
        monkeypatch.setenv(change, "7")
    variables = {"ATTENTION": "eager"} if change == "variables" else {}
    assert KeptPredictions(variables).find("a") is None


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b'{"a": 1}', b"[" * 100_000])
def test_a_damaged_file_holds_nothing_and_is_replaced(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "torchscale").mkdir()
    (tmp_path / "torchscale" / "predictions.json").write_bytes(content)
    kept = KeptPredictions({})
    assert kept.find("a") is None
    kept.keep({"a": prediction(5)})
    assert KeptPredictions({}).find("a") == prediction(5)


def test_an_entry_that_is_no_prediction_is_not_taken_for_one(tmp_path: Path) -> None:
    KeptPredictions({}).keep({"a": prediction(5)})
    path = tmp_path / "torchscale" / "predictions.json"
    path.write_text(path.read_text().replace("peak_bytes", "peak"))
    assert KeptPredictions({}).find("a") is None


def test_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_predictions, "_MOST_KEPT", 2)
    for name in "abc":
        KeptPredictions({}).keep({name: prediction(5)})
    assert [KeptPredictions({}).find(name) is not None for name in "abc"] == [False, True, True]


def test_a_place_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "torchscale").write_text("a file in the place of the directory")
    KeptPredictions({}).keep({"a": prediction(5)})
    assert KeptPredictions({}).find("a") is None


def test_without_a_home_directory_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobodys() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(kept_predictions, "cache_directory", nobodys)
    kept = KeptPredictions({})
    kept.keep({"a cell": prediction(5)})
    assert KeptPredictions({}).find("a cell") is None
