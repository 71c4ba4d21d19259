"""Configs of optimum-benchmark: Hydra's defaults, a backend, a scenario and a launcher."""

from __future__ import annotations

from collections.abc import Mapping

from torchscale.config.translate import Translation
from torchscale.config.yaml_reader import Data
from torchscale.features.imports.huggingface import place_trainer
from torchscale.features.imports.models import hub_model
from torchscale.features.imports.names import DEVICES, PRECISIONS
from torchscale.features.imports.worksheet import Worksheet, as_list

_SECTIONS = ("backend", "scenario", "launcher")
_BATCH, _LENGTH = 2, 16
"""The suite's own input shapes: samples on a device, tokens of a sample."""
_MAX_STEPS, _WARMUP = 140, 40
"""Of its scenario of training; the first number counts the second."""
_MOST_DIGITS = 5
"""Of the index of a device."""
_NEEDLESS: Mapping[str, str] = {
    "hydra": "is of Hydra, which torchscale does not use",
    "environment": "is in every record anyway",
    "print_report": "is printed anyway",
    "log_report": "is kept anyway",
    "backend.no_weights": "needs no key: weights are random here",
    "backend.library": "follows from the model",
    "backend.task": "follows from the model",
    "scenario.latency": "is measured anyway",
    "scenario.memory": "is measured anyway",
    "scenario.energy": "is measured where the GPU counts it",
    "launcher": "needs no key: torchscale starts its processes itself",
}


def is_optimum(data: Mapping[str, Data]) -> bool:
    """Whether a config has the form of optimum-benchmark's."""
    chosen = _chosen(data)
    return bool(chosen) or any(isinstance(data.get(name), dict) for name in _SECTIONS)


def from_optimum(data: Mapping[str, Data]) -> Translation:
    """A config of optimum-benchmark, or the one that it writes beside its results."""
    sheet = Worksheet("optimum-benchmark", data)
    chosen = _chosen(data)
    files = [
        word
        for word in as_list(sheet.take("defaults"))
        if isinstance(word, str) and word not in ("benchmark", "_self_")
    ]
    if files:
        sheet.leave("defaults", f"{', '.join(map(str, files))}: other files, which are not read")
    scenario = sheet.take_word("scenario.name") or chosen.get("scenario", "")
    backend = sheet.take_word("backend.name") or chosen.get("backend", "pytorch")
    launcher = sheet.take_word("launcher.name") or chosen.get("launcher", "process")
    for name in _SECTIONS:
        sheet.take(f"{name}._target_")
    if backend != "pytorch":
        sheet.differ(f"it runs PyTorch: the backend there is {backend}")
    sheet.move("name", "experiment_name")
    _backend(sheet)
    _launcher(sheet, launcher)
    if scenario == "training":
        _training(sheet)
    else:
        _inference(sheet, scenario or "inference")
    sheet.leave_present({"scenario.generate_kwargs": "torchscale generates no text"})
    for key, text in _NEEDLESS.items():
        sheet.settle(key, text)
    return sheet.done()


def _chosen(data: Mapping[str, Data]) -> dict[str, str]:
    """Section → what Hydra's ``defaults`` choose for it."""
    chosen = {}
    for choice in as_list(data.get("defaults")):
        for key, value in choice.items() if isinstance(choice, dict) else ():
            section = key.rpartition(" ")[2]  # `override scenario`
            if section in _SECTIONS:
                chosen[section] = str(value).casefold()
    return chosen


def _backend(sheet: Worksheet) -> None:
    for key in ("backend.model", "model"):
        name = sheet.take(key)
        if isinstance(name, str):
            sheet.place("models", [hub_model(name)], key)
    for key in ("backend.device", "device"):
        device = sheet.take_word(key).partition(":")[0]
        if device in DEVICES:
            sheet.place("device", DEVICES[device], key)
        elif device:
            sheet.leave(key, f"{device}: see `torchscale docs names devices`")
    for key in ("backend.torch_dtype", "backend.dtype", "backend.autocast_dtype"):
        word = sheet.take_word(key)
        if word in PRECISIONS:
            sheet.place("training.precision", PRECISIONS[word], key)
        elif word:
            sheet.leave(key, f"{word}: see training.precision")
    for key in ("backend.torch_compile", "backend.torch_compile_target"):
        value = sheet.take(key)
        if value is not None and value is not False and "model.compile" not in sheet.result.data:
            sheet.place("model.compile", True, key)


def _launcher(sheet: Worksheet, launcher: str) -> None:
    devices = as_list(sheet.take("backend.device_ids"))
    count = sheet.take_whole("launcher.nproc_per_node")
    if launcher == "torchrun" and count is not None:
        sheet.place("gpu_counts", [count], "launcher.nproc_per_node")
    else:
        sheet.place("gpu_counts", [1])
    indices = [
        int(str(one)) for one in devices if str(one).isdecimal() and len(str(one)) <= _MOST_DIGITS
    ]
    if indices:
        sheet.place("launch.devices", list(indices), "backend.device_ids")


def _training(sheet: Worksheet) -> None:
    warmup = sheet.take_whole("scenario.warmup_steps") or _WARMUP
    inner = "scenario.training_arguments."
    steps = sheet.take_whole(f"{inner}max_steps") or sheet.take_whole("scenario.max_steps")
    measured = (steps or _MAX_STEPS) - warmup
    sheet.place("benchmark.warmup_steps", warmup, "scenario.warmup_steps")
    if measured >= 1:
        sheet.place("benchmark.measure_steps", measured, "scenario.max_steps")
        sheet.note("scenario.max_steps counts the steps of warm-up, which are not measured here")
    place_trainer(sheet, inner, batch=_BATCH)
    _shapes(sheet, "scenario.dataset_shapes")


def _inference(sheet: Worksheet, scenario: str) -> None:
    sheet.differ(f"it trains: the scenario there is {scenario}, and torchscale measures training")
    _shapes(sheet, "scenario.input_shapes")
    size = sheet.take_whole("scenario.input_shapes.batch_size")
    if size is None:
        sheet.note(f"scenario.input_shapes.batch_size: {_BATCH}, the suite's own default")
    sheet.place("batch_sizes", [size or _BATCH], "scenario.input_shapes.batch_size")
    for key, target in (
        ("warmup_runs", "benchmark.warmup_steps"),
        ("iterations", "benchmark.min_steps"),
        ("duration", "benchmark.min_seconds"),
    ):
        value = sheet.take_whole(f"scenario.{key}")
        if value is not None:
            sheet.place(target, value, f"scenario.{key}")


def _shapes(sheet: Worksheet, section: str) -> None:
    length = sheet.take_whole(f"{section}.sequence_length")
    if length is not None:
        sheet.place("model.options.sequence_length", length, f"{section}.sequence_length")
    height, width = sheet.take(f"{section}.height"), sheet.take(f"{section}.width")
    if isinstance(height, int) and height == width:
        sheet.place("model.options.image_size", height, f"{section}.height")
    classes = sheet.take_whole(f"{section}.num_labels")
    if classes is not None:
        sheet.place("model.options.num_classes", classes, f"{section}.num_labels")
